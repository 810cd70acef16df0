package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
)

// ofMachine are errors of calls for which this machine, or this process, has too little of
// something, or no right.
var ofMachine = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, fs.ErrPermission}

// OfMachine reports whether an error says nothing about the files of a directory: with more descriptors,
// memory, space or rights they may prove to be whole.
func OfMachine(err error) bool {
	return slices.ContainsFunc(ofMachine, func(no error) bool { return errors.Is(err, no) })
}

// hopeless is an error after which only a backup helps, unless it is the machine's or
// somebody has ended what failed.
func hopeless(what string, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case OfMachine(err):
		return fmt.Errorf("%s by this process: %w", what, err)
	}
	return fmt.Errorf("%s, restore a backup: %w", what, err)
}
