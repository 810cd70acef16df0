package server

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Answers of every size come whole and in order, those around net/http's buffer too, whatever
// was asked before and is asked behind on the same connection.
func TestAnswersOfEverySizeComeWhole(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	body := func(n int) []byte { return bytes.Repeat([]byte(strconv.Itoa(n)+" "), n)[:n] }
	srv := &http.Server{ConnContext: withConn, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		w.Header()["Content-Length"] = []string{strconv.Itoa(n)}
		inOneWrite(r, n)
		w.Write(body(n))
	})}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(oneWriteListener{l}) }()
	defer func() { srv.Close(); <-served }()

	var sizes []int
	for n := headBuffer - 300; n < headBuffer+300; n++ {
		sizes = append(sizes, n)
	}
	sizes = append(sizes, 0, 1, 2*headBuffer, 100_000, 1, 1<<20, 2, 30_000)
	type asked struct {
		method string
		n      int
	}
	var all []asked
	for i, n := range sizes {
		if i%7 == 3 {
			all = append(all, asked{"HEAD", n})
		}
		all = append(all, asked{"GET", n})
	}
	for _, pipelined := range []int{1, 4} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		in := bufio.NewReader(c)
		for i := 0; i < len(all); i += pipelined {
			batch := all[i:min(i+pipelined, len(all))]
			var out strings.Builder
			for _, a := range batch {
				fmt.Fprintf(&out, "%s /?n=%d HTTP/1.1\r\nHost: x\r\n\r\n", a.method, a.n)
			}
			if _, err := c.Write([]byte(out.String())); err != nil {
				t.Fatal(err)
			}
			for _, a := range batch {
				res, err := http.ReadResponse(in, &http.Request{Method: a.method})
				if err != nil {
					t.Fatalf("%s of %d bytes, %d at a time: %v", a.method, a.n, pipelined, err)
				}
				want := ""
				if a.method == "GET" {
					want = string(body(a.n))
				}
				if got := readReply(t, res).body; got != want {
					t.Fatalf("%s of %d bytes, %d at a time: %d bytes came, or others", a.method, a.n, pipelined, len(got))
				}
			}
		}
	}
}
