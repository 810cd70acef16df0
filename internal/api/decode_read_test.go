package api

import (
	"reflect"
	"strings"
	"testing"
)

func TestDiffAppliesDefaultsAndClamps(t *testing.T) {
	lim := DefaultLimits()
	with := func(change func(*DiffRequest)) DiffRequest {
		d := DiffRequest{Limit: 256, IncludeMeta: true, MaxBatchBytes: 1 << 20}
		change(&d)
		return d
	}
	cases := []struct {
		rule, body string
		want       DiffRequest
	}{
		{"zero bytes", ``, with(func(*DiffRequest) {})},
		{"empty object", `{}`, with(func(*DiffRequest) {})},
		{"zero means default", `{"limit":0,"max_batch_bytes":0}`, with(func(*DiffRequest) {})},
		{"largest values pass", `{"limit":1000,"wait_ms":30000,"max_batch_bytes":8388608}`,
			with(func(d *DiffRequest) { d.Limit, d.WaitMS, d.MaxBatchBytes = 1000, 30000, 8<<20 })},
		{"larger ones are lowered", `{"limit":4294967295,"wait_ms":4294967295,"max_batch_bytes":18446744073709551615}`,
			with(func(d *DiffRequest) { d.Limit, d.WaitMS, d.MaxBatchBytes = 1000, 30000, 8<<20 })},
		{"one node", `{"node":"a"}`, with(func(d *DiffRequest) { d.Nodes = []string{"a"} })},
		{"nodes", `{"node":["a","b\n",""]}`, with(func(d *DiffRequest) { d.Nodes = []string{"a", "b\n", ""} })},
		{"no nodes", `{"node":[ ]}`, with(func(*DiffRequest) {})},
		{"node null", `{"node":null}`, with(func(*DiffRequest) {})},
		{"cursor and flags", `{"from_seq":18446744073709551615,"include_tags":true,"include_meta":false}`,
			with(func(d *DiffRequest) { d.FromSeq, d.IncludeTags, d.IncludeMeta = 1<<64-1, true, false })},
		{"without data", `{"include_data":false}`, with(func(d *DiffRequest) { d.OmitData = true })},
		{"with data", `{"include_data":true}`, with(func(*DiffRequest) {})},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			got, err := DecodeDiff([]byte(c.body), &lim, nil)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
	refused := []struct{ rule, body, words string }{
		{"limit beyond u32", `{"limit":4294967296}`, `"limit"`},
		{"wait beyond u32", `{"wait_ms":4294967296}`, `"wait_ms"`},
		{"limit null", `{"limit":null}`, `"limit"`},
		{"from null", `{"from_seq":null}`, `"from_seq"`},
		{"node a number", `{"node":5}`, `"node"`},
		{"node an object", `{"node":{}}`, `"node"`},
		{"null among nodes", `{"node":["a",null]}`, `"node"`},
		{"flag as string", `{"include_tags":"true"}`, `"include_tags"`},
		{"twice", `{"limit":1,"limit":2}`, "twice"},
		{"top level", `"x"`, "object"},
		{"more nodes than anyone has", `{"node":[` + strings.Repeat(`"",`, MaxDiffNodes) + `""]}`, "10000"},
		{"a node longer than any", `{"node":"` + strings.Repeat("x", MaxDiffNodeBytes+1) + `"}`, "262144 bytes"},
		{"nodes longer than any", `{"node":[` + strings.Repeat(`"`+strings.Repeat("x", 128)+`",`, MaxDiffNodeBytes/128) + `"x"]}`, "262144 bytes"},
	}
	for _, c := range refused {
		t.Run(c.rule, func(t *testing.T) {
			_, err := DecodeDiff([]byte(c.body), &lim, nil)
			wantError(t, err, CodeInvalidRequest, c.words)
		})
	}
}

func TestDeleteSelectors(t *testing.T) {
	cases := []struct {
		rule, body string
		want       DeleteRequest
	}{
		{"before", `{"before_seq":7}`, DeleteRequest{HasBefore: true, BeforeSeq: 7}},
		{"before zero is a selector", `{"before_seq":0}`, DeleteRequest{HasBefore: true}},
		{"bare string", `{"match":"a*b"}`, DeleteRequest{Match: &Predicate{Value: "a*b"}}},
		{"bare empty string", `{"match":""}`, DeleteRequest{Match: &Predicate{}}},
		{"bare string with a star", `{"match":"a*"}`, DeleteRequest{Match: &Predicate{Glob: true, Value: "a"}}},
		{"only a star", `{"match":"*"}`, DeleteRequest{Match: &Predicate{Glob: true}}},
		{"only the last star is special", `{"match":"a**"}`, DeleteRequest{Match: &Predicate{Glob: true, Value: "a*"}}},
		{"Eq", `{"match":["tag","Eq","a*"]}`, DeleteRequest{Match: &Predicate{Value: "a*"}}},
		{"Glob", `{"match":["tag" , "Glob" , "a*"]}`, DeleteRequest{Match: &Predicate{Glob: true, Value: "a"}}},
		{"both", `{"before_seq":1,"match":"x"}`, DeleteRequest{HasBefore: true, BeforeSeq: 1, Match: &Predicate{Value: "x"}}},
		{"from a number on", `{"min_seq":5,"before_seq":7,"match":"x"}`, DeleteRequest{HasBefore: true, BeforeSeq: 7, MinSeq: 5, Match: &Predicate{Value: "x"}}},
		{"min null", `{"min_seq":null,"before_seq":7}`, DeleteRequest{HasBefore: true, BeforeSeq: 7}},
		{"one null", `{"before_seq":null,"match":"x"}`, DeleteRequest{Match: &Predicate{Value: "x"}}},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			got, err := DecodeDelete([]byte(c.body), nil)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Fatalf("got %+v, %v, want %+v", got, err, c.want)
			}
			if err := CheckDelete(&got); err != nil {
				t.Error(err)
			}
		})
	}
	refused := []struct{ rule, body, words string }{
		{"zero bytes", ``, "empty"},
		{"arity 0", `{"match":[]}`, `"match"`},
		{"arity 2", `{"match":["tag","Eq"]}`, `"match"`},
		{"arity 4", `{"match":["tag","Eq","a","b"]}`, `"match"`},
		{"field", `{"match":["node","Eq","a"]}`, `"match"`},
		{"letter case of the field", `{"match":["Tag","Eq","a"]}`, `"match"`},
		{"op", `{"match":["tag","eq","a"]}`, `"match"`},
		{"Glob without star", `{"match":["tag","Glob","a"]}`, `"match"`},
		{"Glob of nothing", `{"match":["tag","Glob",""]}`, `"match"`},
		{"value of another type", `{"match":["tag","Eq",5]}`, `"match"`},
		{"number", `{"match":5}`, `"match"`},
		{"object", `{"match":{}}`, `"match"`},
		{"before negative", `{"before_seq":-1}`, `"before_seq"`},
		{"min negative", `{"min_seq":-1,"before_seq":7}`, `"min_seq"`},
		{"min twice", `{"min_seq":1,"before_seq":7,"min_seq":1}`, "twice"},
		{"before twice", `{"before_seq":1,"before_seq":1}`, "twice"},
	}
	for _, c := range refused {
		t.Run(c.rule, func(t *testing.T) {
			_, err := DecodeDelete([]byte(c.body), nil)
			wantError(t, err, CodeInvalidRequest, c.words)
		})
	}
	for _, body := range []string{`{}`, `{"match":null,"before_seq":null}`, `{"min_seq":3}`} {
		d, err := DecodeDelete([]byte(body), nil)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, CheckDelete(&d), CodeInvalidRequest, "at least one")
	}
}
