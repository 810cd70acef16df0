package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/audit"
	"github.com/weirmq/weir/internal/replica/stores"
	"github.com/weirmq/weir/internal/settings"
)

func newReplicaCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replica",
		Short: "Look at the copy of a server's log",
		Long: `Replica looks at the copy that a server keeps of its log outside its machine. It
changes nothing there, and may be run beside the server.`,
		Example: "  weir replica ls s3://backups/weir\n  weir replica verify file:///mnt/copy",
		Args:    cobra.ArbitraryArgs, // so that RunE can say what was meant
		RunE:    noCommand,
	}
	cmd.AddCommand(replicaCmd("ls URL", "List the leaders, the bases and the log of a copy",
		`Prints who has led and since when, the bases with their LSN, time and size, and the
log behind the newest of them.`, listCopy),
		replicaCmd("verify URL", "Read a whole copy and name what is broken",
			`Reads every base with all its files and every entry of the log, compares checksums
and order, and names each object that is broken. The exit code is 0 if nothing is
and 1 otherwise. It reads as much as the copy holds, which a bucket may charge for.`, verifyCopy))
	return cmd
}

// replicaCmd is a command that looks at a copy.
func replicaCmd(use, short, long string, look func(context.Context, audit.Copy) (fmt.Stringer, error)) *cobra.Command {
	name, _, _ := strings.Cut(use, " ")
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		Example: "  weir replica " + name + " s3://backups/weir",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var json output
			if err := load(cmd, settings.Replica, settings.Fields{"json": &json}); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if err := stores.Check(args[0]); err != nil {
				return &usageError{err}
			}
			progress := newCopyProgress(cmd.ErrOrStderr(), "weir replica "+name)
			log, files, err := stores.Open(ctx, args[0], stores.Options{ReadOnly: true, Trouble: tryingAgain(progress)})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, log.Close(), files.Close()) }()
			found, err := look(ctx, audit.Copy{Log: log, Files: files, Read: progress.counted("read", 0)})
			progress.finish()
			if found == nil {
				return err
			}
			if err = errors.Join(json.print(cmd.OutOrStdout(), found), err); err != nil {
				return err
			}
			if r, ok := found.(*verified); ok && len(r.Broken) > 0 {
				return fmt.Errorf("%s in the copy; a new base replaces what is broken in front of it, and a table, kv/…, once its object is removed", countOf(len(r.Broken), "broken place"))
			}
			return nil
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Replica)
	return cmd
}

// tryingAgain says which call to the store of a copy is made again.
func tryingAgain(say io.Writer) func(error) {
	return func(err error) { fmt.Fprintln(say, "weir: trying again:", err) }
}

// listed is what ls prints: of a copy that is broken, what can be listed.
type listed struct {
	Terms []replica.Term `json:"terms"`
	Bases []baseRow      `json:"bases"`
	Log   audit.Groups   `json:"log"`

	cut bool // the log goes on behind an entry that cannot be read
}

// baseRow is a base without its files.
type baseRow struct {
	Name  string    `json:"name"`
	After uint64    `json:"after"`
	LSN   uint64    `json:"lsn"`
	Term  uint64    `json:"term"`
	Taken time.Time `json:"taken"`
	Files int       `json:"files"`
	Bytes int64     `json:"bytes"`
}

func listCopy(ctx context.Context, c audit.Copy) (fmt.Stringer, error) {
	var broken []error
	bases, err := c.Bases(ctx, func(err error) { broken = append(broken, err) })
	if err != nil {
		return nil, errors.Join(append(broken, err)...)
	}
	l := &listed{}
	if l.Terms, err = c.Terms(ctx); err != nil {
		broken = append(broken, err)
	}
	after := uint64(0)
	for _, b := range bases {
		after = b.After
		l.Bases = append(l.Bases, baseRow{b.Name, b.After, b.LSN, b.Term, b.Taken.UTC(), len(b.Files), b.Bytes})
	}
	l.Log, err = c.Entries(ctx, after)
	l.cut = err != nil
	return l, errors.Join(append(broken, err)...)
}

func (l *listed) String() string {
	var b strings.Builder
	for _, t := range l.Terms {
		fmt.Fprintf(&b, "term %d: %s leads since %s\n", t.Number, t.Node, t.Started.UTC().Format(time.RFC3339))
	}
	for _, r := range l.Bases {
		fmt.Fprintf(&b, "%s: LSN %d, term %d, taken %s, %s, %s\n", r.Name, r.LSN, r.Term, r.Taken.Format(time.RFC3339), countOf(r.Files, "file"), countOf(r.Bytes, "byte"))
	}
	where := "log"
	if len(l.Bases) > 0 {
		where = "log behind the newest base"
	}
	if l.cut {
		where += ", up to what cannot be read"
	}
	return b.String() + where + ": " + groupsText(l.Log)
}

func groupsText(g audit.Groups) string {
	if g.Entries == 0 {
		return "no entries"
	}
	text := fmt.Sprintf("%s, positions %d to %d, %s", countOf(g.Entries, "entry"), g.First, g.Last, countOf(g.Bytes, "byte"))
	if !g.Written.IsZero() {
		text += fmt.Sprintf(", up to LSN %d of %s", g.LSN, g.Written.Format(time.RFC3339))
	}
	return text
}

// verified is what verify prints.
type verified struct {
	Bases   int          `json:"bases"`
	Objects int          `json:"objects"` // of bases
	Log     audit.Groups `json:"log"`
	Broken  []string     `json:"broken"`
}

func verifyCopy(ctx context.Context, c audit.Copy) (fmt.Stringer, error) {
	v := &verified{Broken: []string{}}
	broken := func(err error) { v.Broken = append(v.Broken, err.Error()) }
	if _, err := c.Terms(ctx); errors.Is(err, replica.ErrDamaged) {
		broken(err)
	} else if err != nil {
		return nil, err
	}
	bases, err := c.Bases(ctx, broken)
	if err != nil {
		return nil, err
	}
	seen := map[replica.BaseFile]bool{}
	for _, b := range bases {
		if err := c.Check(ctx, b, seen, broken); err != nil {
			return nil, err
		}
	}
	v.Bases, v.Objects = len(bases), len(seen)
	if v.Log, err = c.Whole(ctx, bases, broken); err != nil {
		return nil, err // what was not read may be broken
	}
	return v, nil
}

func (v *verified) String() string {
	text := fmt.Sprintf("%s with %s\nlog: %s", countOf(v.Bases, "base"), countOf(v.Objects, "file"), groupsText(v.Log))
	if len(v.Broken) == 0 {
		return text + "\nnothing is broken"
	}
	return text + "\nbroken: " + strings.Join(v.Broken, "\nbroken: ")
}
