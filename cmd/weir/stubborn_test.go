package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirmq/weir/internal/api"
)

// A server that cannot read a record answers 500 each time: the commands end.
func TestTailAndPublishEndOnAnErrorThatStays(t *testing.T) {
	for verb, args := range map[string][]string{
		"diff":    {"tail", "URL/log", "--from", "0", "--no-follow"},
		"records": {"publish", "URL/log", "--guard", "off"},
	} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			f := newFakeServer(t)
			f.add("log", `"a"`)
			tries := 0
			f.fault = func(v string) fault {
				if v == verb || verb == "records" && v == "POST" {
					tries++
					return faultUnreadable
				}
				return faultNone
			}
			args[1] = strings.Replace(args[1], "URL", f.URL, 1)
			res := runWeir(t, "one\n", args...)
			if res.err == nil || !strings.Contains(res.err.Error(), "500") && !strings.Contains(res.err.Error(), "internal") {
				t.Errorf("ended with %v", res.err)
			}
			if tries < 2 || tries > 3*stubbornTries { // the library tries a write again by itself
				t.Errorf("%d tries", tries)
			}
		})
	}
}

// A log that cannot be written heals: tail waits for it.
func TestTailOutlastsALogThatFails(t *testing.T) {
	f := newFakeServer(t)
	f.add("log", `"a"`)
	left := stubbornTries + 1
	f.fault = func(v string) fault {
		if v == "diff" && left > 0 {
			left--
			return faultLog
		}
		return faultNone
	}
	res := runWeir(t, "", "tail", f.URL+"/log", "--from", "0", "--no-follow")
	if res.err != nil || res.stdout != "a\n" || left > 0 {
		t.Errorf("printed %q, %v, %d failures left", res.stdout, res.err, left)
	}
}

// Errors count in a row: after another one the tries begin anew.
func TestOnlyErrorsInARowEndTheTries(t *testing.T) {
	unreadable := &api.Error{Code: api.CodeInternal, Detail: map[string]any{"storage": map[string]any{"operation": "read"}}}
	var s stubborn
	for range 3 {
		for range stubbornTries - 1 {
			if s.last(unreadable) {
				t.Fatal("it gives up early")
			}
		}
		s.last(errors.New("no answer"))
	}
	for i := range stubbornTries {
		if last := s.last(unreadable); last != (i == stubbornTries-1) {
			t.Errorf("try %d of %d is the last: %v", i+1, stubbornTries, last)
		}
	}
}
