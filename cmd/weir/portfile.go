package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirmq/weir/internal/atomicfile"
)

// checkTarget refuses a path of a flag at which no file can be put, before anything is begun.
func checkTarget(flag, path string) error {
	if path == "" {
		return nil
	}
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Dir(behindLinks(path)))
	}
	if err == nil {
		err = atomicfile.Replaceable(path)
	}
	if err != nil {
		return &usageError{fmt.Errorf("%s: %w", flag, err)}
	}
	return nil
}

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
