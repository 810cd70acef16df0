package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/open"
)

func TestTailPrintsOneLinePerRecord(t *testing.T) {
	f := newFakeServer(t)
	f.add("log", `"plain <text>"`, `{"a":1}`, `"two\nlines\u001b[31m"`, "[\"\u009b31m\u007f\"]")
	res := runWeir(t, "", "tail", f.URL+"/log", "--from", "0", "--no-follow")
	if res.err != nil {
		t.Fatal(res.err)
	}
	want := "plain <text>\n{\"a\":1}\ntwo\\nlines\\u001b[31m\n[\"\\u009b31m\\u007f\"]\n"
	if res.stdout != want {
		t.Errorf("printed %q, want %q", res.stdout, want)
	}
}

func TestTailStartsAtTheHeadAndFollows(t *testing.T) {
	f := newFakeServer(t)
	f.add("log", `"old"`)
	done := make(chan result, 1)
	go func() { done <- runWeir(t, "", "tail", f.URL+"/log", "--count", "2") }()
	eventually(t, "tail waits", func() bool { return f.count("watch") > 1 })
	f.add("log", `"new 1"`, `"new 2"`, `"new 3"`)
	if res := <-done; res.err != nil || res.stdout != "new 1\nnew 2\n" {
		t.Errorf("printed %q, %v", res.stdout, res.err)
	}
}

func TestTailShowsTheLastRecordsAsJSON(t *testing.T) {
	f := newFakeServer(t)
	f.add("log", `"a"`, `"b <"`, `"c"`)
	res := runWeir(t, "", "tail", f.URL+"/log", "-n", "2", "--no-follow", "--json")
	if res.err != nil || res.stdout != "{\"$seq\":2,\"$ts\":1,\"data\":\"b <\"}\n{\"$seq\":3,\"$ts\":1,\"data\":\"c\"}\n" {
		t.Errorf("printed %q, %v", res.stdout, res.err)
	}
}

func TestTailOfMoreThanOneReadPrintsAll(t *testing.T) {
	f := newFakeServer(t)
	lines, quoted := numbered(2300)
	f.add("log", quoted...)
	url := "file://" + t.TempDir() + "?topic=in"
	if res := runWeir(t, strings.Join(lines, "\n"), "publish", url); res.err != nil {
		t.Fatal(res.err)
	}
	for _, url := range []string{f.URL + "/log", url} {
		for _, c := range []struct {
			args  []string
			print []string
		}{
			{[]string{"--from", "0"}, lines},
			{[]string{"--from", "0", "--count", "1500"}, lines[:1500]},
			{[]string{"--last", "1200"}, lines[1100:]},
			{[]string{"--last", "3000"}, lines}, // more than there are
		} {
			res := runWeir(t, "", append([]string{"tail", url, "--no-follow"}, c.args...)...)
			if res.err != nil || res.stdout != strings.Join(c.print, "\n")+"\n" {
				t.Errorf("%s %v: %d lines, %v, want %d", url, c.args, strings.Count(res.stdout, "\n"), res.err, len(c.print))
			}
		}
	}
}

func TestAPayloadThatIsNoTextIsBase64InJSON(t *testing.T) {
	url := "file://" + t.TempDir() + "?topic=in"
	s, err := open.URL(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Backend().Append(t.Context(), []backend.Message{{Data: []byte("\xff\x00")}})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	res := runWeir(t, "", "tail", url, "--from", "0", "--no-follow", "--json")
	if res.err != nil || !strings.Contains(res.stdout, `"data_base64":"/wA="`) || strings.Contains(res.stdout, `"data":`) {
		t.Errorf("printed %q, %v", res.stdout, res.err)
	}
}

func TestTailTellsGaps(t *testing.T) {
	f := newFakeServer(t)
	f.add("log", `"a"`, `"b"`, `"c"`)
	gap := map[string]any{"gap_from": 1, "gap_to": 2, "reason": "cap", "missed_estimate": 2}
	f.topics["log"].gaps = []map[string]any{gap, gap}
	res := runWeir(t, "", "tail", f.URL+"/log", "--from", "0", "--no-follow")
	if res.err != nil || res.stderr != "gap 1–2 (cap)\n" || res.stdout != "c\n" {
		t.Errorf("printed %q and %q, %v", res.stdout, res.stderr, res.err)
	}
	res = runWeir(t, "", "tail", f.URL+"/log", "--from", "0", "--no-follow", "--json")
	if !strings.HasPrefix(res.stdout, `{"tombstone":{"gap_from":1,"gap_to":2,"reason":"cap"`) {
		t.Errorf("printed %q", res.stdout)
	}
}

func TestTailGoesOnAfterLostConnectionsWithoutRepeats(t *testing.T) {
	f := newFakeServer(t)
	f.add("log", `"a"`, `"b"`)
	n := 0
	f.fault = func(string) fault {
		n++
		return [...]fault{faultDrop, faultNone, faultNotReady, faultNone}[n%4]
	}
	done := make(chan result, 1)
	go func() { done <- runWeir(t, "", "tail", f.URL+"/log", "--from", "0", "--count", "3") }()
	eventually(t, "two records are sent", func() bool { return f.count("watch") > 3 })
	f.add("log", `"c"`)
	res := <-done
	if res.err != nil || res.stdout != "a\nb\nc\n" {
		t.Errorf("printed %q, %v", res.stdout, res.err)
	}
	if away, back := strings.Count(res.stderr, "waiting for the server"), strings.Count(res.stderr, "the server is back"); away == 0 || away != back {
		t.Errorf("told %d losses and %d returns: %q", away, back, res.stderr)
	}
}

func TestTailTellsGapsOfTheStreamInTheirPlace(t *testing.T) {
	f := newFakeServer(t)
	f.add("log", `"a"`, `"b"`, `"c"`)
	f.topics["log"].gaps = []map[string]any{{"gap_from": 1, "gap_to": 2, "reason": "cap"}}
	res := runWeir(t, "", "tail", f.URL+"/log", "--from", "0", "--count", "1", "--json")
	want := `{"tombstone":{"gap_from":1,"gap_to":2,"reason":"cap","missed_estimate":2}}` + "\n" + `{"$seq":3,"$ts":1,"data":"c"}` + "\n"
	if res.err != nil || res.stdout != want || res.stderr != "gap 1–2 (cap)\n" {
		t.Errorf("printed %q and %q, %v", res.stdout, res.stderr, res.err)
	}
}

func TestTailEndsWhenItsTopicIsDeleted(t *testing.T) {
	f := newFakeServer(t)
	f.add("log", `"a"`)
	done := make(chan result, 1)
	go func() { done <- runWeir(t, "", "tail", f.URL+"/log", "--from", "0") }()
	eventually(t, "the record is on its way", func() bool { return f.count("frame") > 0 })
	f.drop("log")
	if res := <-done; res.err == nil || !strings.Contains(res.err.Error(), `"log" was deleted`) || res.stdout != "a\n" {
		t.Errorf("printed %q, %v", res.stdout, res.err)
	}
}

func TestTailOfAnAbsentTopicSaysSo(t *testing.T) {
	f := newFakeServer(t)
	for _, args := range [][]string{{}, {"--from", "0"}, {"--from", "0", "--no-follow"}} {
		res := runWeir(t, "", append([]string{"tail", f.URL + "/nothing"}, args...)...)
		if res.err == nil || !strings.Contains(res.err.Error(), `"nothing" does not exist`) {
			t.Errorf("%v: error %v", args, res.err)
		}
	}
}

// Of a stream that is read by the library, too.
func TestTailShowsTheLastMessagesOfADirectory(t *testing.T) {
	url := "file://" + t.TempDir() + "?topic=in"
	if res := runWeir(t, "a\nb\nc\nd\n", "publish", url); res.err != nil {
		t.Fatal(res.err)
	}
	if res := runWeir(t, "", "tail", "--last", "2", "--no-follow", url); res.err != nil || res.stdout != "c\nd\n" {
		t.Errorf("printed %q, %v", res.stdout, res.err)
	}
}
