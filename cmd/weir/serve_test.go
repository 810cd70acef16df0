package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestTheLogIsTextOrJSON(t *testing.T) {
	line := func(format string) string {
		var out bytes.Buffer
		log, err := newLogger(&out, func(name string) (string, bool) {
			if name == "WEIR_LOG_FORMAT" {
				return format, format != ""
			}
			return "", false
		})
		if err != nil {
			t.Fatal(err)
		}
		log.Info("ready", "topics", 3)
		return out.String()
	}
	for _, format := range []string{"", "text"} {
		if got := line(format); !strings.Contains(got, "msg=ready topics=3") {
			t.Errorf("%q: %q", format, got)
		}
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(line("json")), &got); err != nil || got["msg"] != "ready" || got["topics"] != 3.0 {
		t.Errorf("json: %v, %v", got, err)
	}
}

func TestAnUnknownLogFormatIsRefused(t *testing.T) {
	res := runWeir(t, "", "serve", "--data-dir", t.TempDir(), "--port", "0", "--log-format", "xml")
	if res.err == nil || !strings.Contains(res.err.Error(), `WEIR_LOG_FORMAT="xml": want text or json`) {
		t.Errorf("error %v", res.err)
	}
}
