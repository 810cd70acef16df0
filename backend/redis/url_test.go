package redis

import (
	"crypto/tls"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/weirmq/weir/backend"
)

func TestURLs(t *testing.T) {
	for raw, want := range map[string]settings{
		"redis://?stream=s":                              {addrs: []string{"localhost:6379"}},
		"redis://h/3?stream=s":                           {addrs: []string{"h:6379"}, db: 3},
		"rediss://h:1?stream=s":                          {addrs: []string{"h:1"}, tls: &tls.Config{MinVersion: tls.VersionTLS12}},
		"redis://[::1]?stream=s":                         {addrs: []string{"[::1]:6379"}},
		"redis://u:p%40%2F@h/0?stream=s&durability=disk": {addrs: []string{"h:6379"}, user: "u", pass: "p@/", durability: "disk"},
		"redis://a,b,c:2/0?stream=s":                     {addrs: []string{"a:6379", "b:6379", "c:2"}},
		"redis://a,b:2/1?stream=s&master=m":              {addrs: []string{"a:26379", "b:2"}, db: 1, master: "m"},
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parse(u)
		want.keys, _ = keysOf("s", "weir")
		want.enqueued, want.trim = backend.FieldEnqueued, trimAuto
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", raw, got, err, want)
		}
		if got.cluster() != (raw == "redis://a,b,c:2/0?stream=s") {
			t.Errorf("%s is taken for a cluster or not: %t", raw, got.cluster())
		}
	}
}

func TestURLsThatAreRefused(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://h":                                "?stream=",
		"redis://h?stream=s&trim=never":            "trim \"never\" is unknown",
		"redis://h?stream=s&start=1":               "known: 0, $",
		"redis://h?stream=s&create=yes":            "known: never",
		"redis://h/jobs?stream=s":                  "jobs",
		"redis://h/-1?stream=s":                    "-1",
		"redis://h?stream=s&strema=t":              "known: stream, group, master, durability, signal",
		"redis://h?stream=s&stream=t":              "2 times",
		"redis://h?stream=s&durability=forever":    "fsync, disk, memory, ephemeral",
		"redis://h:70000?stream=s":                 "70000",
		"redis://a,,b?stream=s":                    "empty",
		"redis://a,b/2?stream=s":                   "Cluster",
		"redis://h?stream=a{b":                     "brace",
		"redis://h?stream=a{}b":                    "brace",
		"redis://h?stream=a}{b":                    "brace",
		"kafka://h?stream=s":                       "scheme",
		"redis://u:secret@h?stream=s&x=1":          "x",
		"redis://user:12/secret@h:6379/0?stream=s": "percent-encoding",
		"redis://user:12?secret@h/0?stream=s":      "percent-encoding",
		"redis://user:12#secret@h/0?stream=s":      "percent-encoding",
		"redis://h?stream=" + long(maxNameBytes+1): "bytes",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = parse(u); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.60s: %v, want an error that names %q", raw, err, want)
		}
	}
}

func TestKeysShareTheSlotOfTheStream(t *testing.T) {
	for stream, dead := range map[string]string{
		"orders": "{orders}:dlq", "a:{b}:c": "a:{b}:c:dlq", "{b}": "{b}}:dlq", "ü": "{ü}:dlq",
	} {
		k, err := keysOf(stream, "g")
		if err != nil || k.dead != dead {
			t.Errorf("%s: %q, %v", stream, k.dead, err)
		}
	}
}

func long(n int) string { return strings.Repeat("x", n) }
