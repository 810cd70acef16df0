package slots_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/slots"
	"github.com/weirmq/weir/tests/bubble"
)

// entryOf is the object of an entry, whole, of any term.
func entryOf(term, pos uint64, data string) []byte {
	b := binary.LittleEndian.AppendUint64([]byte("weirlog1"), term)
	b = append(append(binary.LittleEndian.AppendUint64(b, pos), 0), data...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// What does not belong in a copy is named, by whoever reads it and by whoever wants to lead: skipped, it would hide
// something, and taken for a place, all would begin there.
func TestWhatDoesNotBelongInACopyIsNamed(t *testing.T) {
	entry := func(pos uint64) string { return fmt.Sprintf("log/%020d", pos) }
	for name, c := range map[string]struct {
		data  []byte
		reads bool // whoever reads comes to it
	}{
		"term/readme":                  {},
		"term/0000000000":              {},
		"trim/readme":                  {reads: true},
		"trim/00000000000000000003":    {reads: true},
		"FORMAT":                       {data: []byte("<html>")},
		entry(8):                       {data: entryOf(2, 8, "of a term that has not begun"), reads: true},
		entry(8) + " of another place": {data: entryOf(1, 9, "x"), reads: true},
		entry(8) + " that is cut off":  {data: entryOf(1, 8, "x")[:20], reads: true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := &memory{all: map[string][]byte{}}
			leads(t, objects) // up to position 7
			object, _, _ := strings.Cut(name, " ")
			objects.all[object] = c.data
			log := slots.New(objects, slots.Options{})
			defer log.Close()
			if _, err := log.Lead(t.Context(), "b"); !errors.Is(err, replica.ErrDamaged) || !strings.Contains(err.Error(), object) {
				t.Errorf("who wants to lead is told %v", err)
			}
			var err error
			for after := uint64(0); err == nil; {
				var e replica.Entry
				e, err = log.Read(t.Context(), after)
				after = e.Pos
			}
			if told := errors.Is(err, replica.ErrDamaged) && strings.Contains(err.Error(), object); told != c.reads {
				t.Errorf("who reads is told %v", err)
			}
		})
	}
}

// unsure is a store of which one answer to a creation is lost, and the next one about that object spoiled.
type unsure struct {
	*memory
	name    string // of the object
	created bool
	asked   bool
}

func (u *unsure) Create(ctx context.Context, name string, data []byte) error {
	err := u.memory.Create(ctx, name, data)
	if name == u.name && !u.created {
		u.created = true
		return errors.New("the answer is lost")
	}
	return err
}

func (u *unsure) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if name == u.name && u.created && !u.asked {
		u.asked = true
		return io.NopCloser(strings.NewReader("spoiled")), nil
	}
	return u.memory.Get(ctx, name)
}

// What one answer says is not yet that another server leads, which ends a leader for good.
func TestASpoiledAnswerAboutAnEntryEndsNoLeader(t *testing.T) {
	for what, pos := range map[string]uint64{"the one that begins its term": 1, "a later one": 6} {
		t.Run(what, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				store := &unsure{memory: &memory{all: map[string][]byte{}}, name: fmt.Sprintf("log/%020d", pos)}
				log := slots.New(store, slots.Options{})
				defer log.Close()
				if _, err := log.Lead(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
				if _, err := add(t.Context(), log, "1", "2", "3"); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
