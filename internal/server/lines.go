package server

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// lines logs one kind of event, at most burst of them a second. Further ones are
// counted, and the count is logged once the second is over.
type lines struct {
	log   *slog.Logger
	level slog.Level
	text  string
	burst int

	mu    sync.Mutex
	told  int         // in this second
	left  int64       // not logged yet
	last  []any       // of these, the last one's attributes
	timer *time.Timer // nil between bursts
}

func (l *lines) add(attrs ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Second, l.tick)
	}
	if l.told < l.burst {
		l.told++
		l.log.Log(context.Background(), l.level, l.text, attrs...)
		return
	}
	l.left++
	l.last = attrs
}

func (l *lines) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == nil {
		return // closed
	}
	if l.told = 0; l.left == 0 {
		l.timer = nil
		return
	}
	l.tellLocked()
	l.told = 1
	l.timer.Reset(time.Second)
}

// tellLocked logs how many were left out, with the attributes of the last one.
func (l *lines) tellLocked() {
	l.log.Log(context.Background(), l.level, l.text, append([]any{"count", l.left}, l.last...)...)
	l.left, l.last = 0, nil
}

// close logs what is left.
func (l *lines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.left > 0 {
		l.tellLocked()
	}
}

// Write takes a line of http.Server's own log.
func (l *lines) Write(p []byte) (int, error) {
	l.add("error", strings.TrimSpace(string(p)))
	return len(p), nil
}
