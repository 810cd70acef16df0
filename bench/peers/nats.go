package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const subject = "bench.records"

// serveNATS runs a JetStream server that syncs its file store after every
// message, prints its URL and serves until ctx ends.
func serveNATS(ctx context.Context, dir string) error {
	if dir == "" {
		return errors.New("nats-serve needs -dir, the store directory")
	}
	srv, err := server.NewServer(&server.Options{
		Host:       "127.0.0.1",
		Port:       server.RANDOM_PORT,
		JetStream:  true,
		StoreDir:   dir,
		SyncAlways: true,
		NoLog:      true,
		NoSigs:     true,
	})
	if err != nil {
		return fmt.Errorf("nats server: %w", err)
	}
	srv.Start()
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	if !srv.ReadyForConnections(10 * time.Second) {
		return errors.New("nats server: not ready after 10 s")
	}
	fmt.Println(srv.ClientURL())
	<-ctx.Done()
	return nil
}

// loadNATS publishes payload to a fresh file-backed stream, one connection
// per publisher, each waiting for the acknowledgement of its message.
func loadNATS(ctx context.Context, url string, payload []byte, p plan) (result, error) {
	streams, err := connectNATS(url)
	if err != nil {
		return result{}, err
	}
	defer streams.Conn().Close()
	const name = "bench"
	if err := streams.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return result{}, fmt.Errorf("delete stream %q: %w", name, err)
	}
	if _, err := streams.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{subject}, Storage: jetstream.FileStorage,
	}); err != nil {
		return result{}, fmt.Errorf("create stream %q: %w", name, err)
	}
	senders := make([]publish, p.publishers)
	for i := range senders {
		js, err := connectNATS(url)
		if err != nil {
			return result{}, err
		}
		defer js.Conn().Close()
		senders[i] = func(ctx context.Context) error {
			_, err := js.Publish(ctx, subject, payload)
			return err
		}
	}
	return drive(ctx, p, senders)
}

func connectNATS(url string) (jetstream.JetStream, error) {
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return js, nil
}
