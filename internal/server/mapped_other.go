//go:build !unix

package server

import "errors"

func mapMemory(int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmapMemory([]byte) error { return nil }
