package api

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// bodies are what has fields: the decoder, how a body is made of an object, its path in
// warnings, and its fields.
func bodies() map[string]struct {
	decode func([]byte, *Warnings) error
	around string // %s is the object
	path   string
	known  []string
} {
	lim := DefaultLimits()
	write := func(b []byte, w *Warnings) error { return DecodeWrite(b, &lim, new(WriteRequest), w) }
	watch := func(b []byte, w *Warnings) error { _, err := DecodeWatch(b, &lim, MinHeartbeatMS, w); return err }
	socket := func(b []byte, w *Warnings) error { _, err := DecodeSocket(b, &lim, new(WriteRequest), w); return err }
	settle := func(kind SettleKind) func([]byte, *Warnings) error {
		return func(b []byte, w *Warnings) error { return DecodeSettle(kind, b, &lim, new(SettleRequest), w) }
	}
	type body = struct {
		decode func([]byte, *Warnings) error
		around string
		path   string
		known  []string
	}
	writes := func(b []byte, w *Warnings) error { return DecodeWrites(b, &lim, new(WritesRequest), w) }
	all := map[string]body{
		"writes": {writes, "%s", "", writesFields},
		"one":    {writes, `{"writes":[{"records":[]},%s]}`, "writes[1].", oneWriteFields},
		"many":   {writes, `{"writes":[{"records":[{"data":1},%s]}]}`, "writes[0].records[1].", recordFields},
		"write":  {write, "%s", "", writeFields},
		"record": {write, `{"records":[{"data":1},%s]}`, "records[1].", recordFields},
		"inline": {write, `{"config":%s,"records":[]}`, "config.", configFields},
		"config": {func(b []byte, w *Warnings) error { _, err := DecodeConfig(b, w); return err }, "%s", "", configFields},
		"diff":   {func(b []byte, w *Warnings) error { _, err := DecodeDiff(b, &lim, w); return err }, "%s", "", diffFields},
		"delete": {func(b []byte, w *Warnings) error { _, err := DecodeDelete(b, w); return err }, "%s", "", deleteFields},
		"router": {func(b []byte, w *Warnings) error { _, err := DecodeRouter(b, w); return err }, "%s", "", routerFields},
		"claim":  {func(b []byte, w *Warnings) error { _, err := DecodeClaim(b, &lim, w); return err }, "%s", "", claimFields},
		"ack":    {settle(SettleAck), "%s", "", settleFields[SettleAck]},
		"nack":   {settle(SettleNack), "%s", "", settleFields[SettleNack]},
		"extend": {settle(SettleExtend), "%s", "", settleFields[SettleExtend]},
		"tally":  {func(b []byte, w *Warnings) error { _, err := DecodeTally(b, w); return err }, "%s", "", tallyFields},
		"watch":  {watch, "%s", "", watchFields},
		"start":  {watch, `{"topics":{"a":%s}}`, "topics.a.", startFields},
	}
	for name, op := range socketOps {
		var known []string
		for _, f := range socketFields[op] {
			if f != "op" && (f != "topic" || op != SocketPublish && !op.ofQueue()) {
				known = append(known, f)
			}
		}
		all["socket "+name] = body{func(b []byte, w *Warnings) error {
			head := fmt.Sprintf(`{"op":%q,`, name)
			if op == SocketPublish || op.ofQueue() {
				head += `"topic":"t",`
			}
			return socket([]byte(strings.Replace(string(b), "{", head, 1)), w)
		}, "%s", "", known}
	}
	return all
}

// A field that a decoder reads is in its list, and the other way round: the list is what
// tells a field that is unknown.
func TestEveryKnownFieldIsRead(t *testing.T) {
	for name, b := range bodies() {
		for _, field := range b.known {
			var w Warnings
			object := fmt.Sprintf(`{%q:[[]],%q:[[]]}`, field, field) // no field takes this, or not twice
			err := b.decode([]byte(fmt.Sprintf(b.around, object)), &w)
			if err == nil || !strings.Contains(Sentence(err), field) && field != "config" {
				t.Errorf("%s: field %s is not read: %v", name, field, err)
			}
			if len(w) != 0 {
				t.Errorf("%s: field %s: %v", name, field, w)
			}
		}
	}
}

func TestAnUnknownFieldIsNamedWithTheNearest(t *testing.T) {
	for name, b := range bodies() {
		known := b.known[len(b.known)-1]
		typo := known[:1] + known[2:]
		var w Warnings
		// An error about what is missing does not matter here.
		_ = b.decode([]byte(fmt.Sprintf(b.around, fmt.Sprintf(`{%q:{"%s":[1]},"Zzz":null}`, typo, "\\u0041"))), &w)
		if len(w) != 2 || w[0].Code != WarnUnknownField || w[0].Name != b.path+typo || w[0].Nearest != b.path+known || w[1].Name != b.path+"Zzz" {
			t.Errorf("%s: %+v", name, w)
		}
		if e := w.Refusal(); len(w) > 0 && (!IsCode(e, CodeInvalidRequest) || !strings.Contains(Sentence(e), fmt.Sprintf("%q", b.path+typo)) || !strings.Contains(Sentence(e), known)) {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func TestWarningsAreBounded(t *testing.T) {
	var w Warnings
	long := strings.Repeat("é", 1000)
	body := `{"` + long + `":1`
	for i := range 1000 {
		body += fmt.Sprintf(`,"x%d":1`, i)
	}
	if _, err := DecodeConfig([]byte(body+"}"), &w); err != nil {
		t.Fatal(err)
	}
	out := w.Append([]byte(`{"a":1}`))
	if len(w) != MaxWarnings || len(out) > 16<<10 || Validate(out) != nil {
		t.Errorf("%d warnings, %d bytes: %s", len(w), len(out), out)
	}
}

// A name that is long makes no long path of everything below it, nor is it put together for each.
func TestAWarningDoesNotRepeatALongName(t *testing.T) {
	lim := DefaultLimits()
	for what, head := range map[string]string{"watch": `{"topics":{`, "subscribe": `{"op":"subscribe","topics":{`} {
		body := head + `"` + strings.Repeat("é", 100_000) + `":{"x":1` + strings.Repeat(`,"x":1`, 1000) + `}}}`
		var w Warnings
		decode := func() (err error) {
			w = w[:0]
			if what == "watch" {
				_, err = DecodeWatch([]byte(body), &lim, MinHeartbeatMS, &w)
			} else {
				_, err = DecodeSocket([]byte(body), &lim, new(WriteRequest), &w)
			}
			return err
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := decode(); err != nil {
			t.Fatal(what, err)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 4*uint64(len(body)) {
			t.Errorf("%s: a body of %d bytes took %d", what, len(body), took)
		}
		if out := w.Append([]byte(`{"a":1}`)); len(w) != MaxWarnings || len(out) > 32<<10 || Validate(out) != nil {
			t.Errorf("%s: %d warnings, %d bytes: %.1000s", what, len(w), len(out), out)
		}
	}
}

func BenchmarkWriteWithWarnings(b *testing.B) {
	lim := DefaultLimits()
	var req WriteRequest
	var w Warnings
	body := []byte(`{"records":[{"data":{"id":7},"tag":"new"}]}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := DecodeWrite(body, &lim, &req, &w); err != nil {
			b.Fatal(err)
		}
	}
}
