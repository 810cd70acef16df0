package queue

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// BenchmarkCodec makes a record of a message, and a message of the record.
func BenchmarkCodec(b *testing.B) {
	q := &Backend{opt: Options{Limits: api.DefaultLimits()}}
	for name, m := range map[string]backend.Message{
		"text":    {Data: []byte(strings.Repeat("x", 256))},
		"JSON":    {Data: []byte(`{"order":12345,"customer":"acme","total":"12.50"}`)},
		"headers": {Data: []byte(`{"order":12345,"customer":"acme","total":"12.50"}`), Headers: map[string]string{"traceparent": "00-1"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := q.encode(&m)
				if err != nil {
					b.Fatal(err)
				}
				if data, _ := decode(&r); len(data) != len(m.Data) {
					b.Fatalf("%q became %q", m.Data, data)
				}
			}
		})
	}
}

// What goes as base64 is not written as a text first, which takes six times its room.
func TestWhatIsShorterInBase64IsNotEscapedBefore(t *testing.T) {
	data := make([]byte, 1<<20)
	if n := testing.AllocsPerRun(1, func() {
		if encodeText(data) != nil {
			t.Error("control characters are a text")
		}
	}); n > 0 {
		t.Errorf("%v allocations to find out", n)
	}
}

// FuzzPayload says that every payload comes back as it was, and is no longer on the way than in
// base64 or as a text of ordinary characters.
func FuzzPayload(f *testing.F) {
	q := &Backend{opt: Options{Limits: api.DefaultLimits()}}
	for _, seed := range []string{
		"", "plain", `"`, `"a"`, `{"a":1}`, `{"a": 1}`, "{\"a\":1}\n", "1", "01", "true\n", "\n", "\x00\x01", "é\\", "\xff", "tab\tand \"quotes\"",
		strings.Repeat("x", 40) + "\x01", strings.Repeat("x", 40) + "\x01\x02\x03\x04",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := q.encode(&backend.Message{Data: bytes.Clone(data)})
		if errors.Is(err, backend.ErrTooLarge) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if most := 2 + max(2*len(data), (len(data)+2)/3*4); len(r.Data) > max(most, len("null")) {
			t.Fatalf("%q takes %d bytes as %s", data, len(r.Data), r.Data)
		}
		if got, headers := decode(&r); !bytes.Equal(got, data) || len(headers) > 0 {
			t.Fatalf("%q came back as %q, %v by way of %s", data, got, headers, r.Data)
		}
	})
}
