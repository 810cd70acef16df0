// Package capture keeps what a program logs or prints, for tests that read it while it is written.
package capture

import (
	"bytes"
	"strings"
	"sync"
)

// Buffer holds everything that was written to it. Its zero value is empty and ready; its
// methods may be called at once.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends p. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Lines returns the lines that hold part, with their ends; all of them if part is empty.
func (b *Buffer) Lines(part string) (found []string) {
	for line := range strings.Lines(b.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}
