// Package build builds weir as make build does, for tests and for programs that drive it.
package build

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Weir builds the program to a path; root is a directory of weir's module, empty for the
// working directory. The error has what the compiler printed. With race it has the race
// detector, which needs cgo.
func Weir(ctx context.Context, root, path string, race bool) error {
	args, cgo := []string{"build", "-tags", "grpcnotrace", "-o", path}, "CGO_ENABLED=0"
	if race {
		args, cgo = append(args, "-race"), "CGO_ENABLED=1"
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "github.com/weirmq/weir/cmd/weir")...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build weir: %w\n%s", err, out)
	}
	return nil
}
