package main

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/certs"
	"github.com/weirmq/weir/internal/overload"
)

// newCallersCmd is what bench overload runs with --processes.
func newCallersCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "callers",
		Short:  "Be a part of the callers of bench overload, which starts this",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return overload.Callers(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), func(ctx context.Context, raw string) (*weir.Stream, error) {
				return openStream(ctx, &keyOptions{}, raw)
			})
		},
	}
}

// one runs an arm on the stream of a URL.
func (b *overloadBench) one(ctx context.Context, arm overload.Arm, raw string) (*overload.Result, error) {
	raw, err := b.opt.keys.complete(raw) // so that the processes have it all, too
	if err != nil {
		return nil, err
	}
	return overload.Run(ctx, b.opt.scenario, arm, overload.Target{
		URL:   raw,
		Open:  func(ctx context.Context) (*weir.Stream, error) { return openStream(ctx, &keyOptions{}, raw) },
		Spawn: b.spawn,
		Halt:  b.halt,
	})
}

// spawn starts a process of callers.
func (b *overloadBench) spawn(ctx context.Context) (*overload.Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "bench", "callers")
	cmd.Stderr = b.errOut
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &overload.Process{In: in, Out: out, Wait: cmd.Wait}, nil
}

// halt has the Redis server stand still.
func (b *overloadBench) halt(ctx context.Context, d time.Duration) error {
	raw, err := b.opt.keys.complete(b.base)
	if err != nil {
		return err
	}
	c := redis.NewClient(redisOptions(raw))
	defer c.Close()
	return c.Do(ctx, "CLIENT", "PAUSE", d.Milliseconds()).Err()
}

// redisScheme is that of a URL of Redis, else empty.
func redisScheme(raw string) string {
	if scheme := schemeOf(raw); scheme == "redis" || scheme == "rediss" {
		return scheme
	}
	return ""
}

// redisOptions leads to the server of a URL, nil if it is not a single Redis server.
func redisOptions(raw string) *redis.Options {
	u, err := url.Parse(raw)
	if err != nil || redisScheme(raw) == "" || u.Query().Has("master") || strings.Contains(u.Host, ",") {
		return nil
	}
	query := u.Query()
	u.RawQuery = ""
	opt, err := redis.ParseURL(u.String())
	if err != nil {
		return nil
	}
	if opt.TLSConfig != nil { // whoever opens the stream says what is wrong with the files
		opt.TLSConfig, _ = certs.Client{CA: query.Get("ca"), Cert: query.Get("cert"), Key: query.Get("key")}.Config()
	}
	opt.Protocol, opt.DisableIdentity = 2, true
	return opt
}
