package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// writePortFile writes addr so that a reader never sees part of it.
func writePortFile(path, addr string) error {
	if path == "" {
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".weir-port-")
	if err != nil {
		return fmt.Errorf("port file: %w", err)
	}
	_, err = tmp.WriteString(addr)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("port file: %w", errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}
