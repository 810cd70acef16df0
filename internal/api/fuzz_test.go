package api

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// strictlyValid says what Validate has to say, with encoding/json and the
// stricter rules of contract 2 on top; sure is false where it cannot tell a lone
// surrogate from a replacement character that was sent.
func strictlyValid(body []byte) (ok, sure bool) {
	if !json.Valid(body) || !utf8.Valid(body) || !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
		return false, true
	}
	sure = !bytes.ContainsRune(body, utf8.RuneError) && !bytes.Contains(bytes.ToLower(body), []byte(`\ufffd`))
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	depth := 0
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return true, sure
		}
		if err != nil {
			return false, true
		}
		switch v := token.(type) {
		case json.Delim:
			if v == '{' || v == '[' {
				depth++
			} else {
				depth--
			}
			if depth > MaxNesting {
				return false, true
			}
		case json.Number:
			if _, err := strconv.ParseFloat(string(v), 64); err != nil {
				return false, true
			}
		case string:
			if sure && strings.ContainsRune(v, utf8.RuneError) {
				return false, true
			}
		}
	}
}

func FuzzWriteBody(f *testing.F) {
	for _, seed := range []string{
		`{"records":[{"data":1}]}`,
		` { "records" : [ { "data" : { "a" : [ 1 , "x" ] } , "meta" : { } , "tag" : "\u0041\ud83d\ude00" , "node" : null } ] , "node" : "n" } `,
		`{"\u0072ecords":[{"data":"é"},{"data":-0.5e-3,"tag":""}],"idempotency_key":"k","create":false}`,
		`{"config":{"type":"queue","priority":-5,"dead_letter":"d"},"records":[{"data":null}],"x":[[{}]]}`,
		`{"records":[{"data":1e999}]}`, `{"a":"\ud800"}`, "{\"a\":\"\xff\"}", `{"a":01}`,
	} {
		f.Add([]byte(seed))
	}
	lim := DefaultLimits()
	f.Fuzz(func(t *testing.T, body []byte) {
		err := Validate(body)
		if ok, sure := strictlyValid(body); sure && ok != (err == nil) {
			t.Fatalf("Validate says %v, want ok %v", err, ok)
		}
		var w WriteRequest
		if refused := DecodeWrite(bytes.Clone(body), &lim, &w, nil); refused != nil {
			if !IsCode(refused, CodeInvalidRequest) || Sentence(refused) == "" {
				t.Fatalf("refused with %v", refused)
			}
			return
		}
		if err != nil {
			t.Fatalf("decoded, though Validate says %v", err)
		}
		compareWrite(t, body, &w, &lim)
	})
}

// compareWrite checks a decoded write against what encoding/json reads.
func compareWrite(t *testing.T, body []byte, w *WriteRequest, lim *Limits) {
	var top struct {
		Records []map[string]json.RawMessage
		Node    *string
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(fields["records"], &top.Records); err != nil {
		t.Fatal(err)
	}
	if raw, ok := fields["node"]; ok {
		if err := json.Unmarshal(raw, &top.Node); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.Records) != min(len(top.Records), lim.MaxBatchRecords+1) {
		t.Fatalf("%d records, want %d", len(w.Records), len(top.Records))
	}
	for i := range w.Records {
		r, want := &w.Records[i], top.Records[i]
		compareRaw(t, r.Data, want["data"])
		if meta := want["meta"]; string(meta) != "null" {
			compareRaw(t, r.Meta, meta)
		}
		compareString(t, r.HasTag, r.Tag, want["tag"], nil)
		compareString(t, r.HasNode, r.Node, want["node"], top.Node)
		if text := AppendRecord(nil, r, true, true); !json.Valid(text) {
			t.Fatalf("encodes to %s", text)
		}
	}
}

func compareRaw(t *testing.T, got []byte, want json.RawMessage) {
	var text bytes.Buffer
	if len(want) > 0 {
		if err := json.Compact(&text, want); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, text.Bytes()) {
		t.Fatalf("got %s, want %s", got, text.Bytes())
	}
}

func compareString(t *testing.T, has bool, got []byte, raw json.RawMessage, fallback *string) {
	want := fallback
	if len(raw) > 0 && string(raw) != "null" {
		want = new(string)
		if err := json.Unmarshal(raw, want); err != nil {
			t.Fatal(err)
		}
	}
	if has != (want != nil) || has && string(got) != *want {
		t.Fatalf("got %q (%v), want %v", got, has, want)
	}
}

// Whatever a body is, a record of it is one that a write of JSON would store.
// FuzzStoredAsIs compares with a whole write: what is stored as it is comes out of it as it is.
func FuzzStoredAsIs(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,"x y"]}`, `{"a": 1}`, ` 1`, `1 `, `1`, ``, `-`, `true`, `truth`, `null`, `"a b"`, `"\ud800"`, `1e999`, `01`, `hello`, `[]`, `[1,]`,
		`1}],"node":"n","x":[{"data":2`, `1},{"data":2`, "\"\xff\"", `{"a":1,"a":2}`,
		strings.Repeat("[", MaxNesting-3) + strings.Repeat("]", MaxNesting-3), strings.Repeat("[", MaxNesting-2) + strings.Repeat("]", MaxNesting-2),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		body := []byte(`{"records":[{"data":` + string(data) + `}]}`)
		var w WriteRequest
		err := DecodeWrite(body, &Limits{MaxBatchRecords: 1}, &w, nil)
		want := err == nil && len(w.Records) == 1 && bytes.Equal(w.Records[0].Data, data)
		if got := StoredAsIs(data); got != want {
			t.Fatalf("%q is stored as it is: %v; want %v, %v", data, got, want, err)
		}
	})
}

func FuzzForms(f *testing.F) {
	const event = `{"specversion":"1.0","id":"1","source":"/s","type":"t",`
	for _, data := range []string{`"data":{"a":[1, 2]}}`, `"data_base64":"AAAA"}`, `"data_base64":"AA\u000aAA"}`, `"data_base64":"AA\r\nAA\n"}`, `"time":null,"n":-1,"b":true}`,
		`"datacontenttype":"text/plain; a=\"\u0001\"","data":"x"}`, `"data":` + strings.Repeat("[", 125) + strings.Repeat("]", 125) + `}`} {
		f.Add(uint8(0), "", "", []byte(event+data))
		f.Add(uint8(1), "", "", []byte("[ "+event+data+" ]"))
	}
	f.Add(uint8(2), "application/json", "%C3%A9%00\"", []byte(` {"a" : 1} `))
	f.Add(uint8(2), "text/plain", "100%", []byte("a\nb\x00"))
	f.Add(uint8(3), "image/png", "", []byte("\x00\xff"))
	f.Add(uint8(4), "text/plain", "", []byte("a\nb\u2028\x00"))
	f.Add(uint8(5), "", "", []byte(` [1 , "x" ] `))
	lim := DefaultLimits()
	f.Fuzz(func(t *testing.T, form uint8, contentType, attribute string, body []byte) {
		var w WriteRequest
		var err error
		body = bytes.Clone(body)
		switch form % 6 {
		case 0, 1:
			err = DecodeEvents(body, form%6 == 1, &lim, &w)
		case 2:
			head := map[string][]string{"Ce-Specversion": {"1.0"}, "Ce-Id": {attribute}, "Ce-Source": {"/s"}, "Ce-Type": {"t"}}
			err = DecodeEvent(body, contentType, head, &lim, &w)
		case 3:
			err = DecodeBytes(body, contentType, &lim, &w)
		case 4:
			err = DecodeText(body, contentType, &lim, &w)
		case 5:
			_, err = DecodeLine(body, &w)
		}
		if err != nil || CheckWrite(&w, &lim) != nil {
			return
		}
		for _, r := range w.Records {
			write := append([]byte(`{"records":[{"data":`), r.Data...)
			if r.Meta != nil {
				write = append(append(write, `,"meta":`...), r.Meta...)
			}
			write = append(write, "}]}"...)
			var again WriteRequest
			if err := DecodeWrite(bytes.Clone(write), &lim, &again, nil); err != nil {
				t.Fatalf("the record %s: %v", write, err)
			}
			if got := again.Records[0]; !bytes.Equal(got.Data, r.Data) || !bytes.Equal(got.Meta, r.Meta) {
				t.Fatalf("%s and %s become %s and %s", r.Data, r.Meta, got.Data, got.Meta)
			}
			if out := AppendEvent(nil, "topic", &r); !json.Valid(out) {
				t.Fatalf("as an event it is %s", out)
			}
		}
	})
}

func FuzzConfig(f *testing.F) {
	for _, seed := range []string{``, `{}`, `{"type":"queue","durable":true,"priority":-7,"lease_ms":1,"dead_letter":"a\u0062"}`,
		`{"durability":"ephemeral","discard":"reject","ttl_ms":18446744073709551615}`, `{"priority":5.0}`, `{"durability":null}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, refused := DecodeConfig(body, nil)
		if refused != nil {
			return
		}
		if len(body) > 0 && Validate(body) != nil {
			t.Fatalf("decoded, though Validate says %v", Validate(body))
		}
		echo := AppendConfig(nil, &c)
		back, refused := DecodeConfig(echo, nil)
		if refused != nil || !reflect.DeepEqual(back, c) {
			t.Fatalf("echo %s decodes to %+v, %v, want %+v", echo, back, refused, c)
		}
	})
}

func FuzzSettle(f *testing.F) {
	f.Add(uint8(0), []byte(`{"node":"w","seqs":[1,2],"lease_ids":["lease_1f",""]}`))
	f.Add(uint8(1), []byte(`{"node":"w","seqs":[],"delay_ms":5,"started":false}`))
	f.Add(uint8(2), []byte(`{"node":"w","seqs":[18446744073709551615],"lease_ms":100}`))
	lim := DefaultLimits()
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		k := SettleKind(kind % 3)
		var r SettleRequest
		if DecodeSettle(k, body, &lim, &r, nil) != nil {
			return
		}
		if err := Validate(body); err != nil {
			t.Fatalf("decoded, though Validate says %v", err)
		}
		var want struct {
			Seqs []uint64 `json:"seqs"`
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(body, &fields); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(fields["seqs"], &want.Seqs); err != nil {
			t.Fatal(err)
		}
		if len(r.Seqs) != len(want.Seqs) || len(r.Seqs) > 0 && !reflect.DeepEqual(r.Seqs, want.Seqs) {
			t.Fatalf("got %v, want %v", r.Seqs, want.Seqs)
		}
		if r.Node == "" || r.NumLeaseIDs != 0 && r.NumLeaseIDs != len(r.Seqs) || len(r.LeaseIDs) != r.NumLeaseIDs {
			t.Fatalf("got %+v", r)
		}
		if k == SettleExtend && (r.LeaseMS < MinLeaseMS || r.LeaseMS > MaxLeaseMS) || r.DelayMS > MaxNackDelayMS {
			t.Fatalf("out of range: %+v", r)
		}
	})
}

// FuzzReadBodies covers the bodies of diff, delete and claim.
func FuzzReadBodies(f *testing.F) {
	for _, seed := range []string{`{"from_seq":1,"limit":5,"node":["a","b"],"wait_ms":9}`, `{"match":["tag","Glob","a*"],"before_seq":null,"min_seq":2}`,
		`{"match":"x*"}`, `{"node":"w","max":5,"lease_ms":null}`} {
		f.Add([]byte(seed))
	}
	lim := DefaultLimits()
	f.Fuzz(func(t *testing.T, body []byte) {
		valid := Validate(body)
		d, refused := DecodeDiff(body, &lim, nil)
		if refused == nil {
			if valid != nil && len(body) > 0 || d.Limit < 1 || d.Limit > lim.MaxLimit || d.WaitMS > MaxWaitMS || d.MaxBatchBytes < 1 || d.MaxBatchBytes > MaxDiffBytes {
				t.Fatalf("got %+v; Validate says %v", d, valid)
			}
		}
		if _, refused := DecodeDelete(body, nil); refused == nil && valid != nil {
			t.Fatalf("decoded a delete, though Validate says %v", valid)
		}
		c, refused := DecodeClaim(body, &lim, nil)
		if refused == nil && (valid != nil || c.Max < 1 || c.Max > lim.MaxClaim) {
			t.Fatalf("got %+v; Validate says %v", c, valid)
		}
	})
}

func FuzzCursor(f *testing.F) {
	for _, seed := range []string{"", "AWE", EncodeCursor("orders->audit"), "topic", "a\nb"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if name, err := DecodeCursor(text); err == nil && EncodeCursor(name) != text {
			t.Fatalf("%q decodes to %q, whose cursor is %q", text, name, EncodeCursor(name))
		}
		if !ValidRouterName(text) {
			return
		}
		if name, err := DecodeCursor(EncodeCursor(text)); err != nil || name != text {
			t.Fatalf("%q came back as %q, %v", text, name, err)
		}
	})
}

func FuzzAppendString(f *testing.F) {
	f.Add([]byte("a\"\\\n\x00é\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got := AppendString(nil, text)
		var back string
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if want := string([]rune(string(text))); back != want {
			t.Fatalf("%s reads %q, want %q", got, back, want)
		}
		if !bytes.Equal(got, AppendString(nil, string(text))) {
			t.Fatal("bytes and string differ")
		}
	})
}
