package replicatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing/iotest"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

var files = []check{
	{"files come back", filesComeBack},
	{"a file that is not there is not found", notFound},
	{"a file is replaced as a whole", replaced},
	{"a torn upload leaves what was there", torn},
	{"files are listed by name", listed},
	{"deleting twice does no harm", deleteTwice},
	{"files do not disturb the log", besideTheLog},
}

// shelf is files that a case uses.
type shelf struct {
	replica.Files
	r *run
}

func (r *run) shelf() *shelf {
	r.Helper()
	f := r.h.Files(r, r.name)
	r.Cleanup(func() { f.Close() })
	return &shelf{f, r}
}

func (s *shelf) put(name, content string) {
	s.r.Helper()
	if err := s.Put(s.r.ctx, name, int64(len(content)), strings.NewReader(content)); err != nil {
		s.r.Fatalf("Put %s: %v", name, err)
	}
}

func (s *shelf) content(name string) string {
	s.r.Helper()
	in, err := s.Get(s.r.ctx, name)
	if err != nil {
		s.r.Errorf("Get %s: %v", name, err)
		return ""
	}
	defer in.Close()
	b, err := io.ReadAll(in)
	if err != nil {
		s.r.Errorf("reading %s: %v", name, err)
	}
	return string(b)
}

func (s *shelf) names(prefix string) (names []string) {
	s.r.Helper()
	all, err := s.List(s.r.ctx, prefix)
	if err != nil {
		s.r.Fatalf("List %q: %v", prefix, err)
	}
	for _, f := range all {
		names = append(names, fmt.Sprintf("%s:%d", f.Name, f.Size))
	}
	return names
}

func filesComeBack(r *run) {
	s := r.shelf()
	for i, size := range []int{0, 1, 70_000, r.h.Large / 8} {
		name := fmt.Sprintf("kv/deep/%d.sst", i)
		content := strings.Repeat("0123456789\x00\xff", size/12+1)[:size]
		s.put(name, content)
		if got := r.shelf().content(name); got != content {
			r.Errorf("%d bytes came back as %d", size, len(got))
		}
	}
}

func notFound(r *run) {
	s := r.shelf()
	s.put("kv/there", "x")
	for _, name := range []string{"kv/ther", "kv/there2", "kv2"} {
		if in, err := s.Get(r.ctx, name); !errors.Is(err, replica.ErrNotFound) {
			r.Errorf("Get %s returns %v, %v, want ErrNotFound", name, in, err)
		}
	}
}

func replaced(r *run) {
	s := r.shelf()
	old, young := strings.Repeat("old", 100_000), strings.Repeat("young", 100_000)
	s.put("base/1.json", old)
	var all sync.WaitGroup
	all.Go(func() {
		for i := range 10 {
			s.put("base/1.json", []string{young, old}[i%2])
		}
		s.put("base/1.json", young)
	})
	for range 10 {
		if got := s.content("base/1.json"); got != old && got != young {
			r.Errorf("read %d bytes that nobody wrote", len(got))
		}
	}
	all.Wait()
	if got := s.content("base/1.json"); got != young {
		r.Errorf("read %d bytes at the end, want the last ones", len(got))
	}
}

func torn(r *run) {
	s := r.shelf()
	s.put("base/1.json", "as it was")
	failing := errors.New("the disk is broken")
	ended, cancel := context.WithCancel(r.ctx)
	cancel()
	for what, put := range map[string]func(name string) error{
		"fails": func(name string) error {
			return s.Put(r.ctx, name, 100, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(failing)))
		},
		"fails at its end": func(name string) error {
			return s.Put(r.ctx, name, 4, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(failing)))
		},
		"is too short": func(name string) error { return s.Put(r.ctx, name, 100, strings.NewReader("half")) },
		"is too long":  func(name string) error { return s.Put(r.ctx, name, 2, bytes.NewReader([]byte("half"))) },
		"is given up":  func(name string) error { return s.Put(ended, name, 4, strings.NewReader("half")) },
	} {
		for _, name := range []string{"base/1.json", "base/new.json"} {
			if err := put(name); err == nil {
				r.Errorf("content that %s is put without an error", what)
			}
		}
		if got := s.names("base/"); !slices.Equal(got, []string{"base/1.json:9"}) {
			r.Errorf("after content that %s there is %v", what, got)
		}
	}
	if got := s.content("base/1.json"); got != "as it was" {
		r.Errorf("it holds %q", got)
	}
}

func listed(r *run) {
	s := r.shelf()
	var want []string
	for _, name := range []string{"base/2.json", "base/10.json", "kv/b", "kv/a/1", "kv/a-1", "base/1.json"} {
		s.put(name, "content")
		want = append(want, name+":7")
	}
	slices.Sort(want)
	if got := s.names("base/"); !slices.Equal(got, want[:3]) {
		r.Errorf("base/: %v, want %v", got, want[:3])
	}
	if got := s.names("kv/a"); !slices.Equal(got, want[3:5]) {
		r.Errorf("kv/a: %v, want %v", got, want[3:5])
	}
	if got := s.names("nothing/"); len(got) > 0 {
		r.Errorf("nothing/: %v", got)
	}
	all, err := s.List(r.ctx, "base/1.json")
	if err != nil || len(all) != 1 || time.Since(all[0].Changed).Abs() > time.Hour {
		r.Errorf("List returns %+v, %v", all, err)
	}
}

func deleteTwice(r *run) {
	s := r.shelf()
	s.put("kv/a", "a")
	s.put("kv/b", "b")
	for range 2 {
		if err := s.Delete(r.ctx, "kv/a"); err != nil {
			r.Errorf("Delete: %v", err)
		}
	}
	if got := s.names("kv/"); !slices.Equal(got, []string{"kv/b:1"}) {
		r.Errorf("there is %v", got)
	}
}

func besideTheLog(r *run) {
	log, s := r.open(), r.shelf()
	log.lead()
	log.must("1")
	s.put("base/1.json", "base")
	log.must("2")
	r.open().lead()
	r.expect("1", "2")
	if got := s.names("base/"); !slices.Equal(got, []string{"base/1.json:4"}) {
		r.Errorf("there is %v", got)
	}
}
