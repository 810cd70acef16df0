// Command handlers serves the bare net/http handlers that weir is measured
// against. Each does the part of a request's work that no server can leave out
// and nothing else, on the same net/http with the same settings:
//
//	handlers empty               read the body
//	handlers validate            read the body, validate it with weir's scanner, drop it
//	handlers bytes -file F       read the body, answer with the bytes of F from memory
//	handlers syncfile -file F    read the body, write it to the prewritten file F, fdatasync
//	handlers hub                 GET: a stream of events; else: send the record in the body to all streams
//	handlers idle                a stream on which nothing happens
//
// Every request path gets the same answer. The first line of output is
// host:port; SIGTERM ends it.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const names = "empty, validate, bytes, syncfile, hub or idle"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "handlers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("name a handler: %s", names)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	file := flags.String("file", "", "what bytes answers with, or what syncfile writes to")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	handler, err := choose(args[0], *file)
	if err != nil {
		return err
	}
	return serve(ctx, handler)
}

func choose(name, file string) (http.Handler, error) {
	switch name {
	case "empty":
		return http.HandlerFunc(empty), nil
	case "validate":
		return http.HandlerFunc(validate), nil
	case "bytes":
		body, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("bytes needs -file with the answer: %w", err)
		}
		return fixed(body), nil
	case "syncfile":
		return openSyncFile(file)
	case "hub":
		return newHub(), nil
	case "idle":
		return http.HandlerFunc(idle), nil
	}
	return nil, fmt.Errorf("unknown handler %q: use %s", name, names)
}

// serve answers with h on a free loopback port until ctx ends.
func serve(ctx context.Context, h http.Handler) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Println(listener.Addr())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		server.Close()
		<-served
		return nil
	}
}
