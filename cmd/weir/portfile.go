package main

import (
	"fmt"

	"github.com/weirmq/weir/internal/atomicfile"
)

// writePortFile writes addr so that a reader never sees part of it.
func writePortFile(path, addr string) error {
	if path == "" {
		return nil
	}
	if err := atomicfile.WriteUnsynced(path, []byte(addr)); err != nil {
		return fmt.Errorf("port file: %w", err)
	}
	return nil
}
