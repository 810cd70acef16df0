package backendtest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirmq/weir/backend"
)

func (s *suite) appendCases() []testCase {
	return append(only(!s.h.NoKeys, []testCase{
		{"a key stores its message once", keyStoresOnce},
		{"a key stores its message once within a batch", keyStoresOnceInABatch},
		{"a key stores its message once among many appends", keyStoresOnceAmongMany},
		{"a batch with keys says of each message what became of it", keyedBatch},
	}...), []testCase{
		{"headers come back as they were", headersComeBack},
		{"priority and fair key come back as headers", priorityComesBack},
		{"a deadline comes back, to the millisecond", deadlineComesBack},
		{"messages come in the order of their appends", orderIsKept},
		{"an append neither keeps nor changes its data", appendKeepsNothing},
		{"an empty append does nothing", emptyAppend},
		{"what was appended before the first claim is delivered", appendBeforeTheGroup},
		{"a batch of 1000 is stored whole", bigBatch},
		{"of a batch with an odd message exactly what is said to be stored is stored", oddBatch},
	}...)
}

// payloads are what a backend might mistake for something else.
func payloads() map[string][]byte {
	random := rand.NewChaCha8([32]byte{1})
	big := make([]byte, 512<<10)
	random.Read(big)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	return map[string][]byte{
		"empty":                {},
		"text":                 []byte("hello\r\nworld\t \x00 end"),
		"unicode":              []byte("grüße 🙂 \u2028"),
		"every byte":           every,
		"not UTF-8":            {0xff, 0xfe, 0, 0xc3},
		"JSON object":          []byte(`{"b":1, "a":[true,null,1.50e+3] , "$seq":9,"data":"x"}`),
		"JSON array":           []byte(` [1, 2,3]`),
		"JSON string":          []byte(`"quoted \u00e9 \" text"`),
		"JSON number":          []byte(`12345678901234567890.10`),
		"JSON huge number":     []byte(`1e400`),
		"JSON null":            []byte(`null`),
		"JSON false":           []byte(`false`),
		"JSON same key twice":  []byte(`{"a":1,"a":2}`),
		"JSON lone surrogate":  []byte(`{"a":"\ud800"}`),
		"JSON broken":          []byte(`{"a":`),
		"JSON very deep":       []byte(strings.Repeat("[", 300) + strings.Repeat("]", 300)),
		"looks like base64":    []byte("aGVsbG8="),
		"512 KiB of bytes":     big,
		"512 KiB of text":      bytes.Repeat([]byte("weir "), 512<<10/5),
		"512 KiB JSON":         []byte(`{"a":"` + strings.Repeat("x", 512<<10-8) + `"}`),
		"one space":            []byte(" "),
		"a byte order mark":    []byte("\ufeff{}"),
		"escaped control JSON": []byte("{\"a\":\"\\u0000\\n\"}"),
	}
}

func (s *suite) payloadCases() []testCase {
	var cases []testCase
	for name, data := range payloads() {
		cases = append(cases, testCase{"payload comes back: " + name, func(f *fixture) { payloadComesBack(f, data) }})
	}
	return cases
}

func payloadComesBack(f *fixture, data []byte) {
	b := f.open()
	f.publish(b, backend.Message{Data: data}, backend.Message{Data: data, Headers: map[string]string{"k": "v"}})
	for _, d := range f.claim(f.another(b), "a", 2) {
		if !bytes.Equal(d.Data, data) {
			f.Errorf("%.80q came back as %.80q (%d and %d bytes)", data, d.Data, len(data), len(d.Data))
		}
		f.ack(b, d)
	}
}

func headersComeBack(f *fixture) {
	b := f.open()
	headers := map[string]string{
		"content-type": "application/json", "X-Upper": "Y", "ünï": "ç 🙂", "with space": " v ", "empty": "",
		"line": "a\nb", "quote": `"\`, "number": "12", backend.HeaderTrace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		backend.HeaderState: "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
	}
	many := map[string]string{}
	for i := range 30 {
		many[fmt.Sprintf("name-%d", i)] = strings.Repeat("v", i)
	}
	given := []map[string]string{headers, many, nil}
	var ids []string
	for _, h := range given {
		ids = append(ids, f.publish(b, backend.Message{Data: []byte("x"), Headers: maps.Clone(h)})...)
	}
	for i, d := range f.inOrder(f.claim(b, "a", len(given)), ids) {
		if !maps.Equal(d.Headers, given[i]) {
			f.Errorf("headers %q came back as %q", given[i], d.Headers)
		}
	}
}

func priorityComesBack(f *fixture) {
	b := f.open()
	var ids []string
	for p := backend.Background; p <= backend.Critical; p++ {
		ids = append(ids, f.publish(b, backend.Message{Priority: p, FairKey: "tenant 7", Headers: map[string]string{"k": "v"}})...)
	}
	for i, d := range f.inOrder(f.claim(b, "a", 6), ids) {
		want := map[string]string{"k": "v", backend.HeaderFairKey: "tenant 7"}
		if p := backend.Background + backend.Priority(i); p != backend.Normal {
			want[backend.HeaderPriority] = p.String()
		}
		if !maps.Equal(d.Headers, want) {
			f.Errorf("headers are %q, want %q", d.Headers, want)
		}
	}
}

func deadlineComesBack(f *fixture) {
	b := f.open()
	soon := time.Now().Add(time.Hour)
	msgs := []backend.Message{
		{Deadline: soon}, {Deadline: soon, IdempotencyKey: "k"}, {Deadline: soon, Headers: map[string]string{"k": "v"}, FairKey: "f", Priority: backend.Low},
	}
	f.publish(b, msgs...)
	if places, can := b.(backend.PlaceKeeper); can {
		if _, err := places.AppendAt(f.ctx(), "source", 0, msgs[:1]); err != nil {
			f.Fatal(err)
		}
		msgs = append(msgs, msgs[0])
	}
	got := f.claim(f.another(b), "a", len(msgs))
	for i, d := range got {
		if d.Deadline.UnixMilli() != soon.UnixMilli() || d.Headers[backend.HeaderDeadline] != backend.FormatDeadline(soon) {
			f.Errorf("message %d: the deadline is %s with the headers %q, want %s", i, d.Deadline, d.Headers, soon)
		}
	}
	f.nack(b, backend.Return{Lease: got[0].Lease})
	if d := f.claim(b, "b", 1)[0]; d.Deadline.UnixMilli() != soon.UnixMilli() {
		f.Errorf("delivered again with the deadline %s, want %s", d.Deadline, soon)
	}
	for _, year := range []int{10_000, 300_000_000, 584_556_500, 1 << 31} { // most are beyond what int64 has milliseconds for
		f.publish(b, backend.Message{Deadline: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)})
		if d := f.claim(b, "a", 1)[0]; d.Deadline.Year() < min(year, 292_000_000) {
			f.Errorf("a deadline in the year %d came back as %s, headers %q", year, d.Deadline, d.Headers)
		}
	}
	f.publish(b, backend.Message{Headers: map[string]string{backend.HeaderDeadline: "soon"}})
	if d := f.claim(b, "a", 1)[0]; !d.Deadline.IsZero() || d.Headers[backend.HeaderDeadline] != "soon" {
		f.Errorf("a deadline that is no number is %s, headers %q", d.Deadline, d.Headers)
	}
}

func orderIsKept(f *fixture) {
	b, other := f.open(), f.open()
	ids := f.publish(b, numbered(0, 60)...)
	for i := 60; i < 80; i++ {
		ids = append(ids, f.publish([]backend.Backend{b, other}[i%2], numbered(i, i+1)...)...)
	}
	unique := map[string]bool{}
	start := time.Now()
	for i, d := range f.inOrder(f.claim(f.open(), "a", 80), ids) {
		unique[d.ID] = true
		if want := fmt.Sprintf("message %d", i); string(d.Data) != want || d.ID != ids[i] {
			f.Fatalf("delivery %d is %q with ID %s, want %q with ID %s", i, d.Data, d.ID, want, ids[i])
		}
		if d.Attempt != 1 || d.Consumer != "a" || d.Since.Before(start) || d.Since.After(time.Now()) {
			f.Fatalf("lease %+v of a first delivery to a, claimed after %s", d.Lease, start)
		}
		if age := time.Since(d.Enqueued); age < -5*time.Second || age > f.patience() {
			f.Fatalf("message published just now says that was %s ago (%s)", age, d.Enqueued)
		}
	}
	if len(unique) != 80 {
		f.Errorf("80 messages have %d IDs", len(unique))
	}
}

func appendKeepsNothing(f *fixture) {
	b := f.open()
	m := backend.Message{Data: []byte(`{"a":1}`), Headers: map[string]string{"k": "v"}, Priority: backend.High}
	f.publish(b, m)
	if string(m.Data) != `{"a":1}` || !maps.Equal(m.Headers, map[string]string{"k": "v"}) {
		f.Errorf("the append changed its message to %q %q", m.Data, m.Headers)
	}
	copy(m.Data, "XXXXXXX")
	m.Headers["k"] = "changed"
	d := f.claim(b, "a", 1)[0]
	if string(d.Data) != `{"a":1}` || d.Headers["k"] != "v" {
		f.Errorf("a change after the append is stored: %q %q", d.Data, d.Headers)
	}
	copy(d.Data, "YYYYYYY")
	f.nack(b, backend.Return{Lease: d.Lease})
	if again := f.claim(b, "a", 1)[0]; string(again.Data) != `{"a":1}` {
		f.Errorf("what one receiver wrote into its data came to the next: %q", again.Data)
	}
}

func emptyAppend(f *fixture) {
	b := f.open()
	if got, err := b.Append(f.ctx(), nil); err != nil || len(got) != 0 {
		f.Errorf("got %v, %v", got, err)
	}
	f.nothing(b, request("a", 1), "nothing was appended")
}

func keyStoresOnce(f *fixture) {
	b, other := f.open(), f.open()
	m := backend.Message{Data: []byte("first"), IdempotencyKey: "order 17 🙂"}
	first, err := b.Append(f.ctx(), []backend.Message{m})
	if err != nil || first[0].Deduped {
		f.Fatalf("first append with a key: %+v, %v", first, err)
	}
	m.Data = []byte("second")
	again, err := other.Append(f.ctx(), []backend.Message{m})
	if err != nil || !again[0].Deduped || again[0].ID != first[0].ID {
		f.Errorf("first %+v, its repeat %+v, %v", first, again, err)
	}
	f.publish(b, backend.Message{Data: []byte("other"), IdempotencyKey: "order 18"}, backend.Message{Data: []byte("none")}, backend.Message{Data: []byte("none")})
	var all []string
	for _, d := range f.claim(b, "a", 4) {
		all = append(all, string(d.Data))
	}
	want := "first other none none"
	if f.h.Unordered {
		slices.Sort(all)
		want = "first none none other"
	}
	if got := strings.Join(all, " "); got != want {
		f.Errorf("stored: %s", got)
	}
	f.nothing(b, request("a", 5), "four of five appends stored")
}

func keyStoresOnceInABatch(f *fixture) {
	b := f.open()
	f.publish(b, backend.Message{Data: []byte("a"), IdempotencyKey: "a"})
	batch := []backend.Message{
		{Data: []byte("b"), IdempotencyKey: "b"}, {Data: []byte("a2"), IdempotencyKey: "a"},
		{Data: []byte("c")}, {Data: []byte("b2"), IdempotencyKey: "b"},
	}
	got, err := b.Append(f.ctx(), batch)
	if err != nil || len(got) != 4 {
		f.Fatalf("got %+v, %v", got, err)
	}
	for i, deduped := range []bool{false, true, false, true} {
		if got[i].Deduped != deduped || got[i].ID == "" {
			f.Errorf("message %d of the batch: %+v, want deduped %t", i, got[i], deduped)
		}
	}
	if got[3].ID != got[0].ID {
		f.Errorf("one key in a batch has the IDs %s and %s", got[0].ID, got[3].ID)
	}
	f.claim(b, "a", 3)
	f.nothing(b, request("a", 5), "three of five were stored")
}

// keyed are n messages with keys; round is in the data, not in the key.
func keyed(n int, round string) []backend.Message {
	msgs := numbered(0, n)
	for i := range msgs {
		msgs[i].IdempotencyKey = fmt.Sprintf("order %d", i)
		msgs[i].Data = append(msgs[i].Data, round...)
	}
	return msgs
}

// keyedBatch: some of the messages are stored before, alone and in other company.
func keyedBatch(f *fixture) {
	b := f.open()
	all := keyed(100, "")
	before := map[int]bool{3: true, 40: true, 41: true, 42: true, 43: true, 44: true, 99: true}
	f.publish(b, all[3])
	f.publish(b, all[40:45]...)
	f.publish(b, all[99])
	ids := make([]string, len(all))
	for _, round := range []string{"", " again"} {
		got, err := f.open().Append(f.ctx(), keyed(100, round))
		if err != nil || len(got) != len(all) {
			f.Fatalf("append%s: %d results, %v", round, len(got), err)
		}
		for i, r := range got {
			if want := before[i] || round != ""; r.Err != nil || r.Deduped != want || r.ID == "" {
				f.Fatalf("message %d%s: %+v, want deduped %v", i, round, r, want)
			}
			if round != "" && r.ID != ids[i] {
				f.Fatalf("message %d has the ID %s and of its repeat %s", i, ids[i], r.ID)
			}
			ids[i] = r.ID
		}
	}
	f.eachOnce(b, 100)
}

// eachOnce checks that each of n keyed messages is there once.
func (f *fixture) eachOnce(b backend.Backend, n int) {
	f.Helper()
	seen := map[string]bool{}
	got := f.claim(b, "a", n)
	for _, d := range got {
		seen[strings.TrimSuffix(string(d.Data), " again")] = true
	}
	if len(seen) != n {
		f.Errorf("%d of %d messages are there", len(seen), n)
	}
	f.ack(b, got...)
	f.done(b)
}

func keyStoresOnceAmongMany(f *fixture) {
	const many = 16
	var ids [many]string
	var all sync.WaitGroup
	for i := range many {
		b := f.open()
		all.Go(func() {
			got, err := b.Append(f.ctx(), []backend.Message{{Data: []byte("x"), IdempotencyKey: "k"}})
			if err != nil || len(got) != 1 {
				f.Errorf("append: %v, %v", got, err)
				return
			}
			ids[i] = got[0].ID
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] {
			f.Fatalf("appends at once of one key gave the IDs %q", ids)
		}
	}
	b := f.open()
	f.claim(b, "a", 1)
	f.nothing(b, request("a", 5), "one key was appended")
}

func appendBeforeTheGroup(f *fixture) {
	f.publish(f.open(), numbered(0, 3)...)
	if got := f.claim(f.open(), "a", 3); string(got[0].Data) != "message 0" {
		f.Errorf("the first message is %q", got[0].Data)
	}
}

// oddBatch: a backend may take what others refuse, or refuse the whole batch,
// but what it says of each message has to be so.
func oddBatch(f *fixture) {
	odd := map[string]backend.Message{
		"a priority that is none":   {Priority: 99},
		"a header without a name":   {Headers: map[string]string{"": "v"}},
		"a header called data":      {Headers: map[string]string{"data": "v"}},
		"a header that is no text":  {Headers: map[string]string{"k": "\xff"}},
		"a very long key":           {IdempotencyKey: strings.Repeat("k", 5000)},
		"a payload of several MiBs": {Data: make([]byte, 6<<20)},
	}
	for name, m := range odd {
		f.fresh()
		b := f.open()
		batch := []backend.Message{{Data: []byte("first")}, m, {Data: []byte("last")}}
		got, err := b.Append(f.ctx(), batch)
		stored := 0
		for _, r := range got {
			if r.Err == nil {
				stored++
			}
		}
		if err == nil && stored != 3 || err != nil && stored == 3 || len(got) != 0 && len(got) != 3 {
			f.Errorf("%s: results %+v, error %v", name, got, err)
		}
		if errors.Is(err, backend.ErrOutcomeUnknown) {
			f.Errorf("%s: a refusal is said to be of unknown outcome: %v", name, err)
		}
		f.ack(b, f.gather(b, request("a", 3), stored).Deliveries...)
		f.done(b)
	}
}

func bigBatch(f *fixture) {
	b := f.open()
	f.publish(b, numbered(0, 1000)...)
	got := f.gather(b, request("a", 1000), 1000)
	if last := got.Deliveries[999]; string(last.Data) != "message 999" {
		f.Errorf("the last of 1000 is %q", last.Data)
	}
	f.ack(b, got.Deliveries...)
	f.done(b)
}
