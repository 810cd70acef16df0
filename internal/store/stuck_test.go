package store

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// blocked holds up the reads of one file from where it is armed.
type blocked struct {
	mu   sync.Mutex
	path string
	met  chan struct{} // closed with the first of them
	free chan struct{}
}

func (b *blocked) String() string { return "blocked" }

func (b *blocked) MaybeError(o errorfs.Op) error {
	b.mu.Lock()
	hit := b.path != "" && strings.HasSuffix(o.Path, b.path) && o.Kind == errorfs.OpFileReadAt
	b.mu.Unlock()
	if !hit {
		return nil
	}
	select {
	case <-b.met:
	default:
		close(b.met)
	}
	<-b.free
	return nil
}

// A disk may try for half a minute to read one place. Nobody else waits for that: neither who
// takes other records out, nor, behind that, who reads others.
func TestAReadThatDoesNotReturnHoldsUpNoOther(t *testing.T) {
	b := &blocked{met: make(chan struct{}), free: make(chan struct{})}
	s := openStore(t, Options{FS: errorfs.Wrap(vfs.NewMem(), b), Dir: "/data", CacheBytes: 1, ChunkCacheBytes: 1})
	defer s.Close()
	for segment := range uint32(3) {
		sealRecords(t, s, segment, uint64(segment)*10+1, 10, 1000)
		if c, err := s.Read(segment, 1, uint64(segment)*10+1); c == nil || err != nil { // opens the table
			t.Fatal(c, err)
		}
	}
	b.mu.Lock()
	b.path = tableOf(t, s, 0)
	b.mu.Unlock()
	var stuck sync.WaitGroup
	stuck.Go(func() {
		if c, err := s.Read(0, 1, 1); c == nil || err != nil {
			t.Errorf("the read that was held up: %v, %v", c, err)
		}
	})
	<-b.met
	others := make(chan error)
	go func() {
		_, err := s.Rewrite(context.Background(), 1, everyNth(2), nil)
		others <- err
	}()
	go func() {
		_, err := s.Read(2, 1, 21)
		others <- err
	}()
	release := sync.OnceFunc(func() { close(b.free) })
	late := time.After(time.Minute)
	for range 2 {
		select {
		case err := <-others:
			if err != nil {
				t.Error(err)
			}
		case <-late:
			t.Error("others wait for a read that is held up")
			release()
			<-others
		}
	}
	release()
	stuck.Wait()
}

// Whoever reads while a segment is rewritten finds what was there before or what is there
// afterwards.
func TestReadsDuringARewriteMissNothing(t *testing.T) {
	s := openStore(t, Options{FS: vfs.NewMem(), Dir: "/data", CacheBytes: 1, ChunkCacheBytes: 1})
	defer s.Close()
	sealRecords(t, s, 0, 1, 100, 1000)
	ended := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if c, err := s.Read(0, 1, 50); err != nil || c == nil || c.First > 50 || c.Last < 50 {
					t.Errorf("number 50: %+v, %v", c, err)
					return
				}
			}
		})
	}
	for range 50 {
		if _, err := s.Rewrite(context.Background(), 0, everyNth(1), nil); err != nil {
			t.Error(err)
			break
		}
	}
	close(ended)
	readers.Wait()
}
