package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func wide() *Limits {
	l := DefaultLimits()
	return &l
}

func TestAnyBytesComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		sent := bytes.Clone(body)
		var w WriteRequest
		if err := DecodeBytes(body, TypeBytes, wide(), &w); err != nil {
			t.Fatal(err)
		}
		checkStored(t, &w)
		p := ReadPayload(&w.Records[0])
		if !bytes.Equal(p.Body, sent) || p.ContentType != TypeBytes {
			t.Fatalf("got %q of type %q, want %q", p.Body, p.ContentType, sent)
		}
	})
}

func TestAnyTextComesBackAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		var w WriteRequest
		if err := DecodeText([]byte(text), "text/plain", wide(), &w); err != nil {
			t.Fatal(err)
		}
		checkStored(t, &w)
		if p := ReadPayload(&w.Records[0]); string(p.Body) != text || p.ContentType != "text/plain" {
			t.Fatalf("got %q of type %q, want %q", p.Body, p.ContentType, text)
		}
	})
}

// checkStored checks that the records could have come as JSON.
func checkStored(t interface{ Fatalf(string, ...any) }, w *WriteRequest) {
	for i := range w.Records {
		r := &w.Records[i]
		if err := Validate([]byte(`{"d":` + string(r.Data) + `,"m":` + string(r.Meta) + `}`)); err != nil {
			t.Fatalf("a record is not JSON: %v: %s %s", err, r.Data, r.Meta)
		}
	}
	if err := CheckWrite(w, wide()); err != nil {
		t.Fatalf("the write is refused: %v", err)
	}
}

// An event comes out of either mode as it went into the other.
func TestDataOfAnyKindComesBackInEitherMode(t *testing.T) {
	kinds := []string{"", "application/json", "application/x+json; charset=utf-8", "text/plain", "text/plain; charset=latin1", "application/xml", "image/png"}
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		if media, _ := MediaType(kind); kind == "" || isJSONType(media) {
			body = AppendString(nil, body)
		}
		subject := rapid.StringN(1, 20, -1).Draw(t, "subject")
		head := map[string][]string{"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/s"}, "Ce-Type": {"t"},
			"Ce-Subject": {string(appendHeaderText(nil, []byte(subject)))}}
		var w WriteRequest
		if err := DecodeEvent(bytes.Clone(body), kind, head, wide(), &w); err != nil {
			t.Fatal(err)
		}
		checkStored(t, &w)
		text := AppendEvent(nil, "x", &w.Records[0])
		var v map[string]any
		if err := json.Unmarshal(text, &v); err != nil || v["subject"] != subject {
			t.Fatalf("%v: %s", err, text)
		}
		var again WriteRequest
		if err := DecodeEvents(text, false, wide(), &again); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		p := ReadPayload(&again.Records[0])
		if !bytes.Equal(p.Body, body) {
			t.Fatalf("got %q, want %q", p.Body, body)
		}
		EventHeaders("x", &again.Records[0], &p, func(name, value string) {
			if sent := head["Ce-"+strings.ToUpper(name[3:4])+name[4:]]; len(sent) == 0 || sent[0] != value {
				t.Fatalf("header %s is %q, want %q", name, value, sent)
			}
		})
	})
}

func FuzzDecodeEvents(f *testing.F) {
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","n":1,"data_base64":"AA=="}`), false)
	f.Add([]byte(`[{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":[1 , 2]}}]`), true)
	f.Fuzz(func(t *testing.T, body []byte, batch bool) {
		var w WriteRequest
		if DecodeEvents(body, batch, wide(), &w) != nil || len(w.Records) == 0 || CheckWrite(&w, wide()) != nil {
			return
		}
		checkStored(t, &w)
		out := []byte{'['}
		for i := range w.Records {
			out = AppendNextEvent(out, "x", &w.Records[i])
		}
		out = append(out, ']')
		var again WriteRequest
		if err := DecodeEvents(bytes.Clone(out), true, wide(), &again); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for i := range w.Records {
			if a, b := &w.Records[i], &again.Records[i]; !bytes.Equal(a.Data, b.Data) || !bytes.Equal(a.Meta, b.Meta) {
				t.Fatalf("got %s %s, want %s %s", b.Data, b.Meta, a.Data, a.Meta)
			}
		}
	})
}

// A line has what data of a write has, and is nested no deeper.
func TestALineIsReadAsDataIs(t *testing.T) {
	for _, line := range []string{`1`, ` {"a" : [1 , 2]} ` + "\r", `"x"`, `null`, `01`, `1 2`, `{"a":1`, "\xff", `"\ud800"`,
		strings.Repeat("[", 124) + strings.Repeat("]", 124), strings.Repeat("[", 125) + strings.Repeat("]", 125)} {
		var one, other WriteRequest
		_, err := DecodeLine([]byte(line), &one)
		want := DecodeWrite([]byte(`{"records":[{"data":`+line+`}]}`), wide(), &other, nil)
		if (err == nil) != (want == nil) {
			t.Errorf("%.40q: %v, as data: %v", line, err, want)
		} else if err == nil && string(one.Records[0].Data) != string(other.Records[0].Data) {
			t.Errorf("%q: %s, as data: %s", line, one.Records[0].Data, other.Records[0].Data)
		}
	}
}

// Names are compared with each other, so there must not be many.
func TestAnEventHasFewAttributes(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"specversion":"1.0","id":"1","source":"/s","type":"t","data":1`)
	for i := range maxAttributes - 4 {
		fmt.Fprintf(&b, `,"a%d":null`, i)
	}
	var w WriteRequest
	if err := DecodeEvents([]byte(b.String()+`}`), false, wide(), &w); err != nil {
		t.Error(err)
	}
	if err := DecodeEvents([]byte(b.String()+`,"more":null}`), false, wide(), &w); err == nil {
		t.Error("one attribute too many is accepted")
	}
}

// A body of events takes little more memory than itself, as one of JSON does.
func TestEventsTakeLittleMemory(t *testing.T) {
	const event = `{"specversion":"1.0","id":"1","source":"/s","type":"t",`
	many := func(member string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(event+member+"},", 2_000), ",") + "]"
	}
	for name, c := range map[string]struct {
		body  string
		batch bool
	}{
		"many with an attribute": {many(`"long":"` + strings.Repeat("x", 4_000) + `"`), true},
		"many with data":         {many(`"data":"` + strings.Repeat("x", 4_000) + `"`), true},
		"many with base64":       {many(`"data_base64":"` + strings.Repeat("AAAA", 1_000) + `"`), true},
		"one with base64":        {event + `"data_base64":"` + strings.Repeat("AAAA", 2_000_000) + `"}`, false},
	} {
		var w WriteRequest
		body := []byte(c.body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := DecodeEvents(body, c.batch, wide(), &w)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err != nil || took > uint64(len(body))*3/2 {
			t.Errorf("%s: a body of %d bytes took %d, %v", name, len(body), took, err)
		}
	}
}
