package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

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
