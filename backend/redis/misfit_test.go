package redis_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
)

// openError opens a URL that does not fit its server.
func openError(t *testing.T, rawURL string) error {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	var b *redis.Backend
	for try, slow := 0, true; slow && try < 5; try++ { // which has not heard the server by then
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		stalled := stall.Watch()
		b, err = redis.Open(ctx, u)
		slow = stalled() > time.Second/2
		cancel()
	}
	if err == nil {
		_ = b.Close()
		t.Errorf("%s opens", rawURL)
		return errors.New("none")
	}
	return err
}

// says checks that an error is one sentence with some words, and that nobody is told
// to try again.
func says(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v; want it to say %q", what, err, word)
		}
	}
	if backend.Retryable(err) || len(err.Error()) > 280 || strings.Contains(err.Error(), "sesame") {
		t.Errorf("%s: %v", what, err)
	}
}

func TestAURLThatDoesNotFitItsServerIsSaidInOneSentence(t *testing.T) {
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	selfSigned(t, certificate, key)
	_, secure := redistest.StartTLS(t, certificate, key, certificate, "--tls-auth-clients", "no")
	far := redistest.NewProxy(t, secure)
	far.Set(redistest.Fault{Latency: 200 * time.Millisecond})
	says(t, "TLS far away", openError(t, "redis://"+far.Addr()+"/0?stream=jobs"), "scheme redis", "use rediss://")
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	says(t, "a web server", openError(t, strings.Replace(web.URL, "http:", "redis:", 1)+"/0?stream=jobs"), "speaks HTTP, not Redis", "use http://")
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		plain := s.Addr()
		locked := redistest.Start(t, redistest.Options{Args: []string{"--requirepass", "sesame"}}).Addr()
		for rawURL, words := range map[string][]string{
			"redis://" + secure + "/0?stream=jobs":               {"scheme redis", "rediss://", secure},
			"rediss://" + plain + "/0?stream=jobs":               {"scheme rediss", "redis://", plain},
			"redis://" + plain + "/0?stream=jobs&master=main":    {"master=main", "is not a Sentinel", plain},
			"redis://" + plain + "," + plain + "/?stream=jobs":   {"Cluster", "master=NAME", plain},
			"redis://" + plain + "/99?stream=jobs":               {"database 99"},
			"redis://" + locked + "/0?stream=jobs":               {"USER:PASSWORD@", locked},
			"redis://:sesame0@" + locked + "/0?stream=jobs":      {"user and password", locked},
			"redis://" + plain + "/?stream=j&sentinel_user=name": {"master=NAME"},
		} {
			says(t, rawURL, openError(t, rawURL), words...)
		}
		if strings.HasSuffix(t.Name(), "/5.0.6") { // later ones take any
			says(t, "a password for none", openError(t, "redis://:sesame@"+plain+"/0?stream=jobs"), "password", "leave")
		}
	})
}

func TestAURLThatDoesNotFitItsSentinelsIsSaidInOneSentence(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, redistest.Options{Steady: true})
	first := s.Sentinels[0].Addr()
	all := strings.Split(strings.TrimPrefix(s.URL(), "redis://"), "/")[0]
	says(t, "no master", openError(t, "redis://"+first+"/0?stream=jobs"), "is a Sentinel", "master=NAME", first)
	says(t, "no master for three", openError(t, "redis://"+all+"/0?stream=jobs"), "Cluster", "master=NAME")
	says(t, "an unknown master", openError(t, "redis://"+all+"/0?stream=jobs&master=nobody"), "master=nobody", "SENTINEL MASTERS")

	for _, w := range s.Sentinels {
		if err := w.Client().Do(t.Context(), "ACL", "SETUSER", "default", "resetpass", ">sesame").Err(); err != nil {
			t.Fatal(err)
		}
	}
	says(t, "no password", openError(t, s.URL()+"&stream=jobs"), "sentinel_password=")
	says(t, "a wrong password", openError(t, s.URL()+"&stream=jobs&sentinel_password=sesame0"), "sentinel_password=")
	b := openOn(t, s.URL()+"&stream=jobs&sentinel_password=sesame")
	defer func() { _ = b.Close() }()
	publish(t, b, 1)
	if got := claim(t, b, backend.ClaimRequest{Max: 1}); len(got.Deliveries) != 1 {
		t.Errorf("claimed %d behind Sentinels with a password", len(got.Deliveries))
	}
}
