package engine

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
)

// image is the content of every file of a data directory, by path.
type image map[string][]byte

func imageOf(t *testing.T, fs vfs.FS, dir string) image {
	t.Helper()
	im := image{}
	var walk func(dir string)
	walk = func(dir string) {
		names, err := fs.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			p := path.Join(dir, n)
			info, err := fs.Stat(p)
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() {
				walk(p)
				continue
			}
			if im[p], err = readFile(fs, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	walk(dir)
	return im
}

// with returns a file system with the content of the image, one file changed.
func (im image) with(file string, content []byte) (vfs.FS, error) {
	fs := vfs.NewMem()
	for p, b := range im {
		if p == file {
			b = content
		}
		if err := fs.MkdirAll(path.Dir(p), 0o700); err != nil {
			return nil, err
		}
		f, err := fs.Create(p, vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, err
		}
		_, err = f.Write(bytes.Clone(b)) // a write under -race spoils its argument
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	return fs, nil
}

func rotOptions(fs vfs.FS) Options {
	opt := optionsOn(fs, "a")
	opt.SegmentBytes = 16 << 10
	return opt
}

// rotting makes a small directory, a part of it in the store and a part in the
// log, and returns it with its answers.
func rotting(t *testing.T) (image, map[string]*answer) {
	t.Helper()
	fs := vfs.NewMem()
	e, err := Open(bg, rotOptions(fs))
	if err != nil {
		t.Fatal(err)
	}
	put(t, e, "log", configOf(api.Fsync))
	put(t, e, "capped", configOf(api.Disk, func(c *api.Config) { c.CapRecords = 4 }))
	put(t, e, "jobs", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable = true }))
	for part := range 2 {
		for i := range 8 {
			data := fmt.Sprintf(`"%d %d %s"`, part, i, strings.Repeat("x", 40*i))
			write(t, e, "log", data, "1")
			write(t, e, "capped", data)
			write(t, e, "jobs", data)
		}
		if _, err := e.DeleteRecords(bg, "log", &api.DeleteRequest{HasBefore: true, BeforeSeq: uint64(2 + 3*part)}); err != nil {
			t.Fatal(err)
		}
		jobs := claimJobs(t, e, "jobs", "w", 3)
		ack(t, e, "jobs", "w", jobs[0].Seq)
		if part == 0 {
			sealNow(t, e)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	im := imageOf(t, fs, "/data")
	answers, err := im.answers("", nil)
	if err != nil {
		t.Fatal(err)
	}
	return im, answers
}

// answers opens the image with one file changed and asks for everything. A
// topic that answers with an error is in the map, as nil.
func (im image) answers(file string, content []byte) (map[string]*answer, error) {
	fs, err := im.with(file, content)
	if err != nil {
		return nil, err
	}
	e, err := Open(bg, rotOptions(fs))
	if err != nil {
		return nil, &refusal{err, fs}
	}
	defer e.Close()
	all := map[string]*answer{}
	for _, t := range e.Topics("", "", 1000, false, nil).Topics {
		all[t.Topic], err = ask(e, t.Topic)
		if err != nil && !api.IsCode(errors.Unwrap(err), api.CodeInternal) {
			return nil, fmt.Errorf("topic %s: %w", t.Topic, err)
		}
	}
	return all, nil
}

// refusal is the error of a start.
type refusal struct {
	error
	fs vfs.FS
}

// rot is one damage of one file.
type rot struct {
	file, what string
	content    []byte
}

// check says what a damaged directory did wrong: a start that fails names the
// file, and whatever starts alters nothing and keeps silent about nothing.
func (r rot) check(im image, want map[string]*answer) (refused bool, err error) {
	got, err := im.answers(r.file, r.content)
	var no *refusal
	if errors.As(err, &no) {
		return true, r.refused(im, no)
	}
	if err != nil {
		return false, err
	}
	for name, w := range want {
		g, ok := got[name]
		if !ok {
			return false, fmt.Errorf("topic %s is missing", name)
		}
		if g == nil {
			continue // it answers with an error
		}
		if g.state.Config != w.state.Config {
			return false, fmt.Errorf("the configuration of topic %s is %+v", name, g.state.Config)
		}
		for n, data := range w.records {
			if at, ok := g.records[n]; ok && at != data {
				return false, fmt.Errorf("record %d of topic %s is %q, want %q", n, name, at, data)
			} else if !ok && !g.gaps[n] {
				return false, fmt.Errorf("record %d of topic %s is missing", n, name)
			}
		}
		for n := range g.records {
			if _, ok := w.records[n]; !ok {
				return false, fmt.Errorf("record %d of topic %s came back", n, name)
			}
		}
	}
	return false, nil
}

// refused checks a start that failed: its error names the file, and no other
// file of records has suffered.
func (r rot) refused(im image, no *refusal) error {
	// Of the store its folder is enough: it is restored as a whole.
	if said := no.Error(); !strings.Contains(strings.ToUpper(said), strings.ToUpper(path.Base(r.file))) && !strings.Contains(said, "/data/kv") {
		return fmt.Errorf("the refusal does not name the file: %w", no)
	}
	for p, b := range im {
		if ext := path.Ext(p); p == r.file || ext != ".sst" && ext != ".wal" {
			continue
		}
		if left, err := readFile(no.fs, p); err != nil || !bytes.Equal(left, b) {
			return fmt.Errorf("the refused start changed %s (%v): %w", p, err, no)
		}
	}
	return nil
}

// rots lists the damages of one file: a bit at every stride-th offset, lost
// sectors, lost ends.
func rots(file string, b []byte, stride int) (all []rot) {
	used := len(bytes.TrimRight(b, "\x00"))
	for i := 0; i < min(used+8, len(b)); i += stride {
		c := bytes.Clone(b)
		c[i] ^= 1 << (i / stride % 8)
		all = append(all, rot{file, fmt.Sprintf("bit %d of byte %d is flipped", i/stride%8, i), c})
	}
	for i := 0; i < used; i += 512 {
		c := bytes.Clone(b)
		clear(c[i:min(i+512, len(c))])
		all = append(all, rot{file, fmt.Sprintf("the sector at %d is zero", i), c})
	}
	for _, n := range []int{0, 1, used / 4, used / 2, used * 3 / 4, used - 1, len(b) - 1} {
		if n >= 0 && n < len(b) {
			all = append(all, rot{file, fmt.Sprintf("cut to %d bytes", n), b[:n]})
		}
	}
	return all
}

// Whatever one place of the log or the store says after it went bad, the directory is
// refused by the file's name, or nothing acknowledged is altered or missing
// without an error or a tombstone.
func TestRotIsNeverSilent(t *testing.T) {
	im, want := rotting(t)
	work := make(chan rot, 16)
	var n, refused, failed atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for r := range work {
				no, err := r.check(im, want)
				n.Add(1)
				if no {
					refused.Add(1)
				}
				if err != nil && failed.Add(1) <= 10 {
					t.Errorf("%s: %s: %v", r.file, r.what, err)
				}
			}
		})
	}
	for file, b := range im {
		if !strings.HasPrefix(file, "/data/kv/") && !strings.HasPrefix(file, "/data/wal/") || path.Base(file) == "LOCK" {
			continue // only these two hold what was acknowledged
		}
		stride := sweepShare * (1 + len(bytes.TrimRight(b, "\x00"))/1500)
		for _, r := range rots(file, b, stride) {
			work <- r
		}
	}
	close(work)
	wg.Wait()
	t.Logf("%d damages, %d refused, %d wrong", n.Load(), refused.Load(), failed.Load())
	if refused.Load() == 0 || refused.Load() == n.Load() {
		t.Error("the damages did not meet what they should")
	}
}
