package relay_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/bubble"
)

// The page of a relay says that the upstream is away, and goes on to say so.
func TestTheMetricsAreThereWhileTheUpstreamIsAway(t *testing.T) {
	for name, keys := range map[string]string{"with keys": "scraper:r,writer:w", "without keys": ""} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				p := newPlace(t, keys)
				scraper := ""
				if keys != "" {
					scraper = "scraper"
				}
				says := func(connected string) {
					t.Helper()
					status, page := p.call(scraper, "GET", "/metrics", "")
					for _, name := range []string{
						"topics", "topics_behind", "buffer_bytes", "received_bytes_total", "reads_total", "failed_total",
						"connections_lost_total", "sessions", "dropped_slow_total", "listeners_lagged",
					} {
						if !strings.Contains(page, "\nweir_relay_"+name+" ") {
							t.Errorf("weir_relay_%s is missing", name)
						}
					}
					if status != http.StatusOK || !strings.Contains(page, "weir_relay_upstream_connected "+connected+"\n") {
						t.Errorf("%d, want weir_relay_upstream_connected %s: %.300s", status, connected, page)
					}
				}
				time.Sleep(time.Second)
				says("1")
				p.kill()
				time.Sleep(time.Second)
				says("0")
				time.Sleep(time.Minute)
				says("0")
				if keys != "" {
					for _, key := range []string{"", "stranger", "writer"} {
						if status, _ := p.call(key, "GET", "/metrics", ""); status != http.StatusServiceUnavailable {
							t.Errorf("the key %q, of which nothing is known, gets %d", key, status)
						}
					}
				}
				p.keys = strings.Replace(p.keys, "scraper:r", "scraper:w", 1)
				p.start()
				time.Sleep(10 * time.Second)
				if keys == "" {
					says("1")
					return
				}
				if status, _ := p.call(scraper, "GET", "/metrics", ""); status != http.StatusForbidden {
					t.Errorf("a key that may not read any more gets %d", status)
				}
				p.kill()
				time.Sleep(10 * time.Second)
				if status, _ := p.call(scraper, "GET", "/metrics", ""); status != http.StatusServiceUnavailable {
					t.Errorf("a key that was refused last gets %d", status)
				}
				p.start()
			})
		})
	}
}
