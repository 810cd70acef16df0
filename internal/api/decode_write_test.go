package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// decodeWrite decodes and checks body under the default limits.
func decodeWrite(body string) (*WriteRequest, error) {
	lim := DefaultLimits()
	w := new(WriteRequest)
	if err := DecodeWrite([]byte(body), &lim, w, nil); err != nil {
		return w, err
	}
	return w, CheckWrite(w, &lim)
}

// wantError fails unless err has the code and its message the words.
func wantError(t *testing.T, err error, code Code, words string) (detail map[string]any) {
	t.Helper()
	if err == nil {
		t.Fatalf("accepted, want %s with %q", code, words)
	}
	if !IsCode(err, code) || !strings.Contains(Sentence(err), words) {
		t.Fatalf("got %v, want %s with %q", err, code, words)
	}
	return err.(*Error).Detail
}

func TestWriteRefusesWhatTheContractRefuses(t *testing.T) {
	one := func(record string) string { return `{"records":[` + record + `]}` }
	long := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	keys := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"k%d":1`, i))
		}
		return `{` + strings.Join(list, ",") + `}`
	}
	cases := []struct {
		rule, body string
		code       Code // empty: accepted
		words      string
	}{
		{"plain", one(`{"data":1}`), "", ""},
		{"data may be null", one(`{"data":null}`), "", ""},
		{"data must be there", one(`{"tag":"x"}`), CodeInvalidRequest, "records[0].data"},
		{"other letter case is unknown", `{"Records":[{"data":1}]}`, CodeInvalidRequest, `"records" is missing`},
		{"other letter case in a record", one(`{"Data":1}`), CodeInvalidRequest, "records[0].data"},
		{"escaped names are the same names", `{"\u0072ecords":[{"d\u0061ta":1}]}`, "", ""},
		{"a field twice", `{"records":[{"data":1}],"records":[{"data":1}]}`, CodeInvalidRequest, `"records" is there twice`},
		{"a field twice, once escaped", `{"records":[{"data":1}],"\u0072ecords":[]}`, CodeInvalidRequest, "twice"},
		{"null counts as an occurrence", `{"records":[{"data":1}],"node":null,"node":"a"}`, CodeInvalidRequest, "twice"},
		{"a priority", one(`{"data":1,"priority":"critical"}`), "", ""},
		{"a priority may be null", one(`{"data":1,"priority":null,"fair_key":null}`), "", ""},
		{"a priority has a name", one(`{"data":1,"priority":"urgent"}`), CodeInvalidRequest, `"records[0].priority" must be one of "background" "bulk" "low" "normal" "high" "critical"`},
		{"a priority is no number", one(`{"data":1,"priority":1}`), CodeInvalidRequest, "records[0].priority"},
		{"priority twice", one(`{"data":1,"priority":"low","priority":"low"}`), CodeInvalidRequest, "records[0].priority"},
		{"a fair key of 256 bytes", one(`{"data":1,"fair_key":` + long(256) + `}`), "", ""},
		{"a fair key of 257 bytes", one(`{"data":1,"fair_key":` + long(257) + `}`), CodeInvalidRequest, `"records[0].fair_key" is 257 bytes long; 256 are accepted`},
		{"a fair key is a string", one(`{"data":1,"fair_key":7}`), CodeInvalidRequest, "records[0].fair_key"},
		{"data twice", one(`{"data":1,"data":2}`), CodeInvalidRequest, "records[0].data"},
		{"an unknown field twice", one(`{"data":1,"x":1,"x":2}`), "", ""},
		{"a repeated key in user JSON", one(`{"data":{"a":1,"a":2}}`), "", ""},
		{"unknown fields are validated", `{"records":[{"data":1}],"x":[1,]}`, CodeInvalidRequest, "byte 31"},
		{"trailing bytes", `{"records":[{"data":1}]}x`, CodeInvalidRequest, "after the object"},
		{"records null", `{"records":null}`, CodeInvalidRequest, `"records" must be`},
		{"records an object", `{"records":{}}`, CodeInvalidRequest, `"records" must be`},
		{"records empty", `{"records":[]}`, CodeInvalidRequest, `"records" is empty`},
		{"record null", one(`null`), CodeInvalidRequest, "records[0]"},
		{"record a number", one(`{"data":1},5`), CodeInvalidRequest, "records[1]"},
		{"tag of another type", one(`{"data":1,"tag":5}`), CodeInvalidRequest, "records[0].tag"},
		{"tag null", one(`{"data":1,"tag":null}`), "", ""},
		{"tag of 256 bytes", one(`{"data":1,"tag":` + long(256) + `}`), "", ""},
		{"tag of 257 bytes", one(`{"data":1,"tag":` + long(257) + `}`), CodeInvalidRequest, "records[0].tag"},
		{"tag counts decoded bytes", one(`{"data":1,"tag":"` + strings.Repeat(`\u0041`, 256) + `"}`), "", ""},
		{"node of 128 bytes", one(`{"data":1,"node":` + long(128) + `}`), "", ""},
		{"node of 129 bytes", one(`{"data":1,"node":` + long(129) + `}`), CodeInvalidRequest, "records[0].node"},
		{"batch node of 129 bytes", `{"node":` + long(129) + `,"records":[{"data":1}]}`, CodeInvalidRequest, "node"},
		{"batch node of 129 bytes that no record takes", `{"node":` + long(129) + `,"records":[{"data":1,"node":"a"}]}`, CodeInvalidRequest, `"node"`},
		{"batch node of another type", `{"node":["a"],"records":[{"data":1}]}`, CodeInvalidRequest, `"node"`},
		{"meta null", one(`{"data":1,"meta":null}`), "", ""},
		{"meta an array", one(`{"data":1,"meta":[]}`), CodeInvalidRequest, "records[0].meta"},
		{"meta a string", one(`{"data":1,"meta":"x"}`), CodeInvalidRequest, "records[0].meta"},
		{"meta of 64 keys", one(`{"data":1,"meta":` + keys(64) + `}`), "", ""},
		{"meta of 65 keys", one(`{"data":1,"meta":` + keys(65) + `}`), CodeInvalidRequest, "65 keys"},
		{"meta of 65 short keys", one(`{"data":1,"meta":{` + strings.TrimSuffix(strings.Repeat(`"":1,`, 65), ",") + `}}`), CodeInvalidRequest, "65 keys"},
		{"meta of 16384 bytes", one(`{"data":1,"meta":{"k":` + long(16384-8) + `}}`), "", ""},
		{"meta of 16385 bytes", one(`{"data":1,"meta":{"k":` + long(16385-8) + `}}`), CodeInvalidRequest, "16385 bytes"},
		{"white space does not count in meta", one(`{"data":1,"meta":{ ` + strings.Repeat(" ", 20000) + `}}`), "", ""},
		{"record of 1 MiB", one(`{"data":` + long(1<<20-2) + `}`), "", ""},
		{"record of 1 MiB and a byte", one(`{"data":` + long(1<<20-1) + `}`), CodeRecordTooLarge, "records[0]"},
		{"meta counts in the record", one(`{"data":` + long(1<<20-3) + `,"meta":{}}`), CodeRecordTooLarge, "records[0]"},
		{"key of 256 bytes", `{"idempotency_key":` + long(256) + `,"records":[{"data":1}]}`, "", ""},
		{"key of 257 bytes", `{"idempotency_key":` + long(257) + `,"records":[{"data":1}]}`, CodeInvalidRequest, "idempotency_key"},
		{"key of another type", `{"idempotency_key":5,"records":[{"data":1}]}`, CodeInvalidRequest, "idempotency_key"},
		{"nullable fields of a write", `{"node":null,"idempotency_key":null,"create":null,"config":null,"records":[{"data":1,"node":null}]}`, "", ""},
		{"create of another type", `{"create":1,"records":[{"data":1}]}`, CodeInvalidRequest, `"create"`},
		{"disable_backpressure null", `{"disable_backpressure":null,"records":[{"data":1}]}`, CodeInvalidRequest, "disable_backpressure"},
		{"config of another type", `{"config":[],"records":[{"data":1}]}`, CodeInvalidRequest, `"config" must be`},
		{"config field of another type", `{"config":{"ttl_ms":"1"},"records":[{"data":1}]}`, CodeInvalidRequest, `"config.ttl_ms"`},
		{"dead letter name is not checked here", `{"config":{"dead_letter":"!"},"records":[{"data":1}]}`, "", ""},
		{"empty comes before the key", `{"idempotency_key":` + long(257) + `,"records":[]}`, CodeInvalidRequest, `"records" is empty`},
		{"key comes before the records", `{"idempotency_key":` + long(257) + `,"records":[{"data":1,"tag":` + long(300) + `}]}`, CodeInvalidRequest, "idempotency_key"},
		{"tag comes before node", one(`{"data":1,"node":` + long(300) + `,"tag":` + long(300) + `}`), CodeInvalidRequest, "records[0].tag"},
		{"first record decides", one(`{"data":` + long(1<<20) + `},{"data":1,"tag":` + long(300) + `}`), CodeRecordTooLarge, "records[0]"},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			_, err := decodeWrite(c.body)
			if c.code != "" {
				wantError(t, err, c.code, c.words)
			} else if err != nil {
				t.Fatalf("refused: %v", err)
			}
		})
	}
}

func TestWriteKeepsWhatWasSent(t *testing.T) {
	w, err := decodeWrite(` { "node" : "batch", "create": false, "idempotency_key":"", "disable_backpressure": true,
		"config": {"type":"queue","durable":true},
		"records": [
			{"data": {"a" : [1, 2.50, "x  y"], "a" : null}, "meta": { "k" : "v" }, "tag": "", "node": "own"},
			{"data": " \n ", "tag":"t\u00e4g\n\ud83d\ude00"} ,
			{"data":"plain"} ] } `)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ data, meta, tag, node string }{
		{`{"a":[1,2.50,"x  y"],"a":null}`, `{"k":"v"}`, "", "own"},
		{`" \n "`, "", "täg\n😀", "batch"},
		{`"plain"`, "", "", "batch"},
	}
	if len(w.Records) != len(want) {
		t.Fatalf("got %d records", len(w.Records))
	}
	for i, r := range w.Records {
		got := struct{ data, meta, tag, node string }{string(r.Data), string(r.Meta), string(r.Tag), string(r.Node)}
		if got != want[i] || r.HasTag != (i < 2) || !r.HasNode {
			t.Errorf("record %d: got %+v, want %+v", i, got, want[i])
		}
	}
	if w.Create == nil || *w.Create || !w.HasIdempotencyKey || len(w.IdempotencyKey) != 0 || !w.DisableBackpressure {
		t.Errorf("got %+v", w)
	}
	if w.Config == nil || w.Config.Type != TypeQueue || w.Config.Durability != Fsync || !w.Config.AutoCreate {
		t.Errorf("config %+v", w.Config)
	}
}

func TestWriteBatchNodeMayFollowTheRecords(t *testing.T) {
	w, err := decodeWrite(`{"records":[{"data":1},{"data":2,"node":"own"},{"data":3,"node":null}],"node":"late"}`)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"late", "own", "late"} {
		if string(w.Records[i].Node) != want {
			t.Errorf("record %d has node %q, want %q", i, w.Records[i].Node, want)
		}
	}
}

func TestWriteLeavesTheMeaningOfTheBodyAlone(t *testing.T) {
	body := []byte(`{"records":[{"data":{ "a" : 1 , "b" : " x " },"meta":{ }},{"data":[ ]}]}`)
	lim := DefaultLimits()
	var first, second WriteRequest
	if err := DecodeWrite(body, &lim, &first, nil); err != nil {
		t.Fatal(err)
	}
	if err := DecodeWrite(body, &lim, &second, nil); err != nil {
		t.Fatalf("the body no longer decodes: %v", err)
	}
	for i := range first.Records {
		if string(first.Records[i].Data) != string(second.Records[i].Data) || string(first.Records[i].Meta) != string(second.Records[i].Meta) {
			t.Errorf("record %d changed", i)
		}
	}
}

func TestWriteOfTooManyRecordsKeepsFew(t *testing.T) {
	lim := DefaultLimits()
	for _, n := range []int{10_000, 10_001, 50_000} {
		var w WriteRequest
		body := []byte(`{"records":[` + strings.TrimSuffix(strings.Repeat(`{"data":1,"tag":"\u0041"},`, n), ",") + `]}`)
		if err := DecodeWrite(body, &lim, &w, nil); err != nil {
			t.Fatal(err)
		}
		if len(w.Records) > lim.MaxBatchRecords+1 || len(w.scratch) > lim.MaxBatchRecords+1 {
			t.Errorf("%d records: holds %d records and %d bytes of strings", n, len(w.Records), len(w.scratch))
		}
		err := CheckWrite(&w, &lim)
		if n <= lim.MaxBatchRecords {
			if err != nil {
				t.Errorf("%d records: %v", n, err)
			}
			continue
		}
		wantError(t, err, CodeBatchTooLarge, "10000")
	}
	var w WriteRequest
	body := []byte(`{"records":[` + strings.Repeat(`{"data":1},`, 10_001) + `{"tag":"no data"}]}`)
	wantError(t, DecodeWrite(body, &lim, &w, nil), CodeInvalidRequest, "records[10001].data")
}

func TestWriteRequestIsCleanAfterReuse(t *testing.T) {
	lim := DefaultLimits()
	var w WriteRequest
	full := `{"node":"n","idempotency_key":"k","create":true,"config":{"ttl_ms":5},"disable_backpressure":true,"records":[{"data":1,"tag":"t","meta":{"a":1}},{"data":2}]}`
	if err := DecodeWrite([]byte(full), &lim, &w, nil); err != nil {
		t.Fatal(err)
	}
	if err := DecodeWrite([]byte(`{"records":[{"data":3}]}`), &lim, &w, nil); err != nil {
		t.Fatal(err)
	}
	r := w.Records[0]
	if len(w.Records) != 1 || r.HasTag || r.HasNode || r.Meta != nil || w.Node != nil || w.HasIdempotencyKey ||
		w.IdempotencyKey != nil || w.Create != nil || w.Config != nil || w.DisableBackpressure {
		t.Errorf("something of the first request is left: %+v", w)
	}
}

func TestPlainBatchDecodesWithoutAllocating(t *testing.T) {
	lim := DefaultLimits()
	var w WriteRequest
	bodies := map[string][]byte{
		"one":   writeBody(1, 256),
		"batch": writeBody(100, 256),
		"all fields": []byte(`{"node":"n","idempotency_key":"k","create":true,"records":[` +
			strings.Join(slices.Repeat([]string{`{"data":{ "a" : 1 },"tag":"t\u0041","node":"x","meta":{"k":"v"}}`}, 20), ",") + `]}`),
	}
	for name, body := range bodies {
		if n := testing.AllocsPerRun(50, func() {
			if DecodeWrite(body, &lim, &w, nil) != nil || CheckWrite(&w, &lim) != nil {
				t.Error("refused")
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if n := testing.AllocsPerRun(50, func() {
			if Validate(body) != nil {
				t.Error("refused")
			}
		}); n > 0 {
			t.Errorf("%s: Validate made %v allocations", name, n)
		}
	}
}
