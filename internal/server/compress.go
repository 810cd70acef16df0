package server

import (
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// gzipFrom is the size from which an answer is worth compressing.
const gzipFrom = 1 << 10

var (
	gzipReaders sync.Pool
	gzipWriters = sync.Pool{New: func() any {
		zw, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
		if err != nil {
			panic("server: " + err.Error()) // the level is a constant
		}
		return zw
	}}
)

// openGzip starts decompressing src. The caller bounds src and what it reads.
func openGzip(src io.Reader) (*gzip.Reader, error) {
	zr, ok := gzipReaders.Get().(*gzip.Reader)
	if !ok {
		zr = new(gzip.Reader)
	}
	if err := zr.Reset(src); err != nil {
		gzipReaders.Put(zr)
		return nil, err
	}
	return zr, nil
}

func closeGzip(zr *gzip.Reader) { gzipReaders.Put(zr) }

// appendGzip appends b, compressed, to dst.
func appendGzip(dst, b []byte) []byte {
	out := &appender{b: dst}
	zw := gzipWriters.Get().(*gzip.Writer)
	zw.Reset(out)
	_, err := zw.Write(b)
	if cerr := zw.Close(); err != nil || cerr != nil {
		panic("server: packing into memory failed") // an appender never fails
	}
	gzipWriters.Put(zw)
	return out.b
}

type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

// wantsGzip reads an Accept-Encoding list: it looks for gzip or x-gzip, or a star if
// gzip itself is not listed, with a weight above zero.
func wantsGzip(accept string) bool {
	if accept == "" {
		return false
	}
	star := false
	for item := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(item, ";")
		ok := weight(params) > 0
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "gzip", "x-gzip":
			return ok
		case "*":
			star = ok
		}
	}
	return star
}

// weight returns the q parameter of a list item, 1 if there is none.
func weight(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		name, v, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(name, "q") {
			q, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return 0
			}
			return q
		}
	}
	return 1
}
