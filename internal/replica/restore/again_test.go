package restore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/replica"
)

// tearing is files whose answers are torn when they are asked for the first time.
type tearing struct {
	replica.Files
	mu    sync.Mutex
	asked map[string]bool
}

func (f *tearing) first(what string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	again := f.asked[what]
	f.asked[what] = true
	return !again
}

func (f *tearing) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	in, err := f.Files.Get(ctx, name)
	if err != nil || !f.first(name) {
		return in, err
	}
	defer in.Close()
	b, err := io.ReadAll(in)
	return io.NopCloser(io.MultiReader(bytes.NewReader(b[:len(b)/2]), broken{})), err
}

func (f *tearing) List(ctx context.Context, prefix string) ([]replica.File, error) {
	if f.first("list " + prefix) {
		return nil, io.ErrUnexpectedEOF
	}
	return f.Files.List(ctx, prefix)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestTornAnswersDoNotEndATakeover(t *testing.T) {
	l := shipped(t)
	_, want := l.opened(l.directory(vfs.NewMem(), "/whole"))
	d := l.directory(vfs.NewMem(), "/torn")
	d.Copy.Files = &tearing{Files: d.Copy.Files, asked: map[string]bool{}}
	if _, got := l.opened(d); got != want {
		t.Errorf("from torn answers came\n%s\nwant\n%s", got, want)
	}
}

func TestARefusalIsToldAtOnce(t *testing.T) {
	calls := 0
	err := again(t.Context(), nil, func() error { calls++; return storeError{replica.ErrRefused} })
	if calls != 1 || !errors.Is(err, replica.ErrRefused) {
		t.Errorf("%d calls, %v", calls, err)
	}
}
