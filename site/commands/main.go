// Command commands prints the help of each command of a weir binary as a page.
//
//	go run ./commands bin/weir
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: commands BINARY")
		os.Exit(2)
	}
	out := bufio.NewWriter(os.Stdout)
	err := write(out, os.Args[1], "A durable stream queue in one program")
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "commands:", err)
		os.Exit(1)
	}
}

// write prints the section of one command and those of the commands below it.
func write(w io.Writer, binary, short string, name ...string) error {
	help, err := exec.Command(binary, append([]string{"help"}, name...)...).Output()
	if err != nil {
		return fmt.Errorf("weir help %s: %w", strings.Join(name, " "), err)
	}
	// The page's own headings are of level 1 and 2.
	fmt.Fprintf(w, "\n%s %s\n\n%s.\n\n```text\n%s\n```\n", strings.Repeat("#", min(3, 2+len(name))),
		strings.Join(append([]string{"weir"}, name...), " "), short, strings.TrimRight(string(help), "\n"))
	if len(name) > 0 && name[0] == "completion" {
		return nil // a shell each, and the same text for all
	}
	for _, c := range below(string(help)) {
		if c.name == "help" {
			continue
		}
		if err := write(w, binary, c.short, append(name[:len(name):len(name)], c.name)...); err != nil {
			return err
		}
	}
	return nil
}

type command struct{ name, short string }

// below returns the commands that a help lists.
func below(help string) (all []command) {
	_, rest, _ := strings.Cut(help, "\nAvailable Commands:\n")
	list, _, _ := strings.Cut(rest, "\n\n")
	for line := range strings.Lines(list) {
		if name, short, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			all = append(all, command{name, strings.TrimSpace(short)})
		}
	}
	return all
}
