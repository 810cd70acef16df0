package main

import "fmt"

// writePortFile writes addr so that a reader never sees part of it.
func writePortFile(path, addr string) error {
	if path == "" {
		return nil
	}
	if err := replaceFile(path, []byte(addr)); err != nil {
		return fmt.Errorf("port file: %w", err)
	}
	return nil
}
