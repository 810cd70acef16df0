package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
)

func writeLines(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "input.log")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func numbered(n int) (lines, quoted []string) {
	for i := range n {
		lines = append(lines, fmt.Sprintf("line %d <&>", i))
		quoted = append(quoted, fmt.Sprintf("%q", lines[i]))
	}
	return lines, quoted
}

func TestPublishSendsEachLineAsAStringInOrder(t *testing.T) {
	f := newFakeServer(t)
	lines, want := numbered(1234)
	res := runWeir(t, "", "publish", f.URL+"/in", writeLines(t, lines...))
	if res.err != nil {
		t.Fatal(res.err)
	}
	if got := f.data("in"); !slices.Equal(got, want) {
		t.Fatalf("%d records, want %d in order", len(got), len(want))
	}
	if !strings.HasPrefix(res.stdout, "1234 records published to in ") {
		t.Errorf("last line %q", res.stdout)
	}
	// A batch may go early when the reading of the file stalls.
	if n := f.count("POST"); n < 3 || n > 12 {
		t.Errorf("%d writes, want 3 or little more, of at most 500 records", n)
	}
}

func TestPublishCreatesTheTopicThatIsAskedFor(t *testing.T) {
	f := newFakeServer(t)
	if res := runWeir(t, "a\r\n\nb", "publish", f.URL+"/in"); res.err != nil {
		t.Fatal(res.err)
	}
	if got, want := f.data("in"), []string{`"a"`, `""`, `"b"`}; !slices.Equal(got, want) {
		t.Errorf("records %v, want %v", got, want)
	}
	cfg := f.topics["in"].config
	if cfg["type"] != "queue" || cfg["max_deliveries"] != nil || cfg["leases_durable"] != true || cfg["durability"] != "disk" {
		t.Errorf("configuration %v", cfg)
	}
	if res := runWeir(t, "a", "publish", f.URL+"/log", "--type", "log", "--durability", "fsync"); res.err != nil {
		t.Fatal(res.err)
	}
	cfg = f.topics["log"].config
	if cfg["type"] != "log" || cfg["leases_durable"] != nil || cfg["durability"] != "fsync" {
		t.Errorf("configuration %v", cfg)
	}
}

func TestPublishStoresOnceThroughLostAnswersAndOverload(t *testing.T) {
	f := newFakeServer(t)
	troubles := []fault{faultLoseAnswer, faultDrop, faultNotReady, faultNone, faultThrottle, faultLoseAnswer, faultNone}
	f.fault = func(verb string) fault {
		if verb != "POST" || len(troubles) == 0 {
			return faultNone
		}
		next := troubles[0]
		troubles = troubles[1:]
		return next
	}
	lines, want := numbered(100)
	res := runWeir(t, "", "publish", "--batch", "30", "--json", f.URL+"/in", writeLines(t, lines...))
	if res.err != nil {
		t.Fatal(res.err)
	}
	if got := f.data("in"); !slices.Equal(got, want) {
		t.Fatalf("%d records %v, want %d once each", len(got), got, len(want))
	}
	if !strings.Contains(res.stdout, `"deduped":60`) || strings.Contains(res.stdout, `"waits":0`) {
		t.Errorf("result %s", res.stdout)
	}
}

func TestPublishAsksRatherThanStoringTwiceWhenTheKeyMayBeForgotten(t *testing.T) {
	f := newFakeServer(t)
	f.window = 0 // the topic remembers nothing
	f.fault = func(verb string) fault {
		if verb == "POST" && f.verbs[verb] == 2 {
			return faultLoseAnswer
		}
		return faultNone
	}
	path, place := writeLines(t, "a", "b", "c"), filepath.Join(t.TempDir(), "place")
	for range 2 { // a rerun knows no more
		res := runWeir(t, "", "publish", "--batch", "1", "--resume", place, f.URL+"/in", path)
		if res.err == nil || !strings.Contains(res.err.Error(), path+":2 ") {
			t.Errorf("error %v, want it to name %s:2", res.err, path)
		}
	}
	if got := f.data("in"); !slices.Equal(got, []string{`"a"`, `"b"`}) {
		t.Errorf("records %v", got)
	}
}

// silent is a backend that is never reached.
type silent struct{ backend.Backend }

func (silent) Info() backend.Info { return backend.Info{Kind: "redis", Stream: "in"} }

func TestAPublishThatNeverBeganAWriteLeavesTheMarkOfAnEarlierOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "place")
	earlier := newPlace(path, "in", "run")
	if _, err := earlier.begin(time.Now()); err != nil { // and then the run was killed
		t.Fatal(err)
	}
	p := &publisher{opt: &publishOptions{giveUp: time.Minute}, place: newPlace(path, "in", "another"), progress: newProgress(io.Discard)}
	p.courier = &courier{Backend: silent{}, publisher: p}
	var err error
	if p.producer, err = weir.NewProducer(weir.New(p.courier.asBackend()), weir.ProducerConfig{}); err != nil {
		t.Fatal(err)
	}
	p.producer.Close() // every publish ends at the guard
	if err := p.place.load(); err != nil {
		t.Fatal(err)
	}
	if err := p.send(t.Context(), []inputRecord{{data: json.RawMessage(`"a"`)}}); err == nil {
		t.Fatal("published through a closed producer")
	}
	if text := readFile(t, path); !strings.Contains(text, `"sending_ms"`) {
		t.Errorf("the place is %s, want the mark of the write that may have been stored", text)
	}
}

// However often a run is killed in the write that may have been stored, the time of its first try counts:
// since then the stream has remembered it.
func TestTheMarkOfAWriteIsOfItsFirstTry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "place")
	first := time.UnixMilli(1_700_000_000_000)
	for i := range 3 {
		p := newPlace(path, "in", "run")
		if err := p.load(); err != nil {
			t.Fatal(err)
		}
		earlier, err := p.begin(first.Add(time.Duration(i) * time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && !earlier.Equal(first) {
			t.Errorf("run %d takes the write for one of %v, want %v", i+1, earlier, first)
		}
	}
}

// remembering is a backend that keeps the places of sources for a while.
type remembering struct {
	silent
	window time.Duration
}

func (remembering) AppendAt(context.Context, string, uint64, []backend.Message) (backend.Placed, error) {
	return backend.Placed{}, backend.ErrUnavailable
}

func (r remembering) KeyWindow(context.Context) (time.Duration, error) { return r.window, nil }

// A request takes time: what is repeated just before its key is forgotten may arrive behind that.
func TestAWriteIsNotRepeatedShortlyBeforeItsKeyIsForgotten(t *testing.T) {
	for ago, repeats := range map[time.Duration]bool{time.Second: true, 40 * time.Second: true, 55 * time.Second: false, time.Hour: false} {
		p := &publisher{opt: &publishOptions{}, pending: []inputRecord{{file: "orders", line: 7}}}
		b := remembering{window: time.Minute}
		c := &courier{Backend: b, publisher: p, places: b, unsure: time.Now().Add(-ago)}
		if err := c.checkWindow(t.Context()); (err == nil) != repeats || err != nil && !strings.Contains(err.Error(), "orders:7 ") {
			t.Errorf("%v behind its first try: %v", ago, err)
		}
	}
}

// A scheme means the same however it is written.
func TestALineStaysTextOverAURLInCapitals(t *testing.T) {
	f := newFakeServer(t)
	url := "HTTP" + strings.TrimPrefix(f.URL, "http") + "/in"
	if res := runWeir(t, "5\n", "publish", url); res.err != nil {
		t.Fatal(res.err)
	}
	if got := f.data("in"); !slices.Equal(got, []string{`"5"`}) {
		t.Errorf("stored %v", got)
	}
	if res := runWeir(t, "", "tail", "--from", "0", "--no-follow", "--json", url); res.err != nil || !strings.HasPrefix(res.stdout, `{"$seq":1,`) {
		t.Errorf("tail: %s%v", res.stdout, res.err)
	}
}

func TestPublishTwiceStoresTwice(t *testing.T) {
	f := newFakeServer(t)
	path := writeLines(t, "a")
	for range 2 {
		if res := runWeir(t, "", "publish", f.URL+"/in", path); res.err != nil {
			t.Fatal(res.err)
		}
	}
	if got := f.data("in"); len(got) != 2 {
		t.Errorf("records %v, want two", got)
	}
}

func TestPublishResumesWhereAKilledRunStood(t *testing.T) {
	f := newFakeServer(t)
	lines, want := numbered(100)
	path, place := writeLines(t, lines[:90]...), filepath.Join(t.TempDir(), "place")
	// The third write is stored, its answer is lost, and then nobody answers.
	f.fault = func(string) fault {
		switch n := f.verbs["POST"]; {
		case n == 3:
			return faultLoseAnswer
		case n > 3:
			return faultDrop
		}
		return faultNone
	}
	args := []string{"publish", "--resume", place, f.URL + "/in", path}
	if res := runWeir(t, "", append(args, "--batch", "20", "--give-up", "50ms")...); res.err == nil {
		t.Fatal("publish succeeded although nobody answered")
	}
	f.setFault(func(string) fault { return faultNone })
	for _, batch := range []string{"7", "500"} { // other sizes than the write that was under way
		if res := runWeir(t, "", append(args, "--batch", batch)...); res.err != nil {
			t.Fatal(res.err)
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if res := runWeir(t, "", args...); res.err != nil {
		t.Fatal(res.err)
	}
	if got := f.data("in"); !slices.Equal(got, want) {
		t.Fatalf("%d records, want %d once each, in order", len(got), len(want))
	}
	if err := os.WriteFile(path, []byte("something else\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if res := runWeir(t, "", args...); res.err == nil || !strings.Contains(res.err.Error(), "not the same input") {
		t.Errorf("another input gave %v", res.err)
	}
}

// The file of --resume is of one stream and of one input: with others records would be left out.
func TestAPlaceIsOfItsStreamAndInputAlone(t *testing.T) {
	f := newFakeServer(t)
	path, place := writeLines(t, "a", "b"), filepath.Join(t.TempDir(), "place")
	args := []string{"publish", "--resume", place, f.URL + "/in", path}
	if res := runWeir(t, "", args...); res.err != nil {
		t.Fatal(res.err)
	}
	if text := readFile(t, place); !strings.Contains(text, `"records":2`) || strings.Contains(text, "sending") {
		t.Errorf("the place behind all is %s", text)
	}
	res := runWeir(t, "", "publish", "--resume", place, f.URL+"/other", path)
	if res.err == nil || !strings.Contains(res.err.Error(), `belongs to stream "in", the URL names "other"`) {
		t.Errorf("another stream gave %v", res.err)
	}
	if err := os.WriteFile(place, []byte(strings.Replace(readFile(t, place), `"format":1`, `"format":2`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if res := runWeir(t, "", args...); res.err == nil || !strings.Contains(res.err.Error(), "did not write this file") {
		t.Errorf("a file of a later version gave %v", res.err)
	}
	if err := os.WriteFile(place, []byte(strings.Replace(readFile(t, place), `"format":2`, `"format":1`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("a\nc\nd\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if res := runWeir(t, "", args...); res.err == nil || !strings.Contains(res.err.Error(), "does not begin with what was sent") {
		t.Errorf("another input gave %v", res.err)
	}
	if in, other := f.data("in"), f.topics["other"]; len(in) != 2 || other != nil && len(other.records) > 0 {
		t.Errorf("stored %v and %v", in, other)
	}
}

// What the server refuses is not stored: the next run need not doubt it, and the summary says that not all is sent.
func TestARefusedWriteLeavesNoDoubt(t *testing.T) {
	f := newFakeServer(t)
	f.refuse = "no"
	place := filepath.Join(t.TempDir(), "place")
	res := runWeir(t, "", "publish", "--resume", place, "--json", f.URL+"/in", writeLines(t, "a", "no"))
	if text := readFile(t, place); res.err == nil || strings.Contains(text, "sending") || !strings.Contains(text, `"records":1`) {
		t.Errorf("%v left the place %s", res.err, text)
	}
	if !strings.Contains(res.stdout, `"published":1,`) || !strings.Contains(res.stdout, `"complete":false`) {
		t.Errorf("summary %s", res.stdout)
	}
}

// A write whose answer was lost had more records than the input has by now.
func TestAnInputThatHasShrunkIsNotTheSame(t *testing.T) {
	f := newFakeServer(t)
	lost := false
	f.fault = func(verb string) fault {
		switch {
		case verb != "POST":
			return faultNone
		case lost:
			return faultDrop
		}
		lost = true
		return faultLoseAnswer
	}
	path, place := writeLines(t, "a", "b", "c"), filepath.Join(t.TempDir(), "place")
	args := []string{"publish", "--resume", place, f.URL + "/in", path}
	if res := runWeir(t, "", append(args, "--give-up", "50ms")...); res.err == nil {
		t.Fatal("publish succeeded although nobody answered")
	}
	f.setFault(func(string) fault { return faultNone })
	if err := os.WriteFile(path, []byte("a\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	res := runWeir(t, "", args...)
	if res.err == nil || !strings.Contains(res.err.Error(), "the interrupted write had 3 records and the input has only 2 left") {
		t.Errorf("an input that has shrunk gave %v", res.err)
	}
}

func TestAWriteEndsAtAMebibyte(t *testing.T) {
	size := func(n int) inputRecord { return inputRecord{data: make([]byte, n)} }
	for _, c := range []struct {
		records []inputRecord
		n       int
	}{
		{[]inputRecord{size(1 << 19), size(1 << 19), size(1)}, 2},
		{[]inputRecord{size(1<<20 + 1), size(1)}, 1}, // alone
		{[]inputRecord{size(1), size(1), size(1), size(1)}, 3},
	} {
		if n := batchLen(c.records, 3); n != c.n {
			t.Errorf("%d records in a write, want %d", n, c.n)
		}
	}
}

func TestABatchIsSentAgainIfAllThatFailedMayBe(t *testing.T) {
	for _, c := range []struct {
		errs  []error
		again bool
	}{
		{[]error{nil, backend.ErrUnavailable}, true},
		{[]error{backend.ErrUnavailable, backend.ErrTooLarge}, false},
	} {
		if got := retryable(&weir.BatchError{Errs: c.errs}); got != c.again {
			t.Errorf("%v is sent again: %v", c.errs, got)
		}
	}
}

// What waited at the guard, or is sent again, is worth as much as what was sent at once.
func TestADeadlineRunsFromWhenItsMessageIsSent(t *testing.T) {
	p := &publisher{opt: &publishOptions{deadline: time.Minute}, started: time.Now().Add(-time.Hour)}
	now := time.Now()
	if got := (&courier{publisher: p}).marked(make([]backend.Message, 1), now)[0].Deadline; !got.Equal(now.Add(time.Minute)) {
		t.Errorf("the deadline is %v from now", got.Sub(now))
	}
}

// silence is an input that says once that it is read, and then nothing.
type silence struct{ asked, end chan struct{} }

func (s silence) Read([]byte) (int, error) {
	close(s.asked)
	<-s.end
	return 0, io.EOF
}

func TestAPublishThatLooksForItsPlaceInASilentInputCanBeEnded(t *testing.T) {
	f := newFakeServer(t)
	args := []string{"publish", "--resume", filepath.Join(t.TempDir(), "place"), f.URL + "/in"}
	if res := runWeir(t, "a\nb", args...); res.err != nil {
		t.Fatal(res.err)
	}
	in := silence{make(chan struct{}), make(chan struct{})}
	defer close(in.end)
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	<-in.asked
	interrupt()
	select {
	case err := <-ended:
		if err == nil || err.Error() != "interrupted after 0 records" {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it still reads")
	}
}

func TestPublishNamesTheLineItCannotSend(t *testing.T) {
	for name, c := range map[string]struct {
		flags  []string
		line   string
		refuse string
	}{
		"not JSON":           {[]string{"--ndjson"}, `{"a":`, ""},
		"two values":         {[]string{"--ndjson"}, `1 2`, ""},
		"not UTF-8":          {nil, "caf\xe9", ""},
		"refused by servers": {[]string{"--ndjson"}, `"poison"`, "poison"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeServer(t)
			f.refuse = c.refuse
			path := writeLines(t, "1", "2", "3", c.line, "5")
			res := runWeir(t, "", append([]string{"publish", f.URL + "/in", path}, c.flags...)...)
			if res.err == nil || !strings.Contains(res.err.Error(), path+":4: ") {
				t.Errorf("error %v, want it to name %s:4", res.err, path)
			}
			if got := f.data("in"); len(got) != 3 {
				t.Errorf("records %v, want the three before the line", got)
			}
		})
	}
}

func TestPublishKeepsTheKeyOutOfErrors(t *testing.T) {
	f := newFakeServer(t)
	host := strings.TrimPrefix(f.URL, "http://")
	f.Close()
	for _, url := range []string{
		"http://:s3cret@" + host + "/in", "http://s3cret@" + host + "/in", "http://:s3cret@" + host + ":x/in",
		"http://:s3cret@" + host + "/in?x=1", "ftp://:s3cret@" + host + "/in", "http://:s3cret@" + host + "/", "http://:s3cret @%zz/in",
	} {
		res := runWeir(t, "a", "publish", "--give-up", "1ms", url)
		if res.err == nil {
			t.Errorf("no error for a URL without a server")
			continue
		}
		if all := res.err.Error() + res.stdout + res.stderr; strings.Contains(all, "s3cret") {
			t.Errorf("the key stands in %q", all)
		}
	}
}

func TestKeysComeFromURLFileAndEnvironmentInThatOrder(t *testing.T) {
	f := newFakeServer(t)
	file := writeLines(t, "from-file")
	t.Setenv("WEIR_API_KEY", "from-env")
	withKey := strings.Replace(f.URL, "http://", "http://:from-url@", 1)
	for _, c := range [][]string{
		{"Bearer from-env", f.URL + "/in"},
		{"Bearer from-file", f.URL + "/in", "--api-key-file", file},
		{"Bearer from-url", withKey + "/in", "--api-key-file", file},
	} {
		if res := runWeir(t, "a", append([]string{"publish"}, c[1:]...)...); res.err != nil {
			t.Fatal(res.err)
		}
		if got := f.authz[len(f.authz)-1]; got != c[0] {
			t.Errorf("%v sent %q, want %q", c[1:], got, c[0])
		}
		if res := runWeir(t, "", append([]string{"tail", "--from", "0", "--no-follow"}, c[1:]...)...); res.err != nil {
			t.Fatal(res.err)
		}
		if got := f.authz[len(f.authz)-1]; got != c[0] {
			t.Errorf("tail %v sent %q, want %q", c[1:], got, c[0])
		}
	}
}

func TestFlagsBeatTheirEnvironmentTwins(t *testing.T) {
	f := newFakeServer(t)
	t.Setenv("WEIR_DURABILITY", "memory")
	runWeir(t, "a", "publish", f.URL+"/one")
	runWeir(t, "a", "publish", f.URL+"/two", "--durability", "fsync")
	if got := f.topics["one"].config["durability"]; got != "memory" {
		t.Errorf("durability %v, want the environment's", got)
	}
	if got := f.topics["two"].config["durability"]; got != "fsync" {
		t.Errorf("durability %v, want the flag's", got)
	}
	t.Setenv("WEIR_BATCH", "many")
	if res := runWeir(t, "a", "publish", f.URL+"/one"); res.err == nil || !strings.Contains(res.err.Error(), "WEIR_BATCH") {
		t.Errorf("error %v, want it to name WEIR_BATCH", res.err)
	}
}

func TestWhatPublishDoesWithLinesThatAreNone(t *testing.T) {
	text := "caf\xe9\x80\nok\n"
	values := "{\"a\":\"caf\xe9\"}\nnot JSON\n[1]\n"
	for name, c := range map[string]struct {
		how, input string
		flags      []string
		want       []string
		told       string
	}{
		"text, replaced":   {"replace", text, nil, []string{`"caf` + "\uFFFD" + `"`, `"ok"`}, "1 not UTF-8 and sent by --invalid=replace"},
		"text, encoded":    {"base64", text, nil, []string{`"Y2Fm6YA="`, `"ok"`}, "1 not UTF-8 and sent by --invalid=base64"},
		"text, skipped":    {"skip", text, nil, []string{`"ok"`}, "1 not UTF-8 and left out"},
		"values, replaced": {"replace", values, []string{"--ndjson"}, []string{`{"a":"caf` + "\uFFFD" + `"}`, `"not JSON"`, `[1]`}, "2 not JSON and sent by --invalid=replace"},
		"values, encoded":  {"base64", values, []string{"--ndjson"}, []string{`"eyJhIjoiY2Fm6SJ9"`, `"bm90IEpTT04="`, `[1]`}, "2 not JSON and sent"},
		"values, skipped":  {"skip", values, []string{"--ndjson"}, []string{`[1]`}, "2 not JSON and left out"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeServer(t)
			res := runWeir(t, c.input, append([]string{"publish", "--invalid", c.how, f.URL + "/in"}, c.flags...)...)
			if res.err != nil {
				t.Fatal(res.err)
			}
			if got := f.data("in"); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if !strings.Contains(res.stdout, c.told) {
				t.Errorf("it says %q, want %q in it", res.stdout, c.told)
			}
		})
	}
}

// A file may begin with the mark that some programs put in front of UTF-8. Elsewhere it is a character
// like any other.
func TestTheMarkInFrontOfAFileIsNotPublished(t *testing.T) {
	const mark = "\uFEFF"
	for name, c := range map[string]struct {
		input string
		flags []string
		want  []string
	}{
		"JSON":               {mark + "{\"a\":1}\r\n2\r\n", []string{"--ndjson"}, []string{`{"a":1}`, "2"}},
		"text":               {mark + "a\n" + mark + "b\n", nil, []string{`"a"`, `"` + mark + `b"`}},
		"a line without \\n": {mark + "a", nil, []string{`"a"`}},
		"an empty line":      {mark + "\na\n", nil, []string{`""`, `"a"`}},
		"nothing else":       {mark, nil, nil},
		"two of them":        {mark + mark + "a", nil, []string{`"` + mark + `a"`}},
		"a line of no JSON":  {mark + "a\n", []string{"--ndjson", "--invalid", "replace"}, []string{`"a"`}},
		"a line of no text":  {mark + "\xff\n", []string{"--invalid", "base64"}, []string{`"/w=="`}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeServer(t)
			if res := runWeir(t, c.input, append([]string{"publish", f.URL + "/in"}, c.flags...)...); res.err != nil {
				t.Fatal(res.err)
			}
			if got := f.data("in"); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	f := newFakeServer(t)
	if res := runWeir(t, "", "publish", f.URL+"/in", writeLines(t, mark+"a"), writeLines(t, mark+"b")); res.err != nil {
		t.Fatal(res.err)
	}
	if got := f.data("in"); !slices.Equal(got, []string{`"a"`, `"b"`}) {
		t.Errorf("of two files: %q", got)
	}
}

// A setting that does nothing beside the others is said to.
func TestPublishTellsOfSettingsWithoutEffect(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string // in what is said; empty: nothing is
	}{
		{[]string{"--wait-slo", "5s"}, ""},
		{[]string{"--wait-slo", "5s", "--guard", "static"}, "wait_slo has no effect: guard is static"},
		{[]string{"--wait-slo", "5s", "--lag-warn", "10"}, "wait_slo has no effect: guard is static"},
		{[]string{"--wait-slo", "5s", "--guard", "shadow", "--shadow-of", "adaptive"}, ""},
		{[]string{"--wait-slo", "5s", "--guard", "shadow", "--shadow-of", "off"}, "wait_slo has no effect: guard is off"},
		{[]string{"--lag-pause", "10", "--guard", "adaptive"}, "lag_pause has no effect: guard is adaptive"},
		{[]string{"--lag-warn", "off", "--guard", "adaptive"}, ""},
		{[]string{"--budget-max-depth", "10"}, "budget_max_depth has no effect: budget is not set"},
		{[]string{"--budget-max-depth", "10", "--budget", "b"}, ""},
	} {
		res := runWeir(t, "x\n", slices.Concat([]string{"publish"}, c.args, []string{"file://" + t.TempDir() + "?topic=orders"})...)
		if res.err != nil {
			t.Fatalf("%v: %v", c.args, res.err)
		}
		if told := strings.Contains(res.stderr, "no effect"); told != (c.want != "") || !strings.Contains(res.stderr, c.want) {
			t.Errorf("%v says %q, want %q", c.args, res.stderr, c.want)
		}
	}
}
