package cloudevents

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/weirmq/weir/tests/weirtest"
)

// goEvents are events with data of each kind.
func goEvents(t *testing.T) []event.Event {
	t.Helper()
	var events []event.Event
	for i, data := range []struct {
		kind string
		body []byte
	}{
		{"application/json", []byte(`{"a":[1,2.5,null],"ü":"x"}`)},
		{"application/json", []byte(`"text"`)},
		{"text/plain", []byte("Grüße\n\"x\"")},
		{"application/xml", []byte("<a>&lt;</a>")},
		{"image/png", []byte{0, 255, 16, 128}},
		{"", nil},
	} {
		e := event.New()
		e.SetID("go-" + strconv.Itoa(i))
		e.SetSource("/tests/go")
		e.SetType("weir.test")
		e.SetSubject("s/1")
		e.SetTime(time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC))
		e.SetExtension("place", "somewhere")
		if data.body != nil {
			if err := e.SetData(data.kind, data.body); err != nil {
				t.Fatal(err)
			}
		}
		events = append(events, e)
	}
	return events
}

func TestEventsOfTheGoSDKComeBackUnchanged(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{})
	events := goEvents(t)
	for mode, with := range map[string]func(*http.Request) *http.Request{
		"binary":     func(r *http.Request) *http.Request { return r.WithContext(binding.WithForceBinary(r.Context())) },
		"structured": func(r *http.Request) *http.Request { return r.WithContext(binding.WithForceStructured(r.Context())) },
	} {
		t.Run(mode, func(t *testing.T) {
			topic := s.URL + "/v0/topics/" + mode
			for i, e := range events {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, topic, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := cehttp.WriteRequest(with(req).Context(), binding.ToMessage(&e), req); err != nil {
					t.Fatal(err)
				}
				done(t, req).Body.Close()
				for _, accept := range []string{"", "application/cloudevents+json"} {
					same(t, read(t, topic+"/records/"+strconv.Itoa(i+1), accept), &e)
				}
			}
			all := batch(t, topic)
			if len(all) != len(events) {
				t.Fatalf("a diff has %d events, want %d", len(all), len(events))
			}
			for i := range all {
				same(t, &all[i], &events[i])
			}
		})
	}
}

func TestABatchOfTheGoSDKComesBackUnchanged(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{})
	events := goEvents(t)
	topic := s.URL + "/v0/topics/batch"
	req, err := cehttp.NewHTTPRequestFromEvents(t.Context(), topic, events)
	if err != nil {
		t.Fatal(err)
	}
	done(t, req).Body.Close()
	for i, e := range batch(t, topic) {
		same(t, &e, &events[i])
	}
}

// done sends a request, which has to succeed.
func done(t *testing.T, req *http.Request) *http.Response {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s", req.Method, req.URL, resp.Status)
	}
	return resp
}

// read has the SDK read a record.
func read(t *testing.T, url, accept string) *event.Event {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp := done(t, req)
	defer resp.Body.Close()
	e, err := cehttp.NewEventFromHTTPResponse(resp)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// batch has the SDK read a diff.
func batch(t *testing.T, topic string) []event.Event {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, topic+"/diff", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/cloudevents-batch+json")
	resp := done(t, req)
	defer resp.Body.Close()
	all, err := cehttp.NewEventsFromHTTPResponse(resp)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func same(t *testing.T, got, want *event.Event) {
	t.Helper()
	if err := got.Validate(); err != nil {
		t.Errorf("%s: %v", want.ID(), err)
	}
	if got.Context.String() != want.Context.String() || !bytes.Equal(got.Data(), want.Data()) {
		t.Errorf("got %s\n%q\nwant %s\n%q", got.Context, got.Data(), want.Context, want.Data())
	}
}

func TestEventsOfThePythonSDKComeBackUnchanged(t *testing.T) {
	script(t, "python", "PYTHONPATH=", "python3", "testdata/sdk.py")
}

func TestEventsOfTheJavaScriptSDKComeBackUnchanged(t *testing.T) {
	script(t, "javascript", "NODE_PATH=", "node", "testdata/sdk.cjs")
}

// script runs a program on the SDK that scripts/cloudevents.sh has put into the folder of
// the cache, which variable points to.
func script(t *testing.T, folder, variable string, command ...string) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "weir", "cloudevents", folder)
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("run make deps, which installs it: %v", err)
	}
	if folder == "javascript" {
		dir = filepath.Join(dir, "node_modules")
	}
	s := weirtest.Start(t, weirtest.Options{})
	cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], s.URL+"/v0/topics/"+folder)...)
	cmd.Env = append(os.Environ(), variable+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "ok 6") {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
}
