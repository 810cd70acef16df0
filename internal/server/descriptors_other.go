//go:build !unix

package server

func noDescriptor() error { return nil }
