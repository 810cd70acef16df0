package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/relay"
	"github.com/weirmq/weir/internal/replica/stores"
	"github.com/weirmq/weir/internal/server"
	"github.com/weirmq/weir/internal/settings"
	"github.com/weirmq/weir/internal/webhook"
)

const serveHelp = `Serve runs the server on one data directory until SIGTERM or SIGINT. It then answers
waiting long polls, lets running requests finish, and exits with code 0.

Every flag has a twin in the environment and a key in the --config file: --data-dir
is WEIR_DATA_DIR and data_dir. A flag beats the environment, which beats the file. API
keys come from WEIR_API_KEYS or the file that --keys-file names, since everyone on the
machine can see a command line. SIGHUP reads the file again; log_level, and lag_warn and lag_pause of the
dashboard, take effect, the rest needs a restart.`

// recoveryTold is how often a long recovery is logged.
const recoveryTold = 5 * time.Second

const serveExample = `  weir serve
  weir serve --host 0.0.0.0 --data-dir /var/lib/weir --keys-file /etc/weir/keys.json`

// serveOptions are the settings of serve: a server.Config, and those that it holds in another form.
type serveOptions struct {
	server.Config
	host        string
	port        int
	diskFlushMS int64
	apiKeys     string
	keysFile    string
	webhooks    string
	private     []string // addresses that webhooks may reach
	upstream    relay.Options
	ca          string // of the upstream
	logFormat   string
	logLevel    string
}

func (o *serveOptions) fields() settings.Fields {
	l := &o.Limits
	return settings.Fields{
		"host": &o.host, "port": &o.port, "port-file": &o.PortFile, "tls-cert": &o.TLS.Cert, "tls-key": &o.TLS.Key, "tls-client-ca": &o.TLS.ClientCA, "data-dir": &o.DataDir,
		"log-format": &o.logFormat, "log-level": &o.logLevel, "lag-warn": &o.LagWarn, "lag-pause": &o.LagPause,
		"replica": &o.Replica.URL, "replica-sync": &o.Replica.Sync, "replica-every": &o.Replica.Every, "replica-base": &o.Replica.Base,
		"replica-keep": &o.Replica.Keep, "replica-lag-max": &o.Replica.LagMax,
		"failover": &o.Replica.Failover, "standby": &o.Replica.Standby, "failover-after": &o.Replica.FailoverAfter,
		"disk-flush-ms": &o.diskFlushMS, "stall-after": &o.StallAfter, "disk-reserve": &o.DiskReserve, "ingest-queue": &o.IngestSlots,
		"allowed-hosts": &o.AllowedHosts, "cors-origins": &o.CORSOrigins, "probe-auth": &o.ProbeAuth, "allow-insecure-no-auth": &o.AllowInsecure, "api-keys": &o.apiKeys, "keys-file": &o.keysFile,
		"test-min-heartbeat-ms": &o.MinHeartbeatMS,
		"webhooks":              &o.webhooks, "webhook-allow-http": &o.Webhooks.Reach.HTTP, "webhook-allow-private": &o.private,
		"upstream": &o.upstream.Upstream, "upstream-key": &o.upstream.Key, "relay-key": &o.upstream.Secret, "relay-buffer": &o.upstream.BufferBytes, "ca": &o.ca,

		"max-topics": &l.MaxTopics, "max-routers": &l.MaxRouters, "max-watch-sessions": &l.MaxWatchSessions,
		"max-sse-connections": &l.MaxSSEConnections, "max-sse-connections-per-key": &l.MaxSSEConnectionsPerKey,
		"max-inflight-per-key": &l.MaxInflightPerKey, "max-inflight-bytes": &l.MaxInflightBytes,
		"max-total-bytes": &l.MaxTotalBytes, "max-idempotency-keys": &l.MaxIdempotencyKeys, "max-body-bytes": &l.MaxBodyBytes,
		"max-batch-records": &l.MaxBatchRecords, "max-record-bytes": &l.MaxRecordBytes, "max-meta-bytes": &l.MaxMetaBytes,
		"max-tag-bytes": &l.MaxTagBytes, "max-node-bytes": &l.MaxNodeBytes, "max-watch-topics": &l.MaxWatchTopics,
		"max-limit": &l.MaxLimit, "max-claim": &l.MaxClaim,
	}
}

// load reads the settings.
func (o *serveOptions) load(cmd *cobra.Command) (*settings.Values, error) {
	values, err := settings.Load(source(cmd, settings.Serve), o.fields())
	if err != nil {
		return values, &usageError{err}
	}
	if err := checkTarget("--port-file", o.PortFile); err != nil {
		return values, err
	}
	o.Addr = listenAddress(o.host, o.port)
	o.DiskFlush = time.Duration(o.diskFlushMS) * time.Millisecond
	if o.Keys, err = server.LoadKeys(o.apiKeys, o.keysFile); err != nil {
		return values, &usageError{err}
	}
	if err := server.CheckHosts(o.AllowedHosts); err != nil {
		return values, &usageError{fmt.Errorf("setting allowed_hosts: %w", err)}
	}
	// A relay learns from its upstream whether keys are needed.
	if err := server.CheckOrigins(o.CORSOrigins, o.Keys != nil || o.upstream.Upstream != ""); err != nil {
		return values, &usageError{fmt.Errorf("setting cors_origins: %w", err)}
	}
	// Without keys everybody is an admin, so that sending elsewhere has to be asked for.
	o.Webhooks.On = o.webhooks == "on" || o.webhooks == "auto" && o.Keys != nil
	if o.Webhooks.Reach.Private, err = webhook.ParsePrefixes(o.private); err != nil {
		return values, &usageError{fmt.Errorf("webhook_allow_private: %w", err)}
	}
	if o.upstream.Upstream != "" {
		return values, o.loadRelay()
	}
	if cmd.Flags().Changed("ca") {
		return values, &usageError{errors.New("--ca is for the server behind a relay, which --upstream names; --tls-client-ca has the authorities of clients")}
	}
	if err := o.CheckBind(); err != nil {
		return values, &usageError{err}
	}
	switch r := &o.Replica; {
	case r.URL == "" && (r.Sync || r.Failover || r.Standby):
		return values, &usageError{errors.New("--replica-sync, --failover and --standby need the copy that --replica names")}
	case r.URL != "":
		if err := stores.Check(r.URL); err != nil {
			return values, &usageError{fmt.Errorf("--replica: %w", err)}
		}
		if u, err := url.Parse(r.URL); err == nil && u.Scheme == "file" && sameFile(u.Path, o.DataDir) {
			return values, &usageError{fmt.Errorf("--replica names the data directory %s itself; name a directory of another disk", o.DataDir)}
		}
	}
	return values, nil
}

// sameFile reports whether two paths lead to the same file, or will.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		a, errA := filepath.Abs(a)
		b, errB := filepath.Abs(b)
		return errA == nil && errB == nil && a == b
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// listenAddress joins a host, which may have a port of its own, and a port.
func listenAddress(host string, port int) string {
	if settings.HasPort(host) {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port))
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
			return runServe(cmd, hangup)
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Serve)
	return cmd
}

func runServe(cmd *cobra.Command, hangup <-chan os.Signal) error {
	var opt serveOptions
	values, err := opt.load(cmd)
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	level.Set(levelOf(opt.logLevel))
	tail := &logTail{out: newPatientWriter(cmd.ErrOrStderr(), func(lines int) {
		newLog(cmd.ErrOrStderr(), opt.logFormat, level).Warn("nobody took the lines of this log for a while; those in between are left out", "lines", lines)
	})}
	log := newLog(tail, opt.logFormat, level)
	logUnknown(log)
	counted := prometheus.NewRegistry()
	sent, err := send(cmd.Context(), "serve", counted, log)
	if err != nil {
		return err
	}
	defer sent.Close()
	log = sent.Log(log, level)
	logStart(&opt, values.Changed(), log)
	opt.Memory = memory()
	fitLimits(&opt.Limits, opt.Memory, values)
	fitMemory(&opt.Limits, opt.Memory, log)
	warnLimits(&opt.Limits, log)
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	var reloading sync.WaitGroup
	reloadCtx, endReload := context.WithCancel(context.Background()) // also while it stops
	r := &reloader{cmd: cmd, values: values, level: level, log: log}
	reloading.Go(func() { r.run(reloadCtx, hangup) })
	ready := cmd.OutOrStdout()
	if opt.logFormat == jsonFormat {
		ready = io.Discard // the log says the same
	}
	options := server.Options{
		Version: version(), Logger: log, Metrics: counted, Around: sent.Requests(),
		Settings: values.Changed(), LastLog: tail.Last,
	}
	if opt.upstream.Upstream != "" {
		err = serveRelay(ctx, &opt, options, ready)
	} else {
		err = serve(ctx, opt.Config, options, ready, r)
	}
	endReload()
	reloading.Wait()
	return err
}

// serve runs a server until ctx ends.
func serve(ctx context.Context, cfg server.Config, options server.Options, out io.Writer, r *reloader) (err error) {
	log := r.log
	l, url, err := listen(&cfg, &options)
	if err != nil {
		return err
	}
	// Nobody else may read the data directory.
	syscall.Umask(0o077)
	srv := server.New(cfg, options)
	r.server.Store(srv)
	supervisor := newNotifier(log)
	opening := openEngine(ctx, cfg, srv, log, endStalled(log, cfg.StallAfter, os.Stderr))
	// A data directory that is in use or damaged is an error before anything is
	// served. The port answers from the first replayed group of the log on, so also during
	// a long recovery.
	if err := opening.started(); err != nil {
		return errors.Join(startError(ctx, err), l.Close())
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	err = run(ctx, cfg, srv, url, opening, served, out, supervisor)
	begin := time.Now()
	log.Info("stopping: new requests are refused, running ones have 10 s")
	supervisor.stopping()
	srv.Stop()
	log.Info("no request is running any more; closing the data directory")
	err = errors.Join(err, <-served, opening.close())
	log.Info("stopped", "seconds", time.Since(begin).Seconds())
	return err
}

// logStart logs what is started and with which rights; never a secret.
func logStart(opt *serveOptions, changed []string, log *slog.Logger) {
	start := []any{"version", version(), "pid", os.Getpid()}
	if opt.upstream.Upstream == "" { // a relay has none
		start = append(start, "data_dir", opt.DataDir)
	}
	log.Info("weir starts", append(start, "settings", changed)...)
	keys, limited := opt.Keys.Count()
	switch {
	case opt.upstream.Upstream != "":
		log.Info("auth is up to the upstream", "upstream", opt.upstream.Upstream)
	case opt.Keys == nil && opt.TLS.ClientCA != "":
		log.Info("auth is off: anyone with a certificate of tls_client_ca has full access")
	case opt.Keys == nil:
		log.Info("auth is off: anyone who can reach the address has full access")
	case keys == 0:
		log.Warn("auth is on and there is no key: every request is refused until weir key new has made one", "keys_file", opt.keysFile)
	default:
		log.Info("auth is on", "keys", keys, "limited_to_prefixes", limited)
	}
}

// run serves from the first to the last request.
func run(ctx context.Context, cfg server.Config, srv *server.Server, url string, opening *opening, served chan error, out io.Writer, supervisor *notifier) error {
	log := supervisor.log
	if err := writePortFile(cfg.PortFile, afterScheme(url)); err != nil {
		opening.cancel()
		return err
	}
	tick := time.NewTicker(recoveryTold)
	defer tick.Stop()
	if srv.Standby() {
		supervisor.ready(standingBy)
	}
	for open := false; !open; {
		select {
		case <-tick.C:
			if srv.Standby() {
				supervisor.ready(standingBy)
				continue
			}
			supervisor.starting(recoveryTold, fmt.Sprintf("recovering: %.0f %%", 100*srv.Recovered()))
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
	log.Info("ready", "url", url)
	supervisor.ready("ready at " + url)
	fmt.Fprintf(out, "weir %s is ready at %s, data in %s\n", version(), url, cfg.DataDir)
	select {
	case <-ctx.Done():
		return nil
	case err := <-served:
		served <- nil
		return err
	}
}

// startError is nil if a signal cancelled the start.
func startError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the data directory cannot be opened: %w", err)
}
