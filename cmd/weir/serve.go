package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/server"
)

const serveHelp = `Serve runs the server on one data directory until SIGTERM or SIGINT. It then answers
waiting long polls, lets running requests finish, and ends with exit code 0.

Every flag has a twin in the environment: --data-dir is WEIR_DATA_DIR. A flag wins.
Keys come from WEIR_API_KEYS alone, since a command line is visible to everyone on
the machine.`

// recoveryTold is how often a recovery that takes long is told.
const recoveryTold = 5 * time.Second

const serveExample = `  weir serve
  weir serve --host 0.0.0.0 --data-dir /var/lib/weir    # with WEIR_API_KEYS set`

// serveFlags are the flags of serve; each stands for its environment twin.
var serveFlags = []struct{ name, usage string }{
	{"host", "address to listen on, or host:port (default 127.0.0.1)"},
	{"port", "port to listen on, 0 for any free one (default 4000)"},
	{"port-file", "file that gets the bound host:port"},
	{"data-dir", "data directory (default ./weir-data)"},
	{"log-format", "form of the log on standard error: text or json (default text)"},
	{"log-level", "least level of its lines: debug, info, warn or error (default info)"},
	{"disk-flush-ms", "longest time a disk write stays unsynced (default 1000)"},
	{"stall-after", "how long the log may stand still with work waiting before the process ends with code 75, 0s for ever (default 30s)"},
	{"disk-reserve", "free space below which writes are refused, in bytes or as 512MiB, 0 for none (default: the smaller of 192MiB and a tenth of the disk)"},
	{"ingest-queue", "writes that may wait for the log (default 4096)"},
	{"allowed-hosts", "host names accepted besides loopback, separated by commas"},
	{"probe-auth", "true: health and ready need a key too"},
	{"allow-insecure-no-auth", "true: listen beyond loopback without keys"},
	{"max-topics", "most topics, 0 for no limit (default 100000)"},
	{"max-routers", "most routers, 0 for no limit (default 10000)"},
	{"max-watch-sessions", "most watch sessions, 0 for no limit (default 10000)"},
	{"max-sse-connections", "most event streams and WebSockets at a time, 0 for no limit (default 10000)"},
	{"max-sse-connections-per-key", "most of them of one key, 0 for no limit (default 1000)"},
	{"max-inflight-per-key", "most requests of one key at a time, 0 for no limit (default 1000)"},
	{"max-inflight-bytes", "most bytes of request bodies at a time, 0 for no limit (default 268435456)"},
	{"max-total-bytes", "most live bytes of all topics, 0 for no limit (default 0)"},
	{"max-idempotency-keys", "most idempotency keys remembered, 0 for no limit (default 5000000)"},
	{"max-body-bytes", "largest request body (default 67108864)"},
	{"max-batch-records", "most records in a write (default 10000)"},
	{"max-record-bytes", "largest record, data and meta (default 1048576)"},
	{"max-meta-bytes", "largest meta (default 16384)"},
	{"max-tag-bytes", "longest tag (default 256)"},
	{"max-node-bytes", "longest node (default 128)"},
	{"max-watch-topics", "most topics of a watch (default 256)"},
	{"max-limit", "most records in a diff (default 1000)"},
	{"max-claim", "most jobs in a claim, ack, nack or extend (default 1000)"},
}

func newServeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Run the server",
		Long:    serveHelp,
		Example: serveExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hangup, end := surviveSignals()
			defer end()
			log, err := newLogger(cmd.ErrOrStderr(), serveLookup(cmd))
			if err != nil {
				return err
			}
			cfg, err := server.ConfigFrom(serveLookup(cmd))
			if err != nil {
				return inLog(log, serveLookup(cmd), err)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			// A second signal ends the process at once.
			context.AfterFunc(ctx, stop)
			var reloading sync.WaitGroup
			reloadCtx, endReload := context.WithCancel(context.Background()) // also while it stops
			reloading.Go(func() { reloadLoop(reloadCtx, hangup, reloads(), log) })
			err = serve(ctx, cfg, banner(cmd.OutOrStdout(), serveLookup(cmd)), log)
			endReload()
			reloading.Wait()
			return inLog(log, serveLookup(cmd), err)
		},
	}
	for _, f := range serveFlags {
		cmd.Flags().String(f.name, "", f.usage)
	}
	return cmd
}

// serveLookup finds a setting among the flags, then in the environment.
func serveLookup(cmd *cobra.Command) server.Lookup {
	return func(name string) (string, bool) {
		flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "WEIR_"), "_", "-"))
		if f := cmd.Flags().Lookup(flag); f != nil && f.Changed {
			return f.Value.String(), true
		}
		return os.LookupEnv(name)
	}
}

// newLogger makes the log of a server; WEIR_LOG_FORMAT says in which form and
// WEIR_LOG_LEVEL how much.
func newLogger(out io.Writer, lookup server.Lookup) (*slog.Logger, error) {
	var opt slog.HandlerOptions
	switch level, _ := lookup("WEIR_LOG_LEVEL"); level {
	case "", "info":
	case "debug":
		opt.Level = slog.LevelDebug
	case "warn":
		opt.Level = slog.LevelWarn
	case "error":
		opt.Level = slog.LevelError
	default:
		return nil, fmt.Errorf("WEIR_LOG_LEVEL=%q: want debug, info, warn or error", level)
	}
	switch format, _ := lookup("WEIR_LOG_FORMAT"); format {
	case "", "text":
		return slog.New(slog.NewTextHandler(out, &opt)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(out, &opt)), nil
	default:
		return nil, fmt.Errorf("WEIR_LOG_FORMAT=%q: want text or json", format)
	}
}

func logsJSON(lookup server.Lookup) bool {
	format, _ := lookup("WEIR_LOG_FORMAT")
	return format == "json"
}

// inLog puts the error that ends a server into its log where that is read by a
// machine, which would stumble over a line in another form.
func inLog(log *slog.Logger, lookup server.Lookup, err error) error {
	if err == nil || !logsJSON(lookup) {
		return err
	}
	log.Error("weir ends", "error", err.Error())
	return errSaid
}

// banner is where the line for people goes that says where the server is: nowhere
// if the output is for machines, whose log says the same.
func banner(out io.Writer, lookup server.Lookup) io.Writer {
	if logsJSON(lookup) {
		return io.Discard
	}
	return out
}

// serve runs a server until ctx ends.
func serve(ctx context.Context, cfg server.Config, out io.Writer, log *slog.Logger) (err error) {
	if err := cfg.CheckBind(); err != nil {
		return err
	}
	l, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return err
	}
	tellStart(cfg, log)
	log.Info("listening", "address", l.Addr().String())
	// What the data directory holds is nobody else's to read.
	syscall.Umask(0o077)
	srv := server.New(cfg, server.Options{Version: version(), Logger: log})
	opening := openEngine(ctx, cfg, srv, log, endStalled(log, cfg.StallAfter, os.Stderr))
	// A data directory that is in use or damaged is known before anything is
	// served; a long recovery is waited out with the port open.
	if err := opening.started(); err != nil {
		return errors.Join(startError(ctx, err), l.Close())
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	err = run(ctx, cfg, srv, l.Addr().String(), opening, served, out, log)
	begin := time.Now()
	log.Info("stopping: new requests are turned away, running ones have 10 s")
	srv.Stop()
	log.Info("no request is running any more; closing the data directory")
	err = errors.Join(err, <-served, opening.close())
	log.Info("stopped", "seconds", time.Since(begin).Seconds())
	return err
}

// tellStart says what is started and with what rights; never a secret.
func tellStart(cfg server.Config, log *slog.Logger) {
	log.Info("weir starts", "version", version(), "pid", os.Getpid(), "data_dir", cfg.DataDir, "settings", cfg.Changed)
	keys, limited := cfg.Keys.Count()
	if keys == 0 {
		log.Info("auth is off: whoever reaches the address has every right")
		return
	}
	log.Info("auth is on", "keys", keys, "limited_to_prefixes", limited)
}

// run is the life of the server between its first and its last request.
func run(ctx context.Context, cfg server.Config, srv *server.Server, addr string, opening *opening, served chan error, out io.Writer, log *slog.Logger) error {
	if err := writePortFile(cfg.PortFile, addr); err != nil {
		opening.cancel()
		return err
	}
	tick := time.NewTicker(recoveryTold)
	defer tick.Stop()
	for open := false; !open; {
		select {
		case <-tick.C:
			log.Info("the data directory is still being recovered", "share", srv.Recovered())
		case <-opening.done:
			if open = true; opening.err != nil {
				return startError(ctx, opening.err)
			}
		case err := <-served:
			opening.cancel()
			served <- nil
			return err
		}
	}
	srv.SetEngine(opening.engine)
	log.Info("ready", "url", "http://"+addr)
	fmt.Fprintf(out, "weir %s is ready at http://%s, data in %s\n", version(), addr, cfg.DataDir)
	select {
	case <-ctx.Done():
		return nil
	case err := <-served:
		served <- nil
		return err
	}
}

// startError is nil for a start that was called off by a signal.
func startError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the data directory cannot be opened: %w", err)
}

// opening is an engine that is being opened.
type opening struct {
	recovering chan struct{} // closed once the recovery is under way
	done       chan struct{} // closed when engine or err is set
	engine     *engine.Engine
	err        error
	cancel     context.CancelFunc
}

func openEngine(ctx context.Context, cfg server.Config, srv *server.Server, log *slog.Logger, stalled func(what string)) *opening {
	o := &opening{recovering: make(chan struct{}), done: make(chan struct{})}
	ctx, o.cancel = context.WithCancel(ctx)
	var once sync.Once
	go func() {
		defer close(o.done)
		o.engine, o.err = engine.Open(ctx, engine.Options{
			Dir:         cfg.DataDir,
			Limits:      cfg.Limits,
			Logger:      log,
			DiskFlush:   cfg.DiskFlush,
			IngestSlots: cfg.IngestSlots,
			StallAfter:  cfg.StallAfter,
			Stalled:     stalled,
			DiskReserve: cfg.DiskReserve,
			Progress: func(share float64) {
				srv.SetProgress(share)
				once.Do(func() { close(o.recovering) })
			},
		})
	}()
	return o
}

// started waits until the recovery is under way or has ended.
func (o *opening) started() error {
	select {
	case <-o.recovering:
		return nil
	case <-o.done:
		return o.err
	}
}

// close waits for the opening to end and closes what was opened.
func (o *opening) close() error {
	o.cancel()
	<-o.done
	if o.engine == nil {
		return nil
	}
	start := time.Now()
	if err := o.engine.Close(); err != nil {
		return fmt.Errorf("closing the data directory after %s: %w", time.Since(start).Round(time.Millisecond), err)
	}
	return nil
}

// writePortFile writes addr in a way that a reader never sees half of it.
func writePortFile(path, addr string) error {
	if path == "" {
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".weir-port-")
	if err != nil {
		return fmt.Errorf("port file: %w", err)
	}
	_, err = tmp.WriteString(addr)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("port file: %w", errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}

// version is the module version that the binary was built from.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
