package audit_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/audit"
	"github.com/weirmq/weir/internal/replica/dir"
	"github.com/weirmq/weir/internal/replica/slots"
)

// build makes a copy with a base and a log of five groups in a directory.
func build(t *testing.T, root string) audit.Copy {
	t.Helper()
	c := open(t, root)
	lead, err := c.Log.Lead(t.Context(), "node")
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(5) {
		done := make(chan error, 1)
		g := replica.Group{Term: lead.Term, Last: 10 * (i + 1), TimeMS: time.Now().UnixMilli(), Pieces: []replica.Piece{{Segment: 1, Bytes: []byte("operations")}}}
		if err := c.Log.Append(t.Context(), g.Encode(nil), func(_ uint64, err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.Sum256([]byte("a table"))
	b := replica.Base{Format: 1, LSN: 7, After: lead.End, Term: lead.Term, Taken: time.Now(),
		Files: []replica.BaseFile{{Name: "store/1.sst", Object: "kv/1", Size: 7, SHA256: hex.EncodeToString(sum[:])}}}
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"kv/1": "a table", replica.BaseName(b.After): string(text)} {
		if err := c.Files.Put(t.Context(), name, int64(len(content)), strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func open(t *testing.T, root string) audit.Copy {
	t.Helper()
	store, err := dir.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	log := slots.New(store, slots.Options{})
	t.Cleanup(func() { log.Close() })
	return audit.Copy{Log: log, Files: store}
}

// verify returns what is broken.
func verify(t *testing.T, c audit.Copy) (all []string) {
	t.Helper()
	broken := func(err error) { all = append(all, err.Error()) }
	bases, err := c.Bases(t.Context(), broken)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bases {
		if err := c.Check(t.Context(), b, map[replica.BaseFile]bool{}, broken); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Whole(t.Context(), bases, broken); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestWholeCopyHasNothingBroken(t *testing.T) {
	c := build(t, t.TempDir())
	if got := verify(t, c); len(got) > 0 {
		t.Errorf("broken: %q", got)
	}
	var read bytes.Buffer
	c.Read = &read
	g, err := c.Entries(t.Context(), 0)
	if err != nil || g.Bytes != int64(read.Len()) || g.Bytes == 0 || g.Entries != 6 || g.LSN != 50 || g.First != 1 || g.Last != 9 {
		t.Errorf("the log is %+v, %v", g, err)
	}
	bases, err := c.Bases(t.Context(), func(err error) { t.Error(err) })
	if err != nil || len(bases) != 1 || bases[0].LSN != 7 || bases[0].Bytes != 7 {
		t.Errorf("bases %+v, %v", bases, err)
	}
	if _, err := c.Log.Lead(t.Context(), "next"); err != nil {
		t.Fatal(err)
	}
	terms, err := c.Terms(t.Context())
	if err != nil || len(terms) != 2 || terms[0].Node != "node" || terms[1].Node != "next" {
		t.Errorf("terms %+v, %v", terms, err)
	}
}

// A copy has a log before it has a base.
func TestLogWithoutABaseIsRead(t *testing.T) {
	c := build(t, t.TempDir())
	if err := c.Files.Delete(t.Context(), replica.BaseName(1)); err != nil {
		t.Fatal(err)
	}
	if g, err := c.Whole(t.Context(), nil, func(err error) { t.Error(err) }); err != nil || g.Entries != 6 || g.LSN != 50 {
		t.Errorf("the log is %+v, %v", g, err)
	}
}

// Who gives up while it is read has not been told that it is whole.
func TestReadThatIsGivenUpIsAnError(t *testing.T) {
	c := build(t, t.TempDir())
	bases, err := c.Bases(t.Context(), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if g, err := c.Whole(ctx, bases, func(err error) { t.Errorf("broken: %v", err) }); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestEveryBrokenObjectIsNamed(t *testing.T) {
	entry := "log/00000000000000000007"
	for name, c := range map[string]struct {
		object, want string
		change       func(content []byte) []byte // nil: it is removed
	}{
		"a file of a base is gone":       {"kv/1", "kv/1", nil},
		"a file of a base is cut":        {"kv/1", "has 3 bytes, the base says 7", func(b []byte) []byte { return b[:3] }},
		"a file of a base has a flip":    {"kv/1", "kv/1 (store/1.sst) has another sha256", flip},
		"the list of a base is torn":     {"base/00000000000000000001.json", "base/00000000000000000001.json is not the list", func(b []byte) []byte { return b[:20] }},
		"an entry has a flip":            {entry, entry + " has a wrong checksum", flip},
		"an entry is cut":                {entry, entry, func(b []byte) []byte { return b[:len(b)-9] }},
		"an entry is empty":              {entry, entry + " does not begin as an entry", func([]byte) []byte { return nil }},
		"the first entry behind is gone": {"log/00000000000000000005", "log/00000000000000000005 is missing", nil},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			build(t, root)
			at := filepath.Join(root, c.object)
			content, err := os.ReadFile(at)
			if err != nil {
				t.Fatal(err)
			}
			if c.change == nil {
				err = os.Remove(at)
			} else {
				err = os.WriteFile(at, c.change(content), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := verify(t, open(t, root)); len(got) != 1 || !strings.Contains(got[0], c.want) {
				t.Errorf("broken: %q, want %q", got, c.want)
			}
		})
	}
}

// A base replaces what is broken in front of it, so what counts is whether the log is whole behind it.
func TestWhatIsBrokenBehindTheNextBaseIsNamedToo(t *testing.T) {
	root := t.TempDir()
	c := build(t, root)
	text := `{"format":1,"lsn":30,"after":7,"term":1,"files":[]}`
	if err := c.Files.Put(t.Context(), replica.BaseName(7), int64(len(text)), strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	broken := []string{"log/00000000000000000006", "log/00000000000000000009"}
	for i, name := range broken {
		at := filepath.Join(root, name)
		content, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, flip(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got := verify(t, open(t, root))
		if len(got) != i+1 || !strings.Contains(got[i], name) {
			t.Errorf("broken: %q, want %q", got, broken[:i+1])
		}
	}
	c = open(t, root)
	bases, err := c.Bases(t.Context(), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	if g, err := c.Whole(t.Context(), bases, func(error) {}); err != nil || g.Entries != 3 || g.First != 1 || g.Last != 8 || g.LSN != 40 {
		t.Errorf("what is whole of the log is %+v, %v", g, err)
	}
}

// once is files whose answer for each name is another one when it is asked for first.
type once struct {
	replica.Files
	asked map[string]bool
	flaw  func(io.Reader) io.Reader
}

func (o once) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	in, err := o.Files.Get(ctx, name)
	if err != nil || o.asked[name] {
		return in, err
	}
	o.asked[name] = true
	return struct {
		io.Reader
		io.Closer
	}{o.flaw(in), in}, nil
}

// What verify calls broken is removed from the store by whoever reads its advice, so one bad answer
// is not enough.
func TestOneBadAnswerIsNotABrokenObject(t *testing.T) {
	c := build(t, t.TempDir())
	for what, flaw := range map[string]func(io.Reader) io.Reader{
		"cut": func(in io.Reader) io.Reader { return io.LimitReader(in, 3) },
		"torn": func(in io.Reader) io.Reader {
			return io.MultiReader(io.LimitReader(in, 3), iotest.ErrReader(io.ErrUnexpectedEOF))
		},
	} {
		bad := audit.Copy{Log: c.Log, Files: once{c.Files, map[string]bool{}, flaw}}
		if got := verify(t, bad); len(got) > 0 {
			t.Errorf("%s: broken: %q", what, got)
		}
	}
	away := audit.Copy{Log: c.Log, Files: deaf{c.Files}}
	if _, err := away.Bases(t.Context(), func(err error) { t.Errorf("a store that does not answer: broken: %v", err) }); err == nil {
		t.Error("nobody is told of a store that does not answer")
	}
}

// counted counts what is asked for and not closed. What is read of one name breaks off each time.
type counted struct {
	replica.Files
	torn        string
	asked, open *int
}

func (c counted) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	*c.asked++
	in, err := c.Files.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	*c.open++
	var text io.Reader = in
	if name == c.torn {
		text = io.MultiReader(io.LimitReader(in, 3), iotest.ErrReader(io.ErrUnexpectedEOF))
	}
	return struct {
		io.Reader
		io.Closer
	}{text, closer(func() error { *c.open--; return in.Close() })}, nil
}

type closer func() error

func (c closer) Close() error { return c() }

// What cannot be read is neither broken nor whole. An object that can is read once.
func TestObjectThatCannotBeReadIsAnError(t *testing.T) {
	c := build(t, t.TempDir())
	for _, torn := range []string{"", "kv/1", replica.BaseName(1)} {
		var asked, open int
		c := audit.Copy{Log: c.Log, Files: counted{c.Files, torn, &asked, &open}}
		told := func(err error) { t.Errorf("%s: broken: %v", torn, err) }
		bases, err := c.Bases(t.Context(), told)
		for _, b := range bases {
			err = errors.Join(err, c.Check(t.Context(), b, map[replica.BaseFile]bool{}, told))
		}
		if torn == "" && (err != nil || asked != 2) {
			t.Errorf("two objects are asked for %d times: %v", asked, err)
		}
		if torn != "" && (!errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), torn)) {
			t.Errorf("%s breaks off each time: %v", torn, err)
		}
		if open != 0 {
			t.Errorf("%s: %d stay open", torn, open)
		}
	}
}

// deaf is a store that answers no Get.
type deaf struct{ replica.Files }

func (deaf) Get(context.Context, string) (io.ReadCloser, error) { return nil, io.ErrUnexpectedEOF }

func flip(b []byte) []byte {
	b[len(b)/2] ^= 1
	return b
}
