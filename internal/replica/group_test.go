package replica

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

func TestGroupIsReadAsItWasWritten(t *testing.T) {
	for _, want := range []Group{
		{Term: 1, Last: 7, TimeMS: 1700000000000},
		{Term: 1 << 40, Last: 1 << 50, Pieces: []Piece{
			{Segment: 3, Offset: 0, Bytes: []byte("header")}, {Segment: 4, Offset: 1 << 33, Bytes: bytes.Repeat([]byte{0, 255}, 5000)}, {Segment: 5, Bytes: []byte{}},
		}},
	} {
		b := want.Encode([]byte("in front"))[len("in front"):]
		got, err := DecodeGroup(b)
		if err != nil || !reflect.DeepEqual(got, want) || len(b) != want.Size() {
			t.Errorf("%+v came back as %+v, %v; %d bytes, Size says %d", want, got, err, len(b), want.Size())
		}
	}
}

func TestDamagedGroupIsRefused(t *testing.T) {
	g := Group{Term: 2, Last: 9, Pieces: []Piece{{Segment: 1, Offset: 64, Bytes: []byte("some bytes of the log")}}}
	whole := g.Encode(nil)
	for i := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[i] ^= 1 << bit
			if _, err := DecodeGroup(b); !errors.Is(err, ErrDamaged) {
				t.Errorf("bit %d of byte %d flipped: %v", bit, i, err)
			}
		}
		if _, err := DecodeGroup(whole[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := DecodeGroup(append(whole, 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte behind it: %v", err)
	}
}
