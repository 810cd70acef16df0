package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// plainClaimed is the answer by way of encoding/json.
type plainClaimed struct {
	Topic   string `json:"topic"`
	Claimed []struct {
		Seq        uint64          `json:"$seq"`
		TS         int64           `json:"$ts"`
		Node       *string         `json:"$node"`
		Tag        *string         `json:"$tag"`
		Tier       string          `json:"$priority"`
		Key        string          `json:"$fair_key"`
		Data       json.RawMessage `json:"data"`
		Meta       json.RawMessage `json:"meta"`
		LeaseID    string          `json:"lease_id"`
		Deliveries uint64          `json:"deliveries"`
	} `json:"claimed"`
}

func compactOf(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return raw
	}
	return b.Bytes()
}

func (p *plainClaimed) noun() Claimed {
	c := Claimed{Topic: p.Topic}
	for _, j := range p.Claimed {
		h := HeldJob{Lease: j.LeaseID, Deliveries: j.Deliveries}
		h.Seq, h.TS, h.FairKey = j.Seq, j.TS, []byte(j.Key)
		h.Data, h.Meta = compactOf(j.Data), compactOf(j.Meta)
		if j.Node != nil {
			h.Node, h.HasNode = []byte(*j.Node), true
		}
		if j.Tag != nil {
			h.Tag, h.HasTag = []byte(*j.Tag), true
		}
		if t, ok := ParseTier(j.Tier); ok {
			h.Tier = t
		}
		c.Jobs = append(c.Jobs, h)
	}
	return c
}

// text is all of an answer but the wait.
func (c *Claimed) text() string {
	var b strings.Builder
	b.WriteString(c.Topic)
	for i := range c.Jobs {
		j := &c.Jobs[i]
		meta := j.Meta
		if string(meta) == "null" {
			meta = nil
		}
		fmt.Fprintf(&b, "\n%d %d %v %q %v %q %v %q %s %s %s %d", j.Seq, j.TS, j.HasNode, j.Node, j.HasTag, j.Tag, j.Tier, j.FairKey, j.Data, meta, j.Lease, j.Deliveries)
	}
	return b.String()
}

// What a server answers is read as encoding/json reads it, whatever other members there are.
func FuzzDecodeClaimed(f *testing.F) {
	for _, seed := range []string{
		`{"topic":"q","claimed":[{"$seq":1,"$ts":1700000000000,"$node":"n","$tag":"\u00e9\n","$priority":"high","$fair_key":"k","data":{"a":[1,"x y"]},"meta":{"b":"c"},"lease_id":"l","deliveries":2}],"count":1,"ready":3,"performance":{"total_ms":0.1,"claim_wait_ms":12}}`,
		`{"topic":"q","claimed":[],"count":0}`, `{"topic":"q","claimed":null,"performance":null}`, `{"topic":"q","claimed":[{},{"data":null,"$node":null,"meta":null}]}`,
		`{"claimed":[{"$seq":18446744073709551615,"$ts":-5,"data": { "a" : 1 } ,"later":[{}]}],"later":{"claimed":[1]}}`,
		`{"topic":5}`, `{"topic":"q","claimed":{}}`, `{"topic":"q","claimed":[1]}`, `{"claimed":[{"$seq":"1"}]}`, `{"claimed":[{"$seq":-1}]}`, `[]`, ``, `null`, `{"topic":"q"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var got Claimed
		err := DecodeClaimed(bytes.Clone(body), &got)
		if err != nil {
			return // the seeds below say what has to be read
		}
		// Names that differ in case, repetitions and numbers that are not integers are left to
		// encoding/json's own rules.
		var plain plainClaimed
		if !utf8.Valid(body) || json.Unmarshal(body, &plain) != nil || hasTwice(body) {
			return
		}
		want := plain.noun()
		if got, want := got.text(), want.text(); got != want {
			t.Fatalf("%s\nis read as\n%s\nwant\n%s", body, got, want)
		}
	})
}

// hasTwice reports whether an answer names a member twice, or by another case.
func hasTwice(body []byte) bool {
	lower := bytes.ToLower(body)
	if bytes.Contains(body, []byte(`\`)) || !bytes.Equal(lower, body) {
		return true
	}
	for _, name := range []string{"topic", "claimed", "$seq", "$ts", "$node", "$tag", "$priority", "$fair_key", "data", "meta", "lease_id", "deliveries"} {
		if bytes.Count(lower, []byte(`"`+name+`"`)) > 1 {
			return true
		}
	}
	return false
}

// What AppendClaimJob writes is read back whole.
func TestDecodeClaimedReadsWhatAServerWrites(t *testing.T) {
	job := Job{Record: Record{Seq: 7, TS: 1700000000000, HasTag: true, Tag: []byte("é"), Tier: TierNormal + 1,
		FairKey: []byte("tenant\n"), Data: []byte(`{"a":[1,"x y",null]}`), Meta: []byte(`{"k":"v"}`)}, LeaseID: 0xabc, Deliveries: 3}
	var times Times
	body := AppendClaimHead(nil, "orders")
	for range 2 {
		body = AppendClaimJob(body, &job, &times)
	}
	body = AppendClaimTail(body, &ClaimResult{Count: 2, Ready: 1, Waits: true, Waited: 12e6}, 0.5)
	var got Claimed
	if err := DecodeClaimed(body, &got); err != nil {
		t.Fatal(err)
	}
	want := HeldJob{Record: job.Record, Lease: "lease_abc", Deliveries: 3}
	if got.Topic != "orders" || got.Waited != 12e6 || len(got.Jobs) != 2 || !reflect.DeepEqual(got.Jobs[1], want) {
		t.Errorf("read %+v, want two of %+v", got, want)
	}
}

// What AppendRecord writes is read back whole, and an array of anything else is an error.
func TestDecodeRecordsReadsWhatAServerWrites(t *testing.T) {
	want := Record{Seq: 7, TS: 1700000000000, HasNode: true, Node: []byte("n\"1"), HasTag: true, Tag: []byte("é"), Tier: TierNormal + 1,
		FairKey: []byte("tenant\n"), Data: []byte(`{"a":[1,"x y",null]}`), Meta: []byte(`{"k":"v"}`)}
	body := AppendRecord([]byte{'['}, &want, true, true)
	body = append(AppendRecord(append(body, ','), &want, true, true), ']')
	got, err := DecodeRecords(body)
	if err != nil || !reflect.DeepEqual(got, []Record{want, want}) {
		t.Errorf("%s is read as %+v, %v", body, got, err)
	}
	for body, ok := range map[string]bool{`null`: true, ` [ ] `: true, `[{}]`: true, ``: false, `{}`: false, `[1]`: false, `[{"$seq":"1"}]`: false, `[] x`: false} {
		if _, err := DecodeRecords([]byte(body)); (err == nil) != ok || IsCode(err, CodeInvalidRequest) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// Routers put meta into meta, so that an answer is deeper than what anybody may write.
func TestDecodeClaimedReadsDeepMeta(t *testing.T) {
	for depth, ok := range map[int]bool{MaxNesting: true, MaxNesting + MaxHops: true, MaxNesting + answerNesting - 3: true, MaxNesting + answerNesting - 2: false, 9999: false} {
		meta := strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
		var got Claimed
		err := DecodeClaimed([]byte(`{"topic":"q","claimed":[{"data":[{}],"meta":`+meta+`}]}`), &got)
		if (err == nil) != ok || ok && string(got.Jobs[0].Meta) != meta {
			t.Errorf("%d levels: %v", depth, err)
		}
	}
}

// An answer that is none of /v0 says so, and is no refusal by the server.
func TestDecodeClaimedRefusesWhatIsNoAnswer(t *testing.T) {
	for body, want := range map[string]string{
		``:                                       "empty",
		`[]`:                                     "object",
		`{"topic":"q","claimed":[{"a":1]}`:       "not valid JSON",
		`{"topic":"q","claimed":[]} x`:           "unexpected bytes",
		`{"topic":5}`:                            `"topic" must be a string`,
		`{"topic":"q","claimed":{}}`:             `"claimed" must be an array of jobs`,
		`{"topic":"q","claimed":[1]}`:            `"claimed" must be an array of jobs`,
		`{"topic":"q","claimed":[{"$seq":1.5}]}`: `"$seq" must be an integer`,
		`{"topic":"q","claimed":[{"deliveries":"1"}]}`:            `"deliveries" must be an integer`,
		`{"topic":"q","claimed":[{"$ts":"now"}]}`:                 `"$ts" must be an integer`,
		`{"topic":"q","performance":[]}`:                          `"performance" must be an object`,
		`{"topic":"q","performance":{"claim_wait_ms":"a while"}}`: `"claim_wait_ms" must be a number`,
	} {
		err := DecodeClaimed([]byte(body), new(Claimed))
		if err == nil || !strings.Contains(err.Error(), want) || IsCode(err, CodeInvalidRequest) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

// The members that are strings are read as encoding/json reads them.
func FuzzMetaStrings(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"a":"b"}`, `{"a":"\u00e9\n","b":5,"c":null,"d":{"a":"x"},"\u0065":"y"}`, `{"a":"x","a":5}`, `{"a":5,"a":"x"}`,
		`{"$cloudevent":{"id":"1","n":9007199254740993},"a":""}`, `{"$cloudevent":"text"}`, `{"$cloudevent":[]}`, `[]`, `null`, `{"a"`, `{"a\tb":"c\td"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, meta []byte) {
		if Validate(meta) != nil { // no server has stored it
			MetaStrings(bytes.Clone(meta))
			return
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(meta, &members); err != nil {
			t.Skip(err) // a number that only /v0 takes
		}
		want := make(map[string]string)
		for name, raw := range members {
			var v any
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Skip(err)
			}
			_, isObject := v.(map[string]any)
			if s, ok := v.(string); ok {
				want[name] = s
			} else if isObject && name == MetaCloudEvent {
				want[name] = string(compactOf(raw))
			}
		}
		if got := MetaStrings(bytes.Clone(meta)); len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\nhas %q, want %q", meta, got, want)
		}
	})
}
