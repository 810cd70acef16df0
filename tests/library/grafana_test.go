package library

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

// ask asks Prometheus for something below /api/v1.
func (m *monitor) ask(path string, data any) error {
	resp, err := http.Get(m.url + "/api/v1/" + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &struct{ Data any }{data})
}

// query returns whether a query is answered with at least one number.
func (m *monitor) query(expr string) bool {
	var data struct {
		Result []struct{ Value [2]any }
	}
	if err := m.ask("query?query="+url.QueryEscape(expr), &data); err != nil {
		return false
	}
	for _, r := range data.Result {
		if v, _ := r.Value[1].(string); v != "" && v != "NaN" {
			return true
		}
	}
	return false
}

// dashboard is what is of interest of a dashboard of Grafana.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
	Templating struct {
		List []struct {
			Name  string
			Query any
		}
	}
}

// answersEveryPanel fails the test if a query of a dashboard in docs/grafana has no
// number for an answer.
func (m *monitor) answersEveryPanel() {
	m.t.Helper()
	files, err := filepath.Glob("../../docs/grafana/*.json")
	if err != nil || len(files) == 0 {
		m.t.Fatal("no dashboards", err)
	}
	variable := regexp.MustCompile(`\$(\w+)`)
	var open []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			m.t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			m.t.Fatalf("%s: %v", file, err)
		}
		known := map[string]bool{"__rate_interval": true}
		for _, v := range d.Templating.List {
			known[v.Name] = true
		}
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				expr := variable.ReplaceAllStringFunc(strings.ReplaceAll(target.Expr, "$__rate_interval", "5s"), func(name string) string {
					if !known[name[1:]] {
						m.t.Errorf("%s, %s: the variable %s is not defined", file, panel.Title, name)
					}
					return ".*"
				})
				open = append(open, expr)
			}
		}
	}
	m.t.Logf("%d queries of %d dashboards", len(open), len(files))
	begin := time.Now()
	weirtest.Eventually(m.t, "every query of the dashboards is answered", func() bool {
		var left []string
		for _, expr := range open {
			if !m.query(expr) {
				left = append(left, expr)
			}
		}
		open = left
		return len(open) == 0 || time.Since(begin) > time.Minute
	})
	for _, expr := range open {
		m.t.Errorf("no data: %s", expr)
	}
}

// hasEveryMetricOfThePage fails the test if docs/OPERATIONS.md or docs/alerts.yml names a
// metric that no command and no server has.
func (m *monitor) hasEveryMetricOfThePage() {
	m.t.Helper()
	var names []string
	if err := m.ask("label/__name__/values", &names); err != nil {
		m.t.Fatal(err)
	}
	have := map[string]bool{ // some are there only under load, with a guard in shadow mode, or with TLS
		"weir_topic_queue_wait_seconds": true, "weir_topic_queue_drain_per_second": true, "weir_stream_shadow_decisions_total": true,
		"weir_tls_certificate_end_timestamp_seconds": true,
	}
	for _, name := range names {
		have[regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")] = true
		have[name] = true
	}
	for _, file := range []string{"../../docs/alerts.yml", "../../docs/OPERATIONS.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			m.t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\b(?:weir|sse)_[a-z0-9_]*[a-z0-9]\b`).FindAllString(string(text), -1) {
			if !have[name] && !strings.HasSuffix(name, "_ms") && !strings.HasSuffix(name, "_us") { // those are of /v0/metrics
				m.t.Errorf("%s names %s, which nobody has", file, name)
			}
		}
	}
}
