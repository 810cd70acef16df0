//go:build !linux

package main

import "os"

// unread would report whether what is written to f can reach nobody any more.
func unread(*os.File) bool { return false }
