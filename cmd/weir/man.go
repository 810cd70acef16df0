package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// lineLength is how long the lines of a page's source are at most.
const lineLength = 78

// newManCmd is what make man and a release run.
func newManCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages of all commands, for section 1, into a directory",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writePages(cmd.Root(), args[0])
		},
	}
}

// writePages writes the page of a command and those of the ones below it. A page depends on
// nothing but the command: no date, no machine.
func writePages(cmd *cobra.Command, dir string) error {
	cmd.InitDefaultHelpFlag()
	var page strings.Builder
	writePage(&page, cmd)
	if err := os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), []byte(page.String()), 0o644); err != nil {
		return err
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			if err := writePages(c, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// pageName is the name of a command's page, as in weir-topic-rm.
func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// roff is what has a meaning in the language of manual pages. A line must not begin with a
// dot or an apostrophe.
var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "\n.", "\n\\&.", "…", "...", "–", `\(en`, "→", `\(->`)

func escaped(text string) string {
	text = roff.Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

// filled is text that the reader's program fills, in lines that are not too long for its own.
func filled(text string) string {
	var b strings.Builder
	length := 0
	for word := range strings.FieldsSeq(text) {
		word = escaped(word)
		switch {
		case length == 0:
		case length+1+len(word) > lineLength:
			b.WriteByte('\n')
			length = 0
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	return b.String()
}

// writePage prints the page of a command.
func writePage(w io.Writer, cmd *cobra.Command) {
	name := pageName(cmd)
	fmt.Fprintf(w, ".TH %s 1 \"\" weir \"weir manual\"\n", escaped(strings.ToUpper(name)))
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", escaped(name), escaped(strings.ToLower(cmd.Short[:1])+cmd.Short[1:]))
	line := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		line = cmd.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n", escaped(line))
	fmt.Fprint(w, ".SH DESCRIPTION\n")
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	writeText(w, about)
	if cmd.HasAvailableSubCommands() {
		fmt.Fprint(w, ".SH COMMANDS\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && c.Name() != "help" {
				fmt.Fprintf(w, ".TP\n.BR %s (1)\n%s\n", escaped(pageName(c)), escaped(c.Short))
			}
		}
	}
	writeFlags(w, "OPTIONS", cmd.NonInheritedFlags())
	writeFlags(w, "INHERITED OPTIONS", cmd.InheritedFlags())
	if cmd.Example != "" {
		fmt.Fprintf(w, ".SH EXAMPLES\n.nf\n%s\n.fi\n", escaped(strings.TrimRight(cmd.Example, "\n")))
	}
	if cmd.HasParent() {
		fmt.Fprintf(w, ".SH SEE ALSO\n.BR %s (1)\n", escaped(pageName(cmd.Parent())))
	}
}

// writeText prints paragraphs. One with lines that are indented is printed as it is.
func writeText(w io.Writer, text string) {
	for i, paragraph := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if i > 0 {
			fmt.Fprint(w, ".PP\n")
		}
		paragraph = strings.Trim(paragraph, "\n")
		if strings.Contains("\n"+paragraph, "\n ") || strings.Contains("\n"+paragraph, "\n\t") {
			fmt.Fprintf(w, ".nf\n%s\n.fi\n", escaped(strings.ReplaceAll(paragraph, "\t", "    ")))
			continue
		}
		fmt.Fprintln(w, filled(paragraph))
	}
}

func writeFlags(w io.Writer, head string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(w, ".SH %s\n", head)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		typ, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(w, ".TP\n\\fB%s\\fR", escaped(name))
		if typ != "" && f.NoOptDefVal == "" {
			fmt.Fprintf(w, " \\fI%s\\fR", escaped(typ))
		}
		if f.DefValue != "" && f.DefValue != "false" {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, "\n%s\n", filled(usage))
	})
}
