package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/relay"
	"github.com/weirmq/weir/internal/server"
)

// loadRelay checks the settings of a relay.
func (o *serveOptions) loadRelay() error {
	up := &o.upstream
	target, err := client.ParseServerURL(up.Upstream)
	switch {
	case err != nil:
		return &usageError{fmt.Errorf("setting upstream: %w", err)}
	case target.Key != "":
		return &usageError{errors.New("setting upstream: a key does not belong in the URL, where everyone on the machine can see it; set WEIR_UPSTREAM_KEY")}
	case strings.Contains(target.Base, ","):
		return &usageError{errors.New("setting upstream: a relay stands in front of one address; put what chooses between several in front of them")}
	case o.Keys != nil:
		return &usageError{errors.New("a relay has no keys of its own: its upstream decides; unset WEIR_API_KEYS and keys_file")}
	}
	if r := &o.Replica; r.URL != "" || r.Sync || r.Failover || r.Standby {
		return &usageError{errors.New("a relay has no log of its own to copy or to take over: --replica, --replica-sync, --failover and --standby belong to its upstream")}
	}
	if strings.HasPrefix(target.Base, "https:") {
		target.Certs.CA = cmp.Or(target.Certs.CA, o.ca)
	}
	up.Upstream, up.Certs, up.Limits, up.MinHeartbeatMS = target.Base, target.Certs, o.Limits, o.MinHeartbeatMS
	up.OpenToAll = o.AllowInsecure || o.BindsLoopback()
	return nil
}

// serveRelay runs a relay until ctx ends.
func serveRelay(ctx context.Context, o *serveOptions, options server.Options, out io.Writer) error {
	log := options.Logger
	l, url, err := listen(&o.Config, &options)
	if err != nil {
		return err
	}
	o.upstream.Logger = log
	if options.Relay, err = relay.New(o.upstream); err != nil {
		return errors.Join(err, l.Close())
	}
	srv := server.New(o.Config, options)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	supervisor := newNotifier(log)
	err = writePortFile(o.PortFile, afterScheme(url))
	if err == nil {
		supervisor.ready("a relay at " + url + ", in front of " + o.upstream.Upstream)
		fmt.Fprintf(out, "weir %s is a relay at %s, in front of %s\n", version(), url, o.upstream.Upstream)
		select {
		case <-ctx.Done():
		case err = <-served:
			served <- nil
		}
	}
	begin := time.Now()
	log.Info("stopping: new requests are refused, running ones have 10 s")
	supervisor.stopping()
	srv.Stop()
	err = errors.Join(err, <-served)
	log.Info("stopped", "seconds", time.Since(begin).Seconds())
	return err
}

// relayed is what doctor says of a relay: the numbers are those of the server behind it.
func relayed(ctx context.Context, keys *keyOptions, raw string) []backend.Finding {
	target, err := client.ParseTopicURL(raw)
	if err != nil {
		return nil // of another kind
	}
	c, err := keys.connect(target)
	if err != nil {
		return nil // whoever opens the stream says so
	}
	defer c.Close()
	upstream, err := c.Upstream(ctx)
	if err != nil || upstream == "" {
		return nil
	}
	return []backend.Finding{{
		Code: "relay", Severity: backend.SeverityInfo, Concern: backend.OfServer,
		Problem: "this is a relay in front of " + upstream + ", which has the stream",
		Advice:  "look there for what concerns the server; the relay's own numbers are at its /metrics",
	}}
}
