package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// BenchmarkWriteRequest compares a write of one record with a handler that
// reads the same body and answers nothing, over the same connections.
func BenchmarkWriteRequest(b *testing.B) {
	body := `{"records":[{"data":"` + strings.Repeat("x", 254) + `"}]}`
	b.Run("empty", func(b *testing.B) {
		l := listen(b)
		h := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		})}
		go func() { _ = h.Serve(l) }()
		defer h.Close()
		hammer(b, l.Addr().String(), "application/json", body)
	})
	b.Run("weir", func(b *testing.B) {
		s := benchServer(b)
		hammer(b, s, "application/json", body)
	})
	b.Run("raw", func(b *testing.B) {
		s := benchServer(b)
		hammer(b, s, api.TypeBytes, strings.Repeat("x", 256))
	})
}

func listen(b *testing.B) net.Listener {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// hammer sends the body b.N times over 64 connections.
func hammer(b *testing.B, addr, kind, body string) {
	b.Helper()
	text := []byte(fmt.Sprintf("POST /v0/topics/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body))
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		r := bufio.NewReader(c)
		for pb.Next() {
			if _, err := c.Write(text); err != nil {
				b.Error(err)
				return
			}
			length := 0
			for {
				line, err := r.ReadSlice('\n')
				if err != nil {
					b.Error(err)
					return
				}
				if len(line) == 2 {
					break
				}
				if n, ok := strings.CutPrefix(string(line), "Content-Length: "); ok {
					if _, err := fmt.Sscanf(n, "%d", &length); err != nil {
						b.Error(err)
						return
					}
				}
			}
			if _, err := r.Discard(length); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// benchServer starts a server on an engine of its own and returns its address.
func benchServer(b *testing.B) string {
	b.Helper()
	cfg := Config{DataDir: b.TempDir(), Limits: api.DefaultLimits()}
	e, err := engine.Open(b.Context(), engine.Options{Dir: cfg.DataDir, Limits: cfg.Limits})
	if err != nil {
		b.Fatal(err)
	}
	s := New(cfg, Options{})
	s.SetEngine(e)
	l := listen(b)
	go func() { _ = s.Serve(l) }()
	b.Cleanup(func() {
		s.Stop()
		if err := e.Close(); err != nil {
			b.Error(err)
		}
	})
	return l.Addr().String()
}

// BenchmarkWritesBesideTheDashboard writes over 16 connections, by turns with ten dashboards open
// and with none, each for two seconds, and reports how the rates compare. A turn of -benchtime 10x is
// four seconds.
func BenchmarkWritesBesideTheDashboard(b *testing.B) {
	addr := benchServer(b)
	var wrote atomic.Int64
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for i := range 16 {
		writers.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := client.Post(fmt.Sprintf("http://%s/v0/topics/t%02d", addr, n%50), "application/json", strings.NewReader(`{"records":[{"data":"x"}]}`))
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				wrote.Add(1)
			}
		})
	}
	defer writers.Wait()
	defer close(stop)
	turn := func(pages int) float64 {
		var open sync.WaitGroup
		ctx, end := context.WithTimeout(b.Context(), 2*time.Second)
		defer open.Wait()
		defer end()
		for range pages {
			open.Go(func() { look(ctx, b, addr) })
		}
		begun, before := time.Now(), wrote.Load()
		<-ctx.Done()
		return float64(wrote.Load()-before) / time.Since(begun).Seconds()
	}
	var closed, open float64
	for n := 0; b.Loop(); n++ {
		if n%2 == 0 {
			closed += turn(0)
			open += turn(10)
		} else {
			open += turn(10)
			closed += turn(0)
		}
	}
	b.ReportMetric(open/closed, "open/closed")
	b.ReportMetric(closed/float64(b.N), "writes/s")
}

// look reads what a dashboard is sent until ctx ends.
func look(ctx context.Context, b *testing.B, addr string) {
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+addr+"/ui/live", nil)
	req.Header.Set("Accept", "text/event-stream")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		b.Error(err)
		return
	}
	defer resp.Body.Close()
	if n, _ := io.Copy(io.Discard, resp.Body); n == 0 {
		b.Error("a dashboard was sent nothing")
	}
}
