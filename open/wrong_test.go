package open_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/embedded"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/backend/remote"
	"github.com/weirmq/weir/open"
)

// A program is told what mends an https URL of a server without TLS, as a command is.
func TestAnHTTPSURLOfAServerWithoutTLSIsExplained(t *testing.T) {
	server := httptest.NewServer(nil)
	defer server.Close()
	s, err := open.URL(t.Context(), strings.Replace(server.URL, "http:", "https:", 1)+"/orders")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := weir.NewProducer(s, weir.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	err = p.Publish(t.Context(), weir.Message{Data: []byte("1")})
	if want := "the server does not speak TLS: use http://"; !errors.Is(err, weir.ErrUnavailable) || strings.Count(err.Error(), want) != 1 {
		t.Errorf("%v should be ErrUnavailable and say %q", err, want)
	}
}

// A URL that is nil, as url.Parse returns it with an error, is an error.
func TestAURLThatIsNilIsAnError(t *testing.T) {
	var none *url.URL
	for name, open := range map[string]func(context.Context) error{
		"redis":    func(ctx context.Context) error { _, err := redis.Open(ctx, none); return err },
		"kafka":    func(ctx context.Context) error { _, err := kafka.Open(ctx, none); return err },
		"remote":   func(ctx context.Context) error { _, err := remote.Open(ctx, none); return err },
		"embedded": func(ctx context.Context) error { _, err := embedded.Open(ctx, none); return err },
	} {
		var wrong *backend.URLError
		if err := open(t.Context()); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "the URL is nil") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
