// Command server is gofakes3 in memory, with a bucket, for tests: it prints its
// address and ends when its standard input does. A second argument delays every
// answer by a duration.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

func main() {
	backend := s3mem.New()
	if err := backend.CreateBucket(os.Args[1]); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	handler := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	if len(os.Args) > 2 {
		delay, err := time.ParseDuration(os.Args[2])
		if err != nil {
			log.Fatal(err)
		}
		handler = delayed(handler, delay)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	log.Fatal(server.Serve(listener))
}

// delayed is a handler that is far away.
func delayed(near http.Handler, delay time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(delay)
		near.ServeHTTP(w, r)
	})
}
