package api

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func decodeWatch(t *testing.T, body string) WatchRequest {
	t.Helper()
	lim := DefaultLimits()
	w, err := DecodeWatch([]byte(body), &lim, MinHeartbeatMS, nil)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return w
}

func TestAWatchHasTheDefaultsOfTheContractAndItsTopicsInOrder(t *testing.T) {
	got := decodeWatch(t, `{"topics":{"b":{"tail":true},"a":{"from_seq":7},"c":{}},"more":[1]}`)
	want := WatchRequest{
		Topics: []WatchTopic{{Topic: "a", FromSeq: 7}, {Topic: "b", Tail: true}, {Topic: "c"}},
		WatchOptions: WatchOptions{Limit: 256, MaxBatchBytes: 262144, HeartbeatMS: 15000,
			IncludeMeta: true, IncludeData: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestTheNumbersOfAWatchAreClamped(t *testing.T) {
	low := decodeWatch(t, `{"topics":{"a":{}},"limit":0,"max_batch_bytes":0,"heartbeat_ms":1}`)
	if low.Limit != 256 || low.MaxBatchBytes != 1<<20 || low.HeartbeatMS != 1000 {
		t.Errorf("zeros became %+v", low.WatchOptions)
	}
	high := decodeWatch(t, `{"topics":{"a":{}},"limit":4000000000,"max_batch_bytes":18446744073709551615,"heartbeat_ms":90000,
		"node":["n","m"],"include_meta":false,"include_tags":true,"include_data":false,"consistency":"strong"}`)
	want := WatchOptions{Nodes: []string{"n", "m"}, Limit: 1000, MaxBatchBytes: 8 << 20, HeartbeatMS: 60000, IncludeTags: true, Strong: true}
	if !reflect.DeepEqual(high.WatchOptions, want) {
		t.Errorf("got %+v, want %+v", high.WatchOptions, want)
	}
	lim := DefaultLimits()
	w, err := DecodeWatch([]byte(`{"topics":{"a":{}},"heartbeat_ms":20}`), &lim, 50, nil)
	if err != nil || w.HeartbeatMS != 50 {
		t.Errorf("with a floor of 50 ms the heartbeat is %d, %v", w.HeartbeatMS, err)
	}
}

func TestAWatchThatNamesItsTopicsWronglyIsRefused(t *testing.T) {
	var many strings.Builder
	for i := range 257 {
		fmt.Fprintf(&many, `,"t%d":{}`, i)
	}
	lim := DefaultLimits()
	for body, word := range map[string]string{
		`{}`:                                     "topics",
		`{"topics":{}}`:                          "at least one",
		`{"topics":["a"]}`:                       "topics",
		`{"topics":null}`:                        "topics",
		`{"topics":{"a":null}}`:                  "topics.a",
		`{"topics":{"a":{"from_seq":-1}}}`:       "from_seq",
		`{"topics":{"a":{"from_seq":1.0}}}`:      "from_seq",
		`{"topics":{"a":{"tail":1}}}`:            "tail",
		`{"topics":{"a":{},"a":{}}}`:             "twice",
		`{"topics":{"a":{},"\u0061":{}}}`:        "twice",
		`{"topics":{"a":{}},"topics":{}}`:        "twice",
		`{"topics":{"a":{}},"consistency":1}`:    "consistency",
		`{"topics":{"a":{}},"consistency":"s"}`:  "strong",
		`{"topics":{"a":{}},"heartbeat_ms":"1"}`: "heartbeat_ms",
		`{"topics":{` + many.String()[1:] + `}}`: "more than 256",
		`{"topics":{"a":{}}} x`:                  "unexpected",
	} {
		_, err := DecodeWatch([]byte(body), &lim, MinHeartbeatMS, nil)
		if !IsCode(err, CodeInvalidRequest) || !strings.Contains(Sentence(err), word) {
			t.Errorf("%.60s: %v, want a message with %q", body, err, word)
		}
	}
}

func TestTheAnswerToAWatchListsWhereEachTopicBegins(t *testing.T) {
	got := string(AppendWatchResult(nil, &WatchResult{WID: "wid_x", Topics: []WatchPosition{
		{Topic: "a", FromSeq: 1, HeadSeq: 3, EarliestSeq: 2}, {Topic: "b", EarliestSeq: 1}}}, 0.5))
	want := `{"wid":"wid_x","stream_url":"/v0/watch/wid_x","session_ttl_ms":300000,` +
		`"topics":{"a":{"from_seq":1,"head_seq":3,"earliest_seq":2},"b":{"from_seq":0,"head_seq":0,"earliest_seq":1}},` +
		`"performance":{"server_total_ms":0.500}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
