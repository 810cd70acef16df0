package contract

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// fakeStream answers /sse with the text in the header X-Text and /ws with an
// upgrade that sends back each message.
func fakeStream(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/sse":
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Accel-Buffering", "no")
		_, _ = io.WriteString(w, strings.ReplaceAll(r.Header.Get("X-Text"), `\n`, "\n"))
	case "/ws":
		conn, both, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
		echo(both.Reader, conn)
	}
}

// echo sends small client frames back without their mask.
func echo(in *bufio.Reader, out io.Writer) {
	for {
		head := make([]byte, 6)
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		payload := make([]byte, head[1]&0x7f)
		if _, err := io.ReadFull(in, payload); err != nil {
			return
		}
		for i := range payload {
			payload[i] ^= head[2+i%4]
		}
		_, _ = out.Write(append([]byte{head[0], head[1] & 0x7f}, payload...))
	}
}

func runStream(t *testing.T, text string) string {
	t.Helper()
	cases, err := Parse("text", "=== c [§12.3]\n"+text)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(fakeStream))
	defer server.Close()
	r := NewRunner("r")
	defer r.Close()
	f := &failures{TB: t}
	r.Run(f, cases[0], foreign(server.URL))
	return strings.Join(f.text, "\n")
}

func TestRunnerReadsStreams(t *testing.T) {
	const begin = "OPEN s /sse\nX-Text: retry: 2000\\n\\n"
	for text, want := range map[string]string{
		begin + `id: eyJhIjo0LCJiIjowfQ\nevent: record\ndata: {"a":1}\n\n: hb 1\n\n` + "\n> 200\n> frame record {\"a\":1}\n> id {\"a\":4,\"b\":0}\n> raw-id @id({\"a\":4,\"b\":0})\n> end": "",
		begin + `: hb 1\n\n` + "\n> 200\n> frame hb\n> end":                                                  "",
		begin + `id: eyJhIjo0LCJiIjowfQ\nevent: x\ndata: {"a":1}\n\n` + "\n> 200\n> frame x\n> id {\"a\":4}": "unexpected member",
		begin + `event: x\ndata: {"a":1}\n\n` + "\n> 200\n> frame x {\"a\":2}":                               "data.a is 1",
		begin + `event: x\ndata: {"a":1}\n\n` + "\n> 200\n> frame y":                                         "got x",
		begin + `event: x\ndata: {"a": 1}\n\n` + "\n> 200\n> frame x":                                        "not compact",
		begin + `event:x\ndata: {}\n\n` + "\n> 200\n> frame x":                                               "bad",
		begin + `event: x\ndata: {}\n` + "\n> 200\n> frame x":                                                "inside a frame",
		begin + "\n> 200\n> frame x":                                                                         "got end",
		begin + `event: x\ndata: {}\n\n` + "\n> 200\n> end":                                                  "want the end",
		begin + `event: x\ndata: {}\n\n` + "\n> 200\n> quiet 5s":                                             "want nothing",
		"OPEN s /sse\nX-Text: retry: 5\\n\\n\n> 200\n> end":                                                  "the first block",
		"OPEN s /other\n> 200": "Content-Type of the stream",
		"WS w /ws\n> 101\nON w {\"a\":[1]}\n> message {\"a\":[1]}\nON w 1\nON w 2\n> among 2\n> message 1": "",
		"WS w /ws\n> 101\nON w {\"a\":1}\n> message {\"a\":2}":                                             "data.a is 1",
		"WS w /ws\n> 101\nON w @binary x\n> message":                                                       "got binary",
		"WS w /ws\n> 101\nON w @close 1001\n> end 1000":                                                    "want the end",
		"WS w /ws\n> 101\nON w @close 1001\n> end 1001":                                                    "",
		"WS w /sse\n> 101": "status is 200",
		"ON w 1":           "not open",
	} {
		if got := runStream(t, text); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s\nreported %q, want %q in it", text, got, want)
		}
	}
}
