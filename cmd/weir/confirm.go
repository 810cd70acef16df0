package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// checkFinal refuses a command that cannot be undone if it would have to ask and cannot.
func checkFinal(cmd *cobra.Command, yes, dryRun bool) error {
	if yes || dryRun || isTerminal(cmd.InOrStdin()) {
		return nil
	}
	return &usageError{fmt.Errorf("%s is final and there is no terminal to ask on: add --yes, or --dry-run to look first", cmd.Name())}
}

// confirm asks a question and reports whether the answer is yes; if not, it prints otherwise.
func confirm(ctx context.Context, cmd *cobra.Command, question, otherwise string) bool {
	fmt.Fprint(cmd.ErrOrStderr(), question)
	answer := make(chan string, 1)
	go func() { // it ends with the process if nobody answers
		line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		answer <- line
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(cmd.ErrOrStderr())
	case line := <-answer:
		if text := strings.ToLower(strings.TrimSpace(line)); text == "y" || text == "yes" {
			return true
		}
	}
	fmt.Fprintln(cmd.ErrOrStderr(), otherwise)
	return false
}
