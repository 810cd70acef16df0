// Package scenario holds the loads weir is measured with: comparisons with a
// peer that runs in turn with it, and figures of one server's life. Servers
// and peers are processes of their own, built from this tree; the load comes
// from this process.
package scenario

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/weirmq/weir/bench/report"
)

// Config says what to run. Zero fields get the defaults of WithDefaults.
type Config struct {
	Root   string         // the repository; default: the module of the working directory
	Out    string         // where binaries and data go; default: bench/out in Root
	Weir   string         // a built server; default: built from Root
	Only   *regexp.Regexp // names of the rows to run; nil: all
	Sample time.Duration  // measured time of one sample; default 4 s
	Rounds int            // samples of weir per row, the peer has one fewer but at least one; default 3
	Quick  bool           // tiny sizes: shows that every row works, not how fast
	Table  io.Writer      // rows are printed here as they finish; default: nowhere
}

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() (Config, error) {
	if c.Root == "" {
		mod, err := exec.Command("go", "env", "GOMOD").Output()
		if err != nil {
			return c, fmt.Errorf("find the repository: %w", err)
		}
		c.Root = filepath.Dir(strings.TrimSpace(string(mod)))
	}
	if c.Out == "" {
		c.Out = filepath.Join(c.Root, "bench", "out")
	}
	if c.Only == nil {
		c.Only = regexp.MustCompile("")
	}
	if c.Sample == 0 {
		c.Sample = 4 * time.Second
		if c.Quick {
			c.Sample = 150 * time.Millisecond
		}
	}
	if c.Rounds == 0 {
		c.Rounds = 3
		if c.Quick {
			c.Rounds = 1
		}
	}
	if c.Table == nil {
		c.Table = io.Discard
	}
	return c, nil
}

// bench is one run.
type bench struct {
	Config
	size  sizes
	built map[string]string // program → binary
}

// sizes are the volumes of the scenarios.
type sizes struct {
	sealed      int64 // segments to be sealed during a sample of bulk writes
	bulk        int64 // records per sample of bulk writes
	jobs        int64 // jobs that wait when a sample of claims begins
	manyWaiting int64 // jobs that wait when a burst of claims ends
	fewWaiting  int64
	burst       int64 // jobs that it takes
	stored      int64 // records stored before a kill
	tiny        int64 // and of two bytes
	topics      int
	deleted     int64 // records deleted to get their space back
	kept        int64 // records that stay beside them
	polls       int   // long polls open at a stop
	watchers    int   // streams of one topic
	streams     int   // idle streams
	pooled      int   // jobs that a pool drains from Redis
	backlog     int   // messages that wait in Redis
	warmup      time.Duration
	underLoad   time.Duration // how long a server is loaded before it is stopped
}

const segmentBytes = 64 << 20

func (c Config) sizes() sizes {
	if c.Quick {
		return sizes{
			bulk: 20_000, jobs: 5_000, manyWaiting: 20_000, fewWaiting: 2_000, burst: 1_000,
			stored: 20_000, tiny: 20_000, topics: 500, deleted: 20_000, kept: 2_000, polls: 20,
			watchers: 20, streams: 300, pooled: 2_000, backlog: 10_000,
			warmup: 20 * time.Millisecond, underLoad: 100 * time.Millisecond,
		}
	}
	const sealed = 10
	return sizes{
		sealed: sealed, bulk: sealed * segmentBytes / recordSize,
		jobs: 1_000_000, manyWaiting: 10_000_000, fewWaiting: 10_000, burst: 50_000,
		stored: 1_000_000, tiny: 100_000_000, topics: 100_000, deleted: 4_000_000, kept: 200_000, polls: 200,
		watchers: 1_000, streams: 10_000, pooled: 400_000, backlog: 1_000_000,
		warmup: 300 * time.Millisecond, underLoad: time.Second,
	}
}

// Run measures every row that the config selects. A row that cannot be
// measured says so in the report and does not end the run; the error is for
// what stops all of them.
func Run(ctx context.Context, c Config) (*report.Report, error) {
	b, err := newBench(c)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	r := &report.Report{Started: begin.UTC(), Quick: b.Quick, Machine: report.ThisMachine(b.Out)}
	b.table().Machine(r.Machine)
	b.runRatios(ctx, r)
	b.runFigures(ctx, r)
	r.Seconds = time.Since(begin).Seconds()
	return r, ctx.Err()
}

func newBench(c Config) (*bench, error) {
	c, err := c.WithDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return nil, err
	}
	b := &bench{Config: c, size: c.sizes(), built: map[string]string{}}
	if c.Weir != "" {
		b.built[weirProgram.name] = c.Weir
	}
	return b, nil
}

func (b *bench) table() report.Table { return report.Table{W: b.Table, Judged: !b.Quick} }

// program is a binary built from the repository.
type program struct {
	name, module, pkg string // module is a directory below the root
}

var (
	weirProgram     = program{"weir", ".", "./cmd/weir"}
	handlersProgram = program{"handlers", ".", "./bench/handlers"}
	watchersProgram = program{"watchers", ".", "./bench/watchers"}
	peersProgram    = program{"weirpeers", "bench/peers", "."}
	libraryProgram  = program{"library", ".", "./bench/library"}
	bucketProgram   = program{"bucket", "tests/s3test/server", "."}
)

// binary builds p on first use and returns its path.
func (b *bench) binary(ctx context.Context, p program) (string, error) {
	if path, ok := b.built[p.name]; ok {
		return path, nil
	}
	path := filepath.Join(b.Out, "bin", p.name)
	build := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-o", path, p.pkg) // as make build does
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Dir = filepath.Join(b.Root, p.module)
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %.500s", p.name, err, text)
	}
	b.built[p.name] = path
	return path, nil
}

// session is one row while it runs: it owns the processes and the directory.
type session struct {
	*bench
	dir     string
	servers []*proc
}

// session makes a fresh directory and calls use, then ends every process and
// removes the directory, whatever happened.
func (b *bench) session(use func(*session) error) (err error) {
	dir, err := os.MkdirTemp(b.Out, "data-")
	if err != nil {
		return err
	}
	s := &session{bench: b, dir: dir}
	defer func() {
		for _, p := range s.servers {
			p.kill()
		}
		os.RemoveAll(dir)
	}()
	return use(s)
}

// weir starts a server on the named directory of the session, with settings as KEY=VALUE.
func (s *session) weir(ctx context.Context, name string, settings ...string) (*weir, error) {
	return s.weirTLS(ctx, name, nil, settings...)
}

// weirTLS is weir for a server whose settings make it speak TLS, unless conf is nil.
func (s *session) weirTLS(ctx context.Context, name string, conf *tls.Config, settings ...string) (*weir, error) {
	path, err := s.binary(ctx, weirProgram)
	if err != nil {
		return nil, err
	}
	w, err := startWeir(ctx, path, filepath.Join(s.dir, name), conf, settings...)
	if err != nil {
		return nil, err
	}
	s.servers = append(s.servers, w.proc)
	return w, nil
}

// peer starts a program that prints its address as its first line.
func (s *session) peer(ctx context.Context, p program, args ...string) (*proc, string, error) {
	path, err := s.binary(ctx, p)
	if err != nil {
		return nil, "", err
	}
	server, err := startProc(path, args, nil)
	if err != nil {
		return nil, "", err
	}
	s.servers = append(s.servers, server)
	addr, err := server.firstLine()
	return server, addr, err
}

// Names lists the rows in the order they run.
func Names() []string {
	var names []string
	for _, row := range ratios {
		names = append(names, row.name)
	}
	for _, f := range figures {
		for _, row := range f.rows {
			names = append(names, row.Name)
		}
	}
	return names
}
