package api

import (
	"reflect"
	"strings"
	"testing"
)

func TestClaimAppliesDefaultsAndClamps(t *testing.T) {
	lim := DefaultLimits()
	cases := []struct {
		rule, body string
		want       ClaimRequest
	}{
		{"only node", `{"node":"w"}`, ClaimRequest{Node: "w", Max: 1}},
		{"max zero is one", `{"node":"w","max":0}`, ClaimRequest{Node: "w", Max: 1}},
		{"max lowered", `{"node":"w","max":1001}`, ClaimRequest{Node: "w", Max: 1000}},
		{"lease null is the topic's", `{"node":"w","lease_ms":null}`, ClaimRequest{Node: "w", Max: 1}},
		{"lease raised", `{"node":"w","lease_ms":99}`, ClaimRequest{Node: "w", Max: 1, LeaseMS: 100, HasLease: true}},
		{"lease lowered", `{"node":"w","lease_ms":86400001}`, ClaimRequest{Node: "w", Max: 1, LeaseMS: 86_400_000, HasLease: true}},
		{"an extra seqs is fine", `{"node":"w","seqs":"x"}`, ClaimRequest{Node: "w", Max: 1}},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			got, err := DecodeClaim([]byte(c.body), &lim, nil)
			if err != nil || got != c.want {
				t.Fatalf("got %+v, %v, want %+v", got, err, c.want)
			}
			if err := CheckClaim(&got, &lim); err != nil {
				t.Error(err)
			}
		})
	}
	refused := []struct{ rule, body, words string }{
		{"zero bytes", ``, "empty"},
		{"node missing", `{}`, `"node" is missing`},
		{"node null", `{"node":null}`, `"node"`},
		{"max null", `{"node":"w","max":null}`, `"max"`},
		{"max beyond u32", `{"node":"w","max":4294967296}`, `"max"`},
		{"lease as string", `{"node":"w","lease_ms":"1"}`, `"lease_ms"`},
		{"node twice", `{"node":"w","node":"w"}`, "twice"},
	}
	for _, c := range refused {
		t.Run(c.rule, func(t *testing.T) {
			_, err := DecodeClaim([]byte(c.body), &lim, nil)
			wantError(t, err, CodeInvalidRequest, c.words)
		})
	}
	for node, ok := range map[string]bool{"": false, strings.Repeat("n", 128): true, strings.Repeat("n", 129): false} {
		c, err := DecodeClaim([]byte(`{"node":"`+node+`"}`), &lim, nil)
		if err != nil {
			t.Fatalf("the node's value is not the decoder's: %v", err)
		}
		if err := CheckClaim(&c, &lim); (err == nil) != ok {
			t.Errorf("node of %d bytes: %v", len(node), err)
		}
	}
}

func TestSettleReadsItsKind(t *testing.T) {
	lim := DefaultLimits()
	cases := []struct {
		rule string
		kind SettleKind
		body string
		want SettleRequest
	}{
		{"ack", SettleAck, `{"node":"w","seqs":[1,18446744073709551615]}`, SettleRequest{Node: "w", Seqs: []uint64{1, 1<<64 - 1}}},
		{"no seqs", SettleAck, `{"node":"w","seqs":[]}`, SettleRequest{Node: "w"}},
		{"empty lease ids", SettleAck, `{"node":"w","seqs":[1],"lease_ids":[]}`, SettleRequest{Node: "w", Seqs: []uint64{1}}},
		{"lease ids", SettleAck, `{"lease_ids":["lease_1f",""],"node":"w","seqs":[1,2]}`,
			SettleRequest{Node: "w", Seqs: []uint64{1, 2}, LeaseIDs: []uint64{0x1f, 0}, NumLeaseIDs: 2}},
		{"look-alikes fence", SettleAck, `{"node":"w","seqs":[1,2,3,4],"lease_ids":["lease_0","lease_1F","lease_01","lease_11112222333344445"]}`,
			SettleRequest{Node: "w", Seqs: []uint64{1, 2, 3, 4}, LeaseIDs: []uint64{NoLease, NoLease, NoLease, NoLease}, NumLeaseIDs: 4}},
		{"ack heeds no field of the others", SettleAck, `{"node":"w","seqs":[],"delay_ms":"x","started":5,"lease_ms":null}`, SettleRequest{Node: "w"}},
		{"nack", SettleNack, `{"node":"w","seqs":[3],"delay_ms":5}`, SettleRequest{Node: "w", Seqs: []uint64{3}, DelayMS: 5}},
		{"nack delay lowered", SettleNack, `{"node":"w","seqs":[],"delay_ms":86400001}`, SettleRequest{Node: "w", DelayMS: 86_400_000}},
		{"nack not started", SettleNack, `{"node":"w","seqs":[],"started":false}`, SettleRequest{Node: "w", NotStarted: true}},
		{"nack started", SettleNack, `{"node":"w","seqs":[],"started":true}`, SettleRequest{Node: "w"}},
		{"extend", SettleExtend, `{"node":"w","seqs":[3],"lease_ms":60000}`, SettleRequest{Node: "w", Seqs: []uint64{3}, LeaseMS: 60000}},
		{"extend raised", SettleExtend, `{"node":"w","seqs":[3],"lease_ms":1}`, SettleRequest{Node: "w", Seqs: []uint64{3}, LeaseMS: 100}},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			var got SettleRequest
			if err := DecodeSettle(c.kind, []byte(c.body), &lim, &got, nil); err != nil {
				t.Fatal(err)
			}
			if len(got.Seqs) == 0 {
				got.Seqs = nil
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestSettleRefusesInTheOrderOfSection18(t *testing.T) {
	lim := DefaultLimits()
	many := func(n int) string { return `[` + strings.TrimSuffix(strings.Repeat("7,", n), ",") + `]` }
	cases := []struct {
		rule  string
		kind  SettleKind
		body  string
		code  Code
		words string
	}{
		{"zero bytes", SettleAck, ``, CodeInvalidRequest, "empty"},
		{"node missing", SettleAck, `{"seqs":[1]}`, CodeInvalidRequest, `"node" is missing`},
		{"node null", SettleAck, `{"node":null,"seqs":[1]}`, CodeInvalidRequest, `"node"`},
		{"seqs missing", SettleAck, `{"node":"w"}`, CodeInvalidRequest, `"seqs" is missing`},
		{"seqs null", SettleAck, `{"node":"w","seqs":null}`, CodeInvalidRequest, `"seqs"`},
		{"seq as string", SettleAck, `{"node":"w","seqs":["1"]}`, CodeInvalidRequest, `"seqs"`},
		{"seq as fraction", SettleAck, `{"node":"w","seqs":[1.0]}`, CodeInvalidRequest, `"seqs"`},
		{"lease ids null", SettleAck, `{"node":"w","seqs":[1],"lease_ids":null}`, CodeInvalidRequest, `"lease_ids"`},
		{"null among lease ids", SettleAck, `{"node":"w","seqs":[1],"lease_ids":[null]}`, CodeInvalidRequest, `"lease_ids"`},
		{"form of a lease id", SettleAck, `{"node":"w","seqs":[1,2],"lease_ids":["","lease_xyz"]}`, CodeInvalidRequest, "lease_ids[1]"},
		{"lease id without digits", SettleAck, `{"node":"w","seqs":[1],"lease_ids":["lease_"]}`, CodeInvalidRequest, "lease_ids[0]"},
		{"lease id of another letter case", SettleAck, `{"node":"w","seqs":[1],"lease_ids":["LEASE_1f"]}`, CodeInvalidRequest, "lease_ids[0]"},
		{"delay null", SettleNack, `{"node":"w","seqs":[1],"delay_ms":null}`, CodeInvalidRequest, `"delay_ms"`},
		{"started null", SettleNack, `{"node":"w","seqs":[1],"started":null}`, CodeInvalidRequest, `"started"`},
		{"extend without lease", SettleExtend, `{"node":"w","seqs":[1]}`, CodeInvalidRequest, `"lease_ms" is missing`},
		{"extend with null", SettleExtend, `{"node":"w","seqs":[1],"lease_ms":null}`, CodeInvalidRequest, `"lease_ms"`},
		{"twice", SettleAck, `{"node":"w","seqs":[1],"seqs":[1]}`, CodeInvalidRequest, "twice"},
		{"too many seqs", SettleAck, `{"node":"w","seqs":` + many(1001) + `}`, CodeBatchTooLarge, "1001"},
		{"lengths differ", SettleAck, `{"node":"w","seqs":[1,2],"lease_ids":["lease_1"]}`, CodeInvalidRequest, "1 ids for 2 seqs"},
		{"ids without seqs", SettleAck, `{"node":"w","seqs":[],"lease_ids":[""]}`, CodeInvalidRequest, "1 ids for 0 seqs"},
		{"JSON before the form", SettleAck, `{"node":"","seqs":[1],"lease_ids":["x"]},`, CodeInvalidRequest, "after the object"},
		{"form before node", SettleAck, `{"node":"","seqs":[1],"lease_ids":["x"]}`, CodeInvalidRequest, "lease_ids[0]"},
		{"node before too many", SettleAck, `{"node":"","seqs":` + many(1001) + `}`, CodeInvalidRequest, `"node"`},
		{"too many before lengths", SettleAck, `{"node":"w","seqs":` + many(1001) + `,"lease_ids":[""]}`, CodeBatchTooLarge, "1001"},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			var r SettleRequest
			wantError(t, DecodeSettle(c.kind, []byte(c.body), &lim, &r, nil), c.code, c.words)
		})
	}
	var r SettleRequest
	if err := DecodeSettle(SettleAck, []byte(`{"node":"w","seqs":`+many(1000)+`}`), &lim, &r, nil); err != nil {
		t.Errorf("1000 seqs: %v", err)
	}
	err := DecodeSettle(SettleAck, []byte(`{"node":"w","seqs":`+many(50_000)+`}`), &lim, &r, nil)
	detail := wantError(t, err, CodeBatchTooLarge, "50000")
	if detail["seqs"] != 50_000 || detail["max"] != 1000 || len(r.Seqs) > 1000 {
		t.Errorf("detail %v, %d numbers kept", detail, len(r.Seqs))
	}
}

func TestSettleReusesItsSlices(t *testing.T) {
	lim := DefaultLimits()
	body := []byte(`{"node":"worker-of-some-name","seqs":[1,2,3],"lease_ids":["lease_1","lease_2","lease_3"]}`)
	var r SettleRequest
	n := testing.AllocsPerRun(50, func() {
		if DecodeSettle(SettleAck, body, &lim, &r, nil) != nil {
			t.Error("refused")
		}
	})
	if n > 1 { // the node
		t.Errorf("%v allocations", n)
	}
}
