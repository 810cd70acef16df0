package api

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

func wantJSON(t *testing.T, got []byte, want string) {
	t.Helper()
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if !json.Valid(got) {
		t.Errorf("not valid JSON: %s", got)
	}
}

func sampleRecord() Record {
	return Record{Seq: 4, TS: 1795246627404, HasNode: true, HasTag: true, Node: []byte("n\n"), Tag: []byte(""),
		Data: []byte(`{"a":"<&>"}`), Meta: []byte(`{"k":1}`)}
}

// withMeta is a diff by default.
var withMeta = DiffRequest{IncludeMeta: true}

func TestRecordShowsWhatWasAskedFor(t *testing.T) {
	r := sampleRecord()
	wantJSON(t, AppendRecord(nil, &r, true, true), `{"$seq":4,"$ts":1795246627404,"$node":"n\n","$tag":"","data":{"a":"<&>"},"meta":{"k":1}}`)
	wantJSON(t, AppendRecord(nil, &r, false, false), `{"$seq":4,"$ts":1795246627404,"$node":"n\n","data":{"a":"<&>"}}`)
	wantJSON(t, AppendRecord(nil, &Record{Seq: math.MaxUint64, Data: []byte("null")}, true, true), `{"$seq":18446744073709551615,"$ts":0,"data":null}`)
}

func TestJobHasNoNodeAndALeaseID(t *testing.T) {
	j := Job{Record: sampleRecord(), LeaseID: 0x1f, Deadline: 1795246834832, Deliveries: 2}
	wantJSON(t, AppendJob(nil, &j, nil), `{"$seq":4,"lease_id":"lease_1f","deadline":1795246834832,"$ts":1795246627404,"$tag":"","deliveries":2,"data":{"a":"<&>"},"meta":{"k":1}}`)
	j.HasTag, j.Meta = false, nil
	wantJSON(t, AppendJob(nil, &j, nil), `{"$seq":4,"lease_id":"lease_1f","deadline":1795246834832,"$ts":1795246627404,"deliveries":2,"data":{"a":"<&>"}}`)
}

func TestStringsComeBackFromAnyBytes(t *testing.T) {
	for in, want := range map[string]string{
		"":                    `""`,
		"plain":               `"plain"`,
		"\"\\/\b\f\n\r\t\x00": `"\"\\/\u0008\u000c\n\r\t\u0000"`,
		"<a href='&'>":        `"<a href='&'>"`,
		"é€😀\u2028\x7f":       "\"é€😀\u2028\x7f\"",
		"a\xffb\xe2\x82":      `"a` + "\uFFFDb\uFFFD\uFFFD" + `"`,
	} {
		wantJSON(t, AppendString(nil, in), want)
		wantJSON(t, AppendString(nil, []byte(in)), want)
	}
}

func TestAnswersHaveTheShapeOfTheContract(t *testing.T) {
	const perf = `"performance":{"server_total_ms":0.250`
	r := Record{Seq: 1, TS: 2, Data: []byte("1")}
	cases := []struct {
		name string
		got  []byte
		want string
	}{
		{"write", AppendWriteResult(nil, "t", &WriteResult{FirstSeq: 4, LastSeq: 6, HeadSeq: 6, Count: 3, Created: true, AppendMS: 0.01}, true, 0.25),
			`{"topic":"t","first_seq":4,"last_seq":6,"seqs":[4,5,6],"head_seq":6,"count":3,"created":true,"deduped":false,` + perf + `,"wal_append_ms":0.010,"fsync_ms":0.0}}`},
		{"write without seqs, held back", AppendWriteResult(nil, "t", &WriteResult{FirstSeq: 4, LastSeq: 4, HeadSeq: 4, Count: 1, SyncMS: 1.5, ThrottleMS: 2}, false, 0.25),
			`{"topic":"t","first_seq":4,"last_seq":4,"head_seq":4,"count":1,"created":false,"deduped":false,` + perf + `,"wal_append_ms":0.0,"fsync_ms":1.500,"throttle_wait_ms":2.000}}`},
		{"repeated write", AppendWriteResult(nil, "t", &WriteResult{FirstSeq: 4, LastSeq: 4, HeadSeq: 4, Count: 1, Deduped: true}, true, 0.25),
			`{"topic":"t","first_seq":4,"last_seq":4,"seqs":[4],"head_seq":4,"count":1,"created":false,"deduped":true,` + perf + `}}`},
		{"diff", AppendDiffTail(AppendDiffRecord(AppendDiffRecord(AppendDiffHead(nil, "t"), &r, &withMeta, nil), &r, &withMeta, nil),
			&DiffResult{NextFromSeq: 1, HeadSeq: 3, EarliestSeq: 1, RecordsScanned: 2}, 0.25),
			`{"topic":"t","records":[{"$seq":1,"$ts":2,"data":1},{"$seq":1,"$ts":2,"data":1}],"next_from_seq":1,"head_seq":3,"earliest_seq":1,"caught_up":false,"tombstone":null,"lag":2,` + perf + `,"records_scanned":2}}`},
		{"diff with a tombstone", AppendDiffTail(AppendDiffHead(nil, "t"),
			&DiffResult{NextFromSeq: 3, HeadSeq: 3, EarliestSeq: 4, Tombstone: &Tombstone{GapFrom: 1, GapTo: 3, Reason: ReasonCap, MissedEstimate: 3, EarliestSeq: 4, HeadSeq: 3}}, 0.25),
			`{"topic":"t","records":[],"next_from_seq":3,"head_seq":3,"earliest_seq":4,"caught_up":true,"tombstone":{"gap_from":1,"gap_to":3,"reason":"cap","missed_estimate":3,"earliest_seq":4,"head_seq":3},"lag":0,` + perf + `,"records_scanned":0}}`},
		{"delete records", AppendDeleteResult(nil, "t", &DeleteResult{Deleted: 2, TopicCounters: TopicCounters{HeadSeq: 5, EarliestSeq: 3, Count: 3, Bytes: 9}}, 0.25),
			`{"topic":"t","deleted":2,"earliest_seq":3,"head_seq":5,"count":3,"bytes":9,` + perf + `}}`},
		{"claim", AppendClaimTail(AppendClaimJob(AppendClaimHead(nil, "q"), &Job{Record: r, LeaseID: 1, Deadline: 9, Deliveries: 1}, nil), &ClaimResult{Count: 1, Ready: 3}, 0.25),
			`{"topic":"q","claimed":[{"$seq":1,"lease_id":"lease_1","deadline":9,"$ts":2,"deliveries":1,"data":1}],"count":1,"ready":3,` + perf + `}}`},
		{"ack", AppendSettleResult(nil, SettleAck, "q", &SettleResult{Done: 1, Skipped: []uint64{1, 2}, Ready: 3, InFlight: 4}, 0.25),
			`{"topic":"q","acked":1,"skipped":[1,2],"ready":3,"in_flight":4,` + perf + `}}`},
		{"ack that synced", AppendSettleResult(nil, SettleAck, "q", &SettleResult{Done: 1, Synced: true, SyncMS: 0.5}, 0.25),
			`{"topic":"q","acked":1,"skipped":[],"ready":0,"in_flight":0,` + perf + `,"fsync_ms":0.500}}`},
		{"nack", AppendSettleResult(nil, SettleNack, "q", &SettleResult{Done: 1, Ready: 4, InFlight: 1}, 0.25),
			`{"topic":"q","nacked":1,"skipped":[],"ready":4,"in_flight":1,` + perf + `}}`},
		{"extend", AppendSettleResult(nil, SettleExtend, "q", &SettleResult{Done: 2, Deadlines: []Deadline{{1, 10}, {2, 10}}}, 0.25),
			`{"topic":"q","extended":2,"skipped":[],"deadlines":{"1":10,"2":10},` + perf + `}}`},
		{"delete topic", AppendDeleteTopic(nil, "t", &DeleteTopicResult{Deleted: true, RoutersRemoved: []string{"a", "b>c"}}, 0.25),
			`{"topic":"t","deleted":true,"routers_removed":["a","b>c"],` + perf + `}}`},
		{"delete absent topic", AppendDeleteTopic(nil, "t", &DeleteTopicResult{}, 0.25),
			`{"topic":"t","deleted":false,"routers_removed":[],` + perf + `}}`},
		{"list", AppendTopicList(nil, &TopicList{Topics: []TopicEntry{
			{Topic: "a", Durable: true, EffectivePriority: -5, TopicCounters: TopicCounters{HeadSeq: 1, EarliestSeq: 1, Count: 1, Bytes: 2}}, {Topic: "b"}}}, 0.25),
			`{"topics":[{"topic":"a","head_seq":1,"earliest_seq":1,"count":1,"bytes":2,"durable":true,"effective_priority":-5},` +
				`{"topic":"b","head_seq":0,"earliest_seq":0,"count":0,"bytes":0,"durable":false,"effective_priority":0}],` + perf + `}}`},
		{"page of a list", AppendTopicList(nil, &TopicList{More: true, Last: "a"}, 0.25),
			`{"topics":[],"next_cursor":"` + EncodeCursor("a") + `",` + perf + `}}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { wantJSON(t, c.got, c.want) })
	}
}

const defaultConfigJSON = `{"type":"log","ttl_ms":0,"cap_records":0,"cap_bytes":0,"discard":"old","durable":false,"durability":"disk","priority":null,` +
	`"auto_priority":true,"auto_create":true,"idempotency_window_ms":120000,"dedupe_node":true,"lease_ms":30000,"claim_jitter_ms":0,"max_deliveries":0,"dead_letter":null,"leases_durable":false}`

func TestTopicStateSaysNeverAsNull(t *testing.T) {
	s := TopicState{Topic: "t", Config: DefaultConfig(), EffectivePriority: 500, LastReadTS: 7,
		TopicCounters: TopicCounters{HeadSeq: 6, EarliestSeq: 4, Count: 3, Bytes: 3}}
	const counters = `"head_seq":6,"earliest_seq":4,"next_seq":7,"count":3,"bytes":3,"config":`
	const rest = `,"effective_priority":500,"last_write_ts":null,"last_read_ts":7,`
	wantJSON(t, AppendTopicState(nil, &s, 0), `{"topic":"t","type":"log",`+counters+defaultConfigJSON+rest+`"performance":{"server_total_ms":0.0}}`)

	s.Config.Type, s.Queue = TypeQueue, QueueCounters{Ready: 1, InFlight: 2, DeadLettered: 3}
	queue := strings.Replace(defaultConfigJSON, `"log"`, `"queue"`, 1)
	wantJSON(t, AppendTopicState(nil, &s, 0), `{"topic":"t","type":"queue",`+counters+queue+rest+`"queue":{"ready":1,"in_flight":2,"delayed":0,"scheduled":0,"dead_lettered":3},"performance":{"server_total_ms":0.0}}`)
	wantJSON(t, AppendPutTopic(nil, "t", &PutTopicResult{Created: true, Config: DefaultConfig()}, 0),
		`{"topic":"t","created":true,"config":`+defaultConfigJSON+`,"performance":{"server_total_ms":0.0}}`)
}

func TestErrorBodyIsCanonical(t *testing.T) {
	wantJSON(t, AppendError(nil, Errorf(CodeInternal, "broken")), `{"error":{"code":"internal","message":"broken"}}`)
	wantJSON(t, AppendError(nil, &Error{Code: CodeInternal}), `{"error":{"code":"internal","message":"internal"}}`)
	e := Errorf(CodeRouterCycle, "a < b").With("cycle", []string{"a>b", "b"}).With("max", int64(5)).With("head_seq", uint64(math.MaxUint64)).
		With("replay_progress", 0.5).With("topic", "x\ny").With("bad", func() {})
	wantJSON(t, AppendError(nil, e), `{"error":{"code":"router_cycle","message":"a < b","detail":{"bad":null,"cycle":["a>b","b"],"head_seq":18446744073709551615,"max":5,"replay_progress":0.5,"topic":"x\ny"}}}`)
}

func TestMillisecondsAreNumbers(t *testing.T) {
	for _, c := range []struct {
		ms   float64
		want string
	}{{0, "0.0"}, {0.0004, "0.000"}, {0.0006, "0.001"}, {1.9996, "2.000"}, {12.3456, "12.346"}, {-1, "0.0"},
		{math.NaN(), "0.0"}, {math.Inf(1), "0.0"}, {float64(time.Hour / time.Millisecond), "3600000.000"}} {
		wantJSON(t, appendMS(nil, c.ms), c.want)
	}
}

func TestCursorReturnsItsNameAndNothingElse(t *testing.T) {
	for _, name := range []string{"a", "orders->audit", strings.Repeat("x", 255)} {
		cursor := EncodeCursor(name)
		if strings.ContainsAny(cursor, "+/=&?#% ") {
			t.Errorf("cursor %q needs escaping", cursor)
		}
		if got, err := DecodeCursor(cursor); err != nil || got != name {
			t.Errorf("%q came back as %q, %v", name, got, err)
		}
	}
	for _, bad := range []string{"", "!", "AQ", "AWE=", "AWE\n", EncodeCursor(""), EncodeCursor("a b"), "AWF", "a"} {
		_, err := DecodeCursor(bad)
		wantError(t, err, CodeInvalidRequest, "cursor")
	}
}

func TestEncodersDoNotAllocate(t *testing.T) {
	dst := make([]byte, 0, 64<<10)
	r := sampleRecord()
	j := Job{Record: r, LeaseID: 5, Deliveries: 1}
	w := WriteResult{FirstSeq: 1, LastSeq: 100, HeadSeq: 100, Count: 100, AppendMS: 0.1}
	d := DiffResult{NextFromSeq: 5, HeadSeq: 9, Tombstone: &Tombstone{Reason: ReasonTTL}}
	st := SettleResult{Done: 3, Skipped: []uint64{1, 2}}
	state := TopicState{Topic: "t", Config: DefaultConfig()}
	for name, encode := range map[string]func(){
		"write":  func() { AppendWriteResult(dst, "topic", &w, true, 0.2) },
		"record": func() { AppendRecord(dst, &r, true, true) },
		"job":    func() { AppendJob(dst, &j, nil) },
		"diff":   func() { AppendDiffTail(AppendDiffHead(dst, "topic"), &d, 0.1) },
		"settle": func() { AppendSettleResult(dst, SettleAck, "topic", &st, 0.1) },
		"state":  func() { AppendTopicState(dst, &state, 0.1) },
	} {
		if n := testing.AllocsPerRun(50, encode); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestAnswersToAnyTopicNameAreValid(t *testing.T) {
	for _, name := range []string{`a"b`, "\xff", "<"} {
		got := AppendDeleteTopic(nil, name, &DeleteTopicResult{}, 0)
		if !json.Valid(got) {
			t.Error(fmt.Sprintf("%q", name), string(got))
		}
	}
}

// A record shows its tier and fair key where it has them, to readers and to
// workers; what has none looks as it always has.
func TestRecordsShowTierAndFairKey(t *testing.T) {
	r := Record{Seq: 4, Tier: 2, FairKey: []byte("a\n"), Data: []byte("1"), Tag: []byte("t"), HasTag: true}
	wantJSON(t, AppendRecord(nil, &r, true, true), `{"$seq":4,"$ts":0,"$tag":"t","$priority":"critical","$fair_key":"a\n","data":1}`)
	wantJSON(t, AppendJob(nil, &Job{Record: r, LeaseID: 1, Deliveries: 1}, nil),
		`{"$seq":4,"lease_id":"lease_1","deadline":0,"$ts":0,"$tag":"t","$priority":"critical","$fair_key":"a\n","deliveries":1,"data":1}`)
	for rank := range Tiers {
		tier, ok := TierOf(rank)
		if back, known := ParseTier(tier.String()); !ok || !known || back != tier || tier.Rank() != rank {
			t.Errorf("rank %d is tier %s, whose name is that of %s", rank, tier, back)
		}
	}
	if _, ok := ParseTier("Critical"); ok {
		t.Error("a name in other letters' case is a tier")
	}
}

// Records are the same whether digits of the one before are used again or not.
func TestTimesAreThoseOfTheRecord(t *testing.T) {
	var times Times
	for _, ts := range []int64{0, 0, 1795246627404, 1795246627404, 7, -1, -1, math.MinInt64, math.MaxInt64, 0} {
		r := Record{Seq: 1, TS: ts, Data: []byte("1")}
		j := Job{Record: r, LeaseID: 1, Deadline: ts / 2, Deliveries: 1}
		if got, want := AppendDiffRecord([]byte("["), &r, &withMeta, &times), AppendDiffRecord([]byte("["), &r, &withMeta, nil); string(got) != string(want) {
			t.Errorf("a record is %s, want %s", got, want)
		}
		if got, want := AppendClaimJob([]byte("["), &j, &times), AppendClaimJob([]byte("["), &j, nil); string(got) != string(want) {
			t.Errorf("a job is %s, want %s", got, want)
		}
	}
}

func TestHexIsThatOfTheStandardLibrary(t *testing.T) {
	for shift := range 64 {
		for _, v := range []uint64{0, 1 << shift, 1<<shift - 1, 1<<shift + 1, math.MaxUint64 >> shift} {
			if got, want := string(appendHex([]byte("x"), v)), "x"+strconv.FormatUint(v, 16); got != want {
				t.Errorf("%d is %s, want %s", v, got, want)
			}
		}
	}
}
