package openapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/contract"
)

// recordedOnce are exchanges as servers have them.
func recordedOnce() []contract.Exchange {
	js := http.Header{"Content-Type": {"application/json"}}
	return []contract.Exchange{
		{Case: "write", Method: "POST", Path: "/v0/topics/a?return_seqs=true", Header: js, Body: []byte(`{"records":[{"data":{"id":7},"tag":"new"}],"create":true}`),
			Status: 201, Answers: js, Answer: []byte(`{"topic":"a","first_seq":1,"last_seq":1,"seqs":[1],"head_seq":1,"count":1,"created":true,"deduped":false,"performance":{"server_total_ms":0.412,"wal_append_ms":0.2,"fsync_ms":0.0}}`)},
		{Case: "typo", Method: "POST", Path: "/v0/topics/a/diff", Header: js, Body: []byte(`{"LIMIT":1}`),
			Status: 200, Answers: js, Answer: []byte(`{"topic":"a","records":[],"next_from_seq":0,"head_seq":0,"earliest_seq":1,"caught_up":true,"tombstone":null,"lag":0,"performance":{"server_total_ms":0.1},"warnings":[{"code":"unknown_field","name":"LIMIT","nearest":"limit","message":"m"}]}`)},
		{Case: "refused", Method: "POST", Path: "/v0/topics/a/diff", Header: js, Body: []byte(`{"limit":1.5}`),
			Status: 400, Answers: js, Answer: []byte(`{"error":{"code":"invalid_request","message":"m"}}`)},
		{Case: "absent", Method: "GET", Path: "/v0/topics/b",
			Status: 404, Answers: js, Answer: []byte(`{"error":{"code":"topic_not_found","message":"m","detail":{"topic":"b"}}}`)},
		{Case: "busy", Method: "GET", Path: "/v0/routers",
			Status: 429, Answers: http.Header{"Content-Type": js["Content-Type"], "Retry-After": {"1"}}, Answer: []byte(`{"error":{"code":"throttled","message":"m","detail":{"limit":"max_inflight_per_key","max":1}}}`)},
		{Case: "text", Method: "POST", Path: "/v0/topics/a?tag=t&priority=high", Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: []byte(`Grüße`),
			Status: 200, Answers: js, Answer: []byte(`{"topic":"a","first_seq":3,"last_seq":3,"seqs":[3],"head_seq":3,"count":1,"created":false,"deduped":false,"performance":{"server_total_ms":0.4}}`)},
		{Case: "other form", Method: "POST", Path: "/v0/topics/a?tag=t", Header: js, Body: []byte(`{"records":[{"data":1}]}`),
			Status: 200, Answers: js, Answer: []byte(`{"topic":"a","first_seq":3,"last_seq":3,"seqs":[3],"head_seq":3,"count":1,"created":false,"deduped":false,"performance":{"server_total_ms":0.4},"warnings":[{"code":"unknown_parameter","name":"tag","message":"m"}]}`)},
		{Case: "lines", Method: "POST", Path: "/v0/topics/a", Header: http.Header{"Content-Type": {"application/x-ndjson"}}, Body: []byte("{\"n\":1}\n\n2"),
			Status: 200, Answers: js, Answer: []byte(`{"topic":"a","first_seq":4,"last_seq":5,"head_seq":5,"count":2,"batches":1,"created":false,"deduped":false,"deduped_count":0,"performance":{"server_total_ms":0.4}}`)},
		{Case: "bad line", Method: "POST", Path: "/v0/topics/a", Header: http.Header{"Content-Type": {"application/x-ndjson"}}, Body: []byte("1\nx"),
			Status: 400, Answers: js, Answer: []byte(`{"error":{"code":"invalid_request","message":"m","detail":{"line":2,"stored":0,"stored_lines":0}}}`)},
		{Case: "binary mode", Method: "POST", Path: "/v0/topics/a", Header: http.Header{"Content-Type": {"application/json"}, "Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/s"}, "Ce-Type": {"t"}}, Body: []byte(`[1]`),
			Status: 200, Answers: js, Answer: []byte(`{"topic":"a","first_seq":6,"last_seq":6,"seqs":[6],"head_seq":6,"count":1,"created":false,"deduped":false,"performance":{"server_total_ms":0.4}}`)},
		{Case: "events", Method: "POST", Path: "/v0/topics/a/diff", Header: http.Header{"Accept": {"application/cloudevents-batch+json"}}, Status: 200,
			Answers: http.Header{"Content-Type": {"application/cloudevents-batch+json"}, "Weir-Next-From-Seq": {"9"}, "Weir-Head-Seq": {"9"}, "Weir-Caught-Up": {"true"}, "Weir-Tombstone": {`{"gap_from":1,"gap_to":2,"reason":"cap","missed_estimate":2,"earliest_seq":3,"head_seq":9}`}},
			Answer:  []byte(`[{"specversion":"1.0","id":"1","source":"/s","type":"t","n":5,"data_base64":"AA=="}]`)},
		{Case: "payload", Method: "GET", Path: "/v0/topics/a/records/7", Status: 200, Answers: payloadHeaders("image/png"), Answer: []byte{0, 0xff}},
		{Case: "no payload", Method: "GET", Path: "/v0/topics/a/records/8", Status: 200, Answers: payloadHeaders("")},
		{Case: "webhook", Method: "PUT", Path: "/v0/webhooks/w", Header: js, Body: []byte(`{"topic":"a","url":"https://example.com/","headers":{"X-A":"b"}}`),
			Status: 201, Answers: js, Answer: []byte(`{"webhook":"w","topic":"a","url":"https://example.com/","concurrency":4,"rate":0,"timeout_ms":10000,"headers":["X-A"],"created":true,"secret":"whsec_x"}`)},
		{Case: "preflight", Method: "OPTIONS", Path: "/v0/watch", Header: http.Header{"Origin": {"https://a.example"}, "Access-Control-Request-Method": {"POST"}}, Status: 204,
			Answers: http.Header{"Access-Control-Allow-Origin": {"https://a.example"}, "Access-Control-Allow-Methods": {"GET, POST"}, "Access-Control-Allow-Headers": {"Authorization"}, "Access-Control-Max-Age": {"7200"}, "Vary": {"Origin"}}},
		{Case: "prefixed", Stream: "3", Path: "/v0/watch/wid_1?events=prefixed", Event: "weir-caught-up", Body: []byte(`{"topic":"a","head_seq":1}`)},
		{Case: "claims", Stream: "4", Path: "/v0/ws", Event: "sent", Body: []byte(`{"op":"claim","topic":"q","node":"n","wait_ms":9,"request_id":1}`)},
		{Case: "pings", Stream: "4", Path: "/v0/ws", Event: "sent", Body: []byte(`{"op":"ping","request_id":2}`)},
		{Case: "pong", Stream: "4", Path: "/v0/ws", Event: "message", Body: []byte(`{"op":"pong","request_id":2}`)},
		{Case: "claimed", Stream: "4", Path: "/v0/ws", Event: "message", Body: []byte(`{"op":"claimed","request_id":1,"topic":"q","claimed":[],"count":0,"ready":0,"performance":{"server_total_ms":9.1}}`)},
		{Case: "event", Stream: "1", Path: "/v0/watch/wid_1", Event: "caught-up", Body: []byte(`{"topic":"a","head_seq":1}`)},
		{Case: "sent", Stream: "2", Path: "/v0/ws", Event: "sent", Body: []byte(`{"op":"publish","topic":"a","records":[{"data":1}]}`)},
		{Case: "pushed", Stream: "2", Path: "/v0/ws", Event: "message", Body: []byte(`{"op":"caught_up","topic":"a","head_seq":1}`)},
		{Case: "ack", Stream: "2", Path: "/v0/ws", Event: "message", Body: []byte(`{"op":"ack","request_id":null,"topic":"a","first_seq":2,"last_seq":2,"seqs":[2],"head_seq":2,"count":1,"created":false,"deduped":false,"performance":{"server_total_ms":0.1}}`)},
		{Case: "unfit", Stream: "2", Path: "/v0/ws", Event: "sent", Body: []byte(`{"op":"publish","records":[]}`)},
		{Case: "error", Stream: "2", Path: "/v0/ws", Event: "message", Body: []byte(`{"op":"error","request_id":null,"code":"invalid_json","message":"m"}`)},
	}
}

func payloadHeaders(contentType string) http.Header {
	h := http.Header{
		"Weir-Seq": {"7"}, "Weir-Ts": {"1795246774831"}, "X-Content-Type-Options": {"nosniff"}, "Content-Security-Policy": {"sandbox; default-src 'none'"},
		"Ce-Specversion": {"1.0"}, "Ce-Id": {"7"}, "Ce-Source": {"/v0/topics/a"}, "Ce-Type": {"weir.record"},
	}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	return h
}

// edited returns the document with the value at a pointer replaced; nil removes it.
func edited(t *testing.T, pointer string, value any) []byte {
	t.Helper()
	var root any
	if err := json.Unmarshal(readPage(t), &root); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	node := object(root)
	for _, part := range parts[:len(parts)-1] {
		if node = object(node[strings.ReplaceAll(part, "~1", "/")]); node == nil {
			t.Fatalf("there is no %s in %s", part, pointer)
		}
	}
	last := strings.ReplaceAll(parts[len(parts)-1], "~1", "/")
	if node[last] == nil {
		t.Fatalf("there is no %s in %s", last, pointer)
	}
	if node[last] = value; value == nil {
		delete(node, last)
	}
	text, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func judged(t *testing.T, text []byte, exchanges []contract.Exchange) []string {
	t.Helper()
	j := NewJudge(load(t, text))
	for i := range exchanges {
		j.Exchange(&exchanges[i])
	}
	return j.Problems
}

func TestASchemaThatIsWrongFails(t *testing.T) {
	if got := judged(t, readPage(t), recordedOnce()); len(got) > 0 {
		t.Fatalf("the document as it is: %v", got)
	}
	text := map[string]any{"type": "string"}
	const topics, schemas = "/paths/~1v0~1topics~1{topic}", "/components/schemas"
	for _, c := range []struct {
		pointer string
		value   any
		who     string // which exchange shows it
	}{
		{schemas + "/WriteResult/properties/first_seq", text, "write"},
		{schemas + "/WriteResult/properties/created", nil, "write"},
		{schemas + "/WriteResult/required", []any{"topic", "elapsed"}, "write"},
		{schemas + "/Performance/properties/wal_append_ms", nil, "write"},
		{schemas + "/Write/required", []any{"records", "node"}, "write"},
		{schemas + "/Write/properties/create", nil, "write"},
		{schemas + "/NewRecord/properties/tag", nil, "write"},
		{schemas + "/NewRecord/properties/data", text, "write"},
		{topics + "/post/responses/201", nil, "write"},
		{topics + "/post", nil, "write"},
		{"/components/parameters/NewTopic/schema", map[string]any{"type": "string", "minLength": 2}, "write"},
		{schemas + "/Diff/properties", map[string]any{"LIMIT": text}, "typo"},
		{schemas + "/DiffResult/properties/tombstone", map[string]any{"type": "object"}, "typo"},
		{schemas + "/Warning/properties/code/enum", []any{"unknown_parameter"}, "typo"},
		{topics + "~1diff/post/responses/400", nil, "refused"},
		{schemas + "/Error/properties/error/properties/message", map[string]any{"type": "integer"}, "refused"},
		{"/components/responses/NotFound/content/application~1json/schema/properties/error/properties/code/enum", []any{"not_found"}, "absent"},
		{schemas + "/ErrorDetail/properties/topic", nil, "absent"},
		{"/components/headers/RetryAfter/schema", map[string]any{"type": "string", "pattern": "^[2-9]$"}, "busy"},
		{topics + "/post/requestBody/content/text~1plain", nil, "text"},
		{topics + "/post/requestBody/content/text~1plain/schema/type", "object", "text"},
		{"/components/parameters/RecordPriority/schema", map[string]any{"const": "low"}, "text"},
		{"/components/parameters/RecordTag/x-not-with", "text/plain", "text"},
		{"/components/parameters/RecordTag/x-not-with", nil, "other form"},
		{topics + "/post/requestBody/content/application~1x-ndjson/x-lines", map[string]any{"$ref": "#/components/schemas/Meta"}, "lines"},
		{schemas + "/LinesResult/properties/batches", nil, "lines"},
		{schemas + "/ErrorDetail/properties/stored_lines", nil, "bad line"},
		{topics + "/post/requestBody/content/*~1*", nil, "binary mode"},
		{schemas + "/CloudEvent/additionalProperties", false, "events"},
		{schemas + "/CloudEvent/properties/data_base64/type", "object", "events"},
		{schemas + "/Tombstone/properties/missed_estimate", nil, "events"},
		{topics + "~1diff/post/responses/200/content/application~1cloudevents-batch+json", nil, "events"},
		{topics + "~1records~1{seq}/get/responses/200/content/*~1*", nil, "payload"},
		{topics + "~1records~1{seq}/get/responses/200/content/*~1*/x-may-be-empty", nil, "no payload"},
		{"/components/headers/Seq/schema", map[string]any{"const": "0"}, "payload"},
		{schemas + "/Webhook/properties/headers", nil, "webhook"},
		{schemas + "/PutWebhookResult/properties/secret", nil, "webhook"},
		{"/x-preflight", nil, "preflight"},
		{"/x-preflight/responses/204/headers/Vary/schema/const", "Cookie", "preflight"},
		{"/components/parameters/EventNames/x-prefixes", nil, "prefixed"},
		{schemas + "/SocketClaim/properties/wait_ms", nil, "claims"},
		{schemas + "/SocketClaimed/properties/ready", nil, "claimed"},
		{schemas + "/CaughtUpEvent/properties/head_seq", text, "prefixed"},
		{"/paths/~1v0~1watch~1{wid}/get/responses/200/content/text~1event-stream/x-events/caught-up", nil, "prefixed"},
		{schemas + "/Publish/required", []any{"op", "topic", "records", "node"}, "sent"},
		{schemas + "/Publish/properties/records", nil, "sent"},
		{schemas + "/SocketCaughtUp/properties/head_seq", text, "pushed"},
		{schemas + "/PublishAck/properties/op/const", "acked", "ack"},
		{schemas + "/SocketError/properties/code/enum", []any{"internal"}, "error"},
	} {
		got := judged(t, edited(t, c.pointer, c.value), recordedOnce())
		if len(got) == 0 || !strings.HasPrefix(got[0], c.who+": ") {
			t.Errorf("%s is %v, and the judge says %.300q", c.pointer, c.value, got)
		}
	}
}

// A server that does not do as the document says is found, too.
func TestAServerThatIsWrongFails(t *testing.T) {
	for who, change := range map[string]func(x *contract.Exchange){
		"write": func(x *contract.Exchange) {
			x.Answer = []byte(strings.Replace(string(x.Answer), `"count":1`, `"count":"1"`, 1))
		},
		"typo":    func(x *contract.Exchange) { x.Body = []byte(`{"limit":1}`) },
		"refused": func(x *contract.Exchange) { x.Status = 200 },
		"absent":  func(x *contract.Exchange) { x.Status = 409 },
		"busy":    func(x *contract.Exchange) { x.Answers.Del("Retry-After") },
		"event":   func(x *contract.Exchange) { x.Event = "caught_up" },
		"sent": func(x *contract.Exchange) {
			x.Body = []byte(`{"op":"publish","topic":"a","records":[{"data":1}],"x":1}`)
		},
		"ack":         func(x *contract.Exchange) { x.Body = []byte(`{"op":"pong","request_id":1,"x":1}`) },
		"unfit":       func(x *contract.Exchange) { x.Event = "message" },
		"text":        func(x *contract.Exchange) { x.Body = []byte{'a', 0xff} },
		"lines":       func(x *contract.Exchange) { x.Body = []byte("1\nx") },
		"bad line":    func(x *contract.Exchange) { x.Status = 200 },
		"binary mode": func(x *contract.Exchange) { delete(x.Header, "Ce-Specversion") },
		"events":      func(x *contract.Exchange) { x.Answers.Del("Weir-Caught-Up") },
		"payload":     func(x *contract.Exchange) { x.Answers.Del("Ce-Id") },
		"no payload":  func(x *contract.Exchange) { x.Answer = []byte("x") },
		"preflight":   func(x *contract.Exchange) { x.Answers.Set("Access-Control-Allow-Origin", "https://b.example") },
		"prefixed":    func(x *contract.Exchange) { x.Event = "caught-up" },
		"pong":        func(x *contract.Exchange) { x.Body = []byte(`{"op":"pong","request_id":1}`) },
		"claimed": func(x *contract.Exchange) {
			x.Body = []byte(strings.Replace(string(x.Body), `"request_id":1`, `"request_id":3`, 1))
		},
	} {
		all := recordedOnce()
		for i := range all {
			if all[i].Case == who {
				change(&all[i])
			}
		}
		if got := judged(t, readPage(t), all); len(got) == 0 || !strings.HasPrefix(got[0], who+": ") {
			t.Errorf("%s: the judge says %.300q", who, got)
		}
	}
}

func TestADocumentThatIsInvalidFails(t *testing.T) {
	for pointer, value := range map[string]any{
		"/info/title":                                 nil,
		"/components/parameters/Topic/in":             "body",
		"/components/schemas/Write/type":              "objekt",
		"/components/schemas/Write/properties/node":   map[string]any{"$ref": "#/components/schemas/Nothing"},
		"/components/schemas/Ack/required":            []any{"node", "seqs", "lease_ms"},
		"/paths/~1v0~1watch/post/responses/404/$ref":  "#/components/responses/Nothing",
		"/paths/~1v0~1watch/post/requestBody/content": nil,
	} {
		if wrong := lint(edited(t, pointer, value)); len(wrong) == 0 {
			t.Errorf("%s is %v, and the document is valid", pointer, value)
		}
	}
}

func TestAnExampleThatIsWrongFails(t *testing.T) {
	text := readExamples(t)
	if got := pageProblems(t, text); len(got) > 0 {
		for _, p := range got {
			t.Error(p)
		}
		return
	}
	for from, to := range map[string]string{
		`{"records":[{"data":{"id":7},"tag":"new"}`:          `{"records":[{"date":{"id":7},"tag":"new"}`,
		`"next_from_seq":2`:                                  `"next_seq":2`,
		`> frame caught-up {"topic":"feed"`:                  `> frame caught_up {"topic":"feed"`,
		`{"op":"subscribe",`:                                 `{"op":"sub",`,
		`{"op":"subscribed",`:                                `{"op":"subscribe",`,
		`"detail":{"reason":"load_shedding",`:                `"detail":{"cause":"load_shedding",`,
		`"lease_id":"lease_1f","deadline"`:                   `"lease":"lease_1f","deadline"`,
		`"batches":1`:                                        `"batch":1`,
		`> header Weir-Next-From-Seq`:                        `> header Weir-Next-Seq`,
		`> body [{"specversion":"1.0"`:                       `> body [{"specversion":"0.3"`,
		`{"op":"claim",`:                                     `{"op":"take",`,
		`{"op":"acked",`:                                     `{"op":"ackd",`,
		`> body {"webhooks":[]}`:                             `> body {"hooks":[]}`,
		`"warnings":[{"code":"unknown_field","name":"LIMIT"`: `"warnings":[{"code":"unknown_field","field":"LIMIT"`,
	} {
		if !strings.Contains(string(text), from) {
			t.Errorf("%s has no %s", examples, from)
		}
		if got := pageProblems(t, []byte(strings.ReplaceAll(string(text), from, to))); len(got) == 0 {
			t.Errorf("an example with %s passes", to)
		}
	}
}
