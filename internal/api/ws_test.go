package api

import (
	"reflect"
	"strings"
	"testing"
)

func decodeSocket(t *testing.T, body string) (SocketMessage, *WriteRequest) {
	t.Helper()
	lim, w := DefaultLimits(), new(WriteRequest)
	m, err := DecodeSocket([]byte(body), &lim, w, nil)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return m, w
}

func TestASubscribeMayNameOneTopicAndAMap(t *testing.T) {
	m, _ := decodeSocket(t, `{"op":"subscribe","request_id":{"n": [1, "a b"]},"topic":"b","from_seq":9,"topics":{"a":{"tail":true},"c":{"from_seq":2}},"lenient":true}`)
	lim := DefaultLimits()
	if err := CheckSubscribe(&m.Watch, &lim); err != nil {
		t.Fatal(err)
	}
	want := WatchRequest{
		Topics:  []WatchTopic{{Topic: "a", Tail: true}, {Topic: "b", FromSeq: 9}, {Topic: "c", FromSeq: 2}},
		Lenient: true,
		WatchOptions: WatchOptions{Limit: 1000, MaxBatchBytes: 1 << 20, HeartbeatMS: 15000,
			IncludeMeta: true, IncludeData: true},
	}
	if !reflect.DeepEqual(m.Watch, want) {
		t.Errorf("got %+v, want %+v", m.Watch, want)
	}
	if string(m.RequestID) != `{"n":[1,"a b"]}` {
		t.Errorf("request_id is %s", m.RequestID)
	}
	m, _ = decodeSocket(t, `{"op":"subscribe","topic":"a","from_seq":9,"topics":{"a":{"from_seq":2}}}`)
	if len(m.Watch.Topics) != 1 || m.Watch.Topics[0].FromSeq != 2 {
		t.Errorf("the entry in topics does not win: %+v", m.Watch.Topics)
	}
}

func TestASubscribeOrUnsubscribeWithoutATopicIsAnInvalidRequestNotInvalidJSON(t *testing.T) {
	lim := DefaultLimits()
	m, _ := decodeSocket(t, `{"op":"subscribe","request_id":1}`)
	if err := CheckSubscribe(&m.Watch, &lim); !IsCode(err, CodeInvalidRequest) {
		t.Errorf("got %v", err)
	}
	m, _ = decodeSocket(t, `{"op":"unsubscribe"}`)
	if err := CheckUnsubscribe(m.Names, &lim); !IsCode(err, CodeInvalidRequest) {
		t.Errorf("got %v", err)
	}
}

func TestAnUnsubscribeKeepsTheNamesAsAskedFor(t *testing.T) {
	m, _ := decodeSocket(t, `{"op":"unsubscribe","topics":["x","y"],"topic":"z"}`)
	if want := []string{"x", "y", "z"}; !reflect.DeepEqual(m.Names, want) {
		t.Errorf("got %v, want %v", m.Names, want)
	}
}

func TestAPublishCarriesAWrite(t *testing.T) {
	m, w := decodeSocket(t, `{"op":"publish","topic":"a","return_seqs":false,"request_id": "r",
		"node":"n","idempotency_key":"k","records":[{"data": {"v": 1}},{"data":null}]}`)
	if m.Op != SocketPublish || m.Topic != "a" || m.Seqs || string(m.RequestID) != `"r"` {
		t.Errorf("got %+v", m)
	}
	if len(w.Records) != 2 || string(w.Records[0].Data) != `{"v":1}` || string(w.Records[1].Node) != "n" || string(w.IdempotencyKey) != "k" {
		t.Errorf("got %+v", w)
	}
}

func TestWhatIsNoMessageIsInvalidJSON(t *testing.T) {
	lim := DefaultLimits()
	for _, body := range []string{
		``, `[]`, `{`, `{}`, `{"op":1}`, `{"op":"fly"}`, `{"op":"ping","op":"ping"}`, `{"op":"ping"} x`,
		`{"op":"publish","records":[]}`, `{"op":"publish","topic":"a"}`, `{"op":"publish","topic":1,"records":[]}`,
		`{"op":"ping","request_id":"` + strings.Repeat("x", MaxRequestIDBytes-1) + `"}`,
		`{"op":"subscribe","topics":["a"]}`, `{"op":"subscribe","topic":"a","from_seq":"1"}`, `{"op":"unsubscribe","topics":{}}`,
	} {
		if m, err := DecodeSocket([]byte(body), &lim, new(WriteRequest), nil); !IsCode(err, CodeInvalidJSON) {
			t.Errorf("%s: %+v, %v", body, m, err)
		}
	}
}

func TestAnswersOfASocketAreAsInTheContract(t *testing.T) {
	id := []byte(`7`)
	for got, want := range map[string]string{
		string(AppendPong(nil, nil)): `{"op":"pong","request_id":null}`,
		string(AppendSubscribed(nil, id, []WatchPosition{{Topic: "a", EarliestSeq: 1}})):                                            `{"op":"subscribed","request_id":7,"topics":{"a":{"from_seq":0,"head_seq":0,"earliest_seq":1}}}`,
		string(AppendUnsubscribed(nil, id, []string{"a", "b"})):                                                                     `{"op":"unsubscribed","request_id":7,"topics":["a","b"]}`,
		string(AppendSocketError(nil, nil, TopicNotFound("x"))):                                                                     `{"op":"error","request_id":null,"code":"topic_not_found","message":"topic \"x\" does not exist; create it with PUT or a write: a log, unless its config has \"type\":\"queue\"","detail":{"topic":"x"}}`,
		string(AppendSocketAck(nil, id, "a", &WriteResult{FirstSeq: 1, LastSeq: 2, HeadSeq: 2, Count: 2, Deduped: true}, true, 0)):  `{"op":"ack","request_id":7,"topic":"a","first_seq":1,"last_seq":2,"seqs":[1,2],"head_seq":2,"count":2,"created":false,"deduped":true,"performance":{"server_total_ms":0.0}}`,
		string(AppendSocketAck(nil, id, "a", &WriteResult{FirstSeq: 1, LastSeq: 1, HeadSeq: 1, Count: 1, Deduped: true}, false, 0)): `{"op":"ack","request_id":7,"topic":"a","first_seq":1,"last_seq":1,"head_seq":1,"count":1,"created":false,"deduped":true,"performance":{"server_total_ms":0.0},"seqs":null}`,
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
