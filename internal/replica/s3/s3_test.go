package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/replicatest"
	"github.com/weirmq/weir/internal/replica/s3"
	"github.com/weirmq/weir/internal/replica/slots"
	"github.com/weirmq/weir/tests/s3test"
)

func TestMain(m *testing.M) {
	os.Setenv("AWS_ACCESS_KEY_ID", "test")
	os.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	code := m.Run()
	s3test.Clean()
	os.Exit(code)
}

func open(t testing.TB, addr, prefix string) *s3.Store {
	t.Helper()
	u, err := url.Parse(s3test.URL(addr, prefix))
	if err != nil {
		t.Fatal(err)
	}
	store, err := s3.Open(u)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

var options = slots.Options{Grace: time.Nanosecond, Keep: 8}

func TestLogAndFilesInABucket(t *testing.T) {
	server := s3test.Start(t)
	replicatest.Run(t, replicatest.Harness{
		Keeps: 8,
		Large: 16 << 20,
		Log:   func(t testing.TB, name string) replica.Log { return slots.New(open(t, server.Addr, name), options) },
		Files: func(t testing.TB, name string) replica.Files { return open(t, server.Addr, name) },
		Faulty: func(t testing.TB, name string) (replica.Log, replicatest.Inject) {
			p := server.Proxy(t)
			return slots.New(open(t, p.Addr, name), options), p.Inject
		},
	})
}

// lead returns a log in a bucket behind a proxy, which leads.
func lead(t *testing.T) (*slots.Log, *s3test.Proxy) {
	t.Helper()
	p := s3test.Start(t).Proxy(t)
	log := slots.New(open(t, p.Addr, "copy"), options)
	t.Cleanup(func() { log.Close() })
	if _, err := log.Lead(t.Context(), "node"); err != nil {
		t.Fatal(err)
	}
	return log, p
}

func TestTornCallsAreMadeAgain(t *testing.T) {
	log, p := lead(t)
	p.TearPuts.Store(2)
	want := strings.Repeat("the whole entry ", 1000)
	done := make(chan error, 1)
	if err := log.Append(t.Context(), []byte(want), func(_ uint64, err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	p.TearGets.Store(2)
	var got []string
	for after := uint64(0); ; {
		e, err := log.Read(t.Context(), after)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		after, got = e.Pos, append(got, string(e.Data))
	}
	if !slices.Equal(got, []string{"", want}) {
		t.Errorf("read %.60q", got)
	}
}

// Some stores take the second object, others answer that they do not know the condition.
func TestStoreWithoutConditionalPutIsRefused(t *testing.T) {
	for name, has := range map[string]func(*s3test.Proxy) *atomic.Bool{
		"it takes both": func(p *s3test.Proxy) *atomic.Bool { return &p.Unconditional },
		"it says so":    func(p *s3test.Proxy) *atomic.Bool { return &p.Unimplemented },
	} {
		p := s3test.Start(t).Proxy(t)
		has(p).Store(true)
		log := slots.New(open(t, p.Addr, "copy"), options)
		defer log.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := log.Lead(ctx, "node"); !errors.Is(err, slots.ErrNoConditionalPut) {
			t.Errorf("%s: Lead: %v", name, err)
		}
	}
}

func TestARefusalIsTold(t *testing.T) {
	p := s3test.Start(t).Proxy(t)
	p.Deny.Store(true)
	log := slots.New(open(t, p.Addr, "copy"), options)
	defer log.Close()
	for name, call := range map[string]func() error{
		"Lead": func() error { _, err := log.Lead(t.Context(), "node"); return err },
		"Read": func() error { _, err := log.Read(t.Context(), 0); return err },
	} {
		if err := call(); !errors.Is(err, replica.ErrRefused) || !strings.Contains(err.Error(), "AccessDenied") || !strings.Contains(err.Error(), "bucket weir") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRightsThatComeBackHelpAnAppend(t *testing.T) {
	p := s3test.Start(t).Proxy(t)
	told := make(chan error, 100)
	opt := options
	opt.Trouble = func(err error) { told <- err }
	log := slots.New(open(t, p.Addr, "copy"), opt)
	defer log.Close()
	if _, err := log.Lead(t.Context(), "node"); err != nil {
		t.Fatal(err)
	}
	p.Deny.Store(true)
	done := make(chan error, 1)
	if err := log.Append(t.Context(), []byte("entry"), func(_ uint64, err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-told; !errors.Is(err, replica.ErrRefused) {
		t.Errorf("told %v", err)
	}
	p.Deny.Store(false)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestURLs(t *testing.T) {
	for address, want := range map[string]string{
		"s3://bucket":        "",
		"s3://bucket/a/b/c/": "",
		"s3://bucket/a?region=eu-west-1&endpoint=minio.example:9000": "",
		"s3://bucket/a?endpoint=http://127.0.0.1:9000":               "",
		"s3://bucket/a?endpoint=http://minio.example:9000":           "is not encrypted",
		"s3://bucket/a?endpoint=ftp://minio.example":                 "cannot be read",
		"s3://bucket/a?zone=1":                                       "known: endpoint, region",
		"s3://me:secret@bucket/a":                                    "AWS_ACCESS_KEY_ID",
		"s3:///a":                                                    "names no bucket",
		"s3://b/a":                                                   "no bucket can be named",
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s3.Open(u)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells the secret: %v", address, err)
		}
	}
}

func TestOneOfManyCreatesAName(t *testing.T) {
	store := open(t, s3test.Start(t).Addr, "copy")
	var all sync.WaitGroup
	var mu sync.Mutex
	created := 0
	for range 16 {
		all.Go(func() {
			err := store.Create(context.Background(), "log/1", []byte("entry"))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				created++
			} else if !errors.Is(err, slots.ErrExists) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if created != 1 {
		t.Errorf("%d have created it", created)
	}
}

// listing is a server that answers every call with a list of these objects.
func listing(t *testing.T, names ...string) *s3.Store {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>weir</Name><IsTruncated>false</IsTruncated>`)
		for _, name := range names {
			fmt.Fprintf(w, `<Contents><Key>copy/%s</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>1</Size></Contents>`, name)
		}
		fmt.Fprint(w, `</ListBucketResult>`)
	}))
	t.Cleanup(server.Close)
	return open(t, strings.TrimPrefix(server.URL, "http://"), "copy")
}

// Who leads, and where the log ends, is what a list has last: the store must list in order, and from
// where it is told to. The directory buckets of Amazon do neither.
func TestAStoreThatListsOutOfOrderIsRefused(t *testing.T) {
	for what, names := range map[string][]string{
		"out of order":          {"term/0000000002", "term/0000000001"},
		"always from its start": {"term/0000000001", "term/0000000002"},
	} {
		log := slots.New(listing(t, names...), options)
		defer log.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if newest, err := log.Newest(ctx); !errors.Is(err, replica.ErrRefused) {
			t.Errorf("%s: %+v, %v", what, newest, err)
		}
	}
}

// A list comes in pages. One of which a page is missing is no list: what is behind it would seem not to be
// there, and a log to end where it does not.
func TestAListThatBreaksOffIsAnError(t *testing.T) {
	for what, second := range map[string]func(cancel func(), w http.ResponseWriter, r *http.Request){
		"refused": func(_ func(), w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"torn": func(_ func(), w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `<ListBucketResult><IsTruncated>false</IsTruncated>`)
		},
		"given up": func(cancel func(), _ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		},
		"whole": nil,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name, more := "base/1", true
			if r.URL.Query().Get("continuation-token") == "next" {
				if second != nil {
					second(cancel, w, r)
					return
				}
				name, more = "base/2", false
			}
			fmt.Fprintf(w, `<ListBucketResult><IsTruncated>%t</IsTruncated><NextContinuationToken>next</NextContinuationToken>
				<Contents><Key>copy/%s</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>1</Size></Contents></ListBucketResult>`, more, name)
		}))
		files, err := open(t, strings.TrimPrefix(server.URL, "http://"), "copy").List(ctx, "base/")
		server.Close()
		switch {
		case second != nil && err == nil:
			t.Errorf("with a second page that is %s: %+v, want an error", what, files)
		case second == nil && (err != nil || len(files) != 2 || files[1].Name != "base/2"):
			t.Errorf("two whole pages: %+v, %v", files, err)
		}
	}
}
