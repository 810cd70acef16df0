package api

import (
	"strings"
	"testing"
)

// writeBody returns a write of n records whose data is one string of size bytes.
func writeBody(n, size int) []byte {
	record := `{"data":"` + strings.Repeat("x", size-2) + `"}`
	return []byte(`{"records":[` + strings.TrimSuffix(strings.Repeat(record+",", n), ",") + `]}`)
}

func benchmarkDecodeWrite(b *testing.B, records int) {
	body := writeBody(records, 256)
	lim := DefaultLimits()
	var w WriteRequest
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := DecodeWrite(body, &lim, &w, nil); err != nil {
			b.Fatal(err)
		}
		if err := CheckWrite(&w, &lim); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeWrite1x256(b *testing.B)   { benchmarkDecodeWrite(b, 1) }
func BenchmarkDecodeWrite100x256(b *testing.B) { benchmarkDecodeWrite(b, 100) }

func BenchmarkValidate(b *testing.B) {
	bodies := map[string][]byte{
		"100x256": writeBody(100, 256),
		"objects": []byte(`{"records":[` + strings.TrimSuffix(strings.Repeat(
			`{"data":{"user":"alice","n":1234,"ok":true,"tags":["a","b"],"price":12.5,"text":"some words in a row"}},`, 200), ",") + `]}`),
		"cyrillic": []byte(`{"records":[{"data":"` + strings.Repeat("поток ", 2000) + `"}]}`),
	}
	for name, body := range bodies {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := Validate(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAppendRecord1000 encodes 1000 records of 256 B per operation.
func BenchmarkAppendRecord1000(b *testing.B) {
	r := Record{Seq: 123_456, TS: 1795246627404, Data: []byte(`"` + strings.Repeat("x", 254) + `"`)}
	dst := make([]byte, 0, 400<<10)
	var times Times
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendDiffHead(dst[:0], "topic")
		for i := range 1000 {
			r.Seq = 123_456 + uint64(i)
			dst = AppendDiffRecord(dst, &r, &withMeta, &times)
		}
	}
	b.SetBytes(int64(len(dst)))
}
