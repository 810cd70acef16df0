package server

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// maxProfile bounds the time that a bundle's CPU profile takes, maxReading for how long it
// waits for the engine's numbers.
const (
	maxProfile = time.Minute
	maxReading = 2 * time.Second
)

// about is the first file of a bundle.
type about struct {
	Version    string    `json:"version"`
	Go         string    `json:"go"`
	Platform   string    `json:"platform"`
	CPUs       int       `json:"cpus"`
	MaxProcs   int       `json:"max_procs"`
	Goroutines int       `json:"goroutines"`
	PID        int       `json:"pid"`
	DataDir    string    `json:"data_dir"`
	Keys       int       `json:"keys"`
	Taken      time.Time `json:"taken"`
	UptimeMS   int64     `json:"uptime_ms"`
	Settings   []string  `json:"settings"` // those that differ from their defaults; no text, which may be secret
}

// postBundle streams what a report of a problem needs, as a compressed tar:
//
//	POST /admin/bundle?profile=5s → 200 application/gzip
//
// It needs the admin scope and a key without prefixes, since it names every topic. It holds
// no record, no key and no setting that is text. profile is for how long the CPU is
// profiled, at most a minute; 0 leaves the profile out.
func (q *request) postBundle() error {
	if q.key.limited() {
		return api.Errorf(api.CodeForbidden, "a bundle names every topic; use a key without prefixes")
	}
	v, err := q.query()
	if err != nil {
		return err
	}
	profile := time.Duration(0)
	if text := v.Get("profile"); text != "" {
		if profile, err = time.ParseDuration(text); err != nil || profile < 0 || profile > maxProfile {
			return api.Errorf(api.CodeInvalidRequest, "profile is %q; give a time up to %s, such as 5s, or 0s for none", text, maxProfile)
		}
	}
	defer q.mayTakeLong()()
	q.patience = backupPatience
	q.w.Header()["Content-Type"] = headerPacked
	q.warnInHead()
	q.sent = true
	packed := gzip.NewWriter(q.hurried())
	b := bundle{s: q.s, out: tar.NewWriter(packed), taken: time.Now()}
	err = errors.Join(b.write(q.r, profile), q.r.Context().Err(), b.out.Close(), packed.Close())
	if err != nil {
		q.s.log.Warn("a bundle was cut off", "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// bundle is one on its way to a client.
type bundle struct {
	s     *Server
	out   *tar.Writer
	taken time.Time
}

// write adds every file. What cannot be had says so in its place.
func (b *bundle) write(r *http.Request, profile time.Duration) error {
	for _, f := range []struct {
		name string
		fill func(io.Writer) error
	}{
		{"about.json", b.about},
		{"state.json", func(w io.Writer) error { return b.state(r.Context(), w) }},
		{"history.json", func(w io.Writer) error { return indented(w, b.s.dash.ServerHistory()) }},
		{"metrics.txt", func(w io.Writer) error { _, err := rendered(b.s.scrapes, nil).WriteTo(w); return err }},
		{"log.txt", func(w io.Writer) error { _, err := w.Write(b.s.lastLog()); return err }},
		{"goroutines.txt", func(w io.Writer) error { return pprof.Lookup("goroutine").WriteTo(w, 2) }},
		{"goroutine.pprof", func(w io.Writer) error { return pprof.Lookup("goroutine").WriteTo(w, 0) }},
		{"heap.pprof", func(w io.Writer) error { return pprof.Lookup("heap").WriteTo(w, 0) }},
		{"cpu.pprof", func(w io.Writer) error { return b.profile(r, w, profile) }},
	} {
		if f.name == "cpu.pprof" && profile == 0 {
			continue
		}
		var content bytes.Buffer
		if err := f.fill(&content); err != nil {
			f.name += ".error"
			content.Reset()
			fmt.Fprintln(&content, err)
		}
		h := &tar.Header{Name: f.name, Size: int64(content.Len()), Mode: 0o600, ModTime: b.taken, Typeflag: tar.TypeReg}
		if err := b.out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := b.out.Write(content.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

func (b *bundle) about(w io.Writer) error {
	keys, _ := b.s.keys.Count()
	return indented(w, &about{
		Version: b.s.version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		CPUs: runtime.NumCPU(), MaxProcs: runtime.GOMAXPROCS(0), Goroutines: runtime.NumGoroutine(), PID: os.Getpid(),
		DataDir: b.s.dataDir, Keys: keys, Taken: b.taken, UptimeMS: b.s.uptime(), Settings: b.s.settings,
	})
}

// state writes what the dashboard shows now, or what it showed last if the engine does not
// answer.
func (b *bundle) state(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, maxReading)
	defer cancel()
	return indented(w, b.s.dash.Fresh(ctx, nil))
}

// profile profiles the CPU until the time is over or the client has gone. The process has
// one profile at a time.
func (b *bundle) profile(r *http.Request, w io.Writer, during time.Duration) error {
	if err := pprof.StartCPUProfile(w); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	select {
	case <-r.Context().Done():
	case <-b.s.drained:
	case <-time.After(during):
	}
	return nil
}

func indented(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
