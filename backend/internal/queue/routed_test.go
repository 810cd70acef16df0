package queue_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// call makes a call that has to succeed.
func (h *host) call(method, path, body string) (answer string) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, "http://"+h.addr+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		h.t.Fatalf("%s %s: %d %.300s %v", method, path, res.StatusCode, text, err)
	}
	return string(text)
}

// members are n members of an object.
func members(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf(`"k%d":%d`, i, i))
	}
	return list
}

// A router says in meta where a copy comes from, and so makes a record that nobody could write.
// It can die nevertheless, and be sent back, as the record that it is a copy of.
func TestACopyOfTheLargestRecordsCanDie(t *testing.T) {
	h := &host{t: t, kind: "http"}
	h.serve("")
	limits := api.DefaultLimits()
	deep := `"deep":` + strings.Repeat("[", 123) + strings.Repeat("]", 123)
	for name, c := range map[string]struct{ data, meta string }{
		"the most meta":          {`1`, `{"a":"` + strings.Repeat("x", limits.MaxMetaBytes-len(`{"a":""}`)) + `"}`},
		"the most keys, deep":    {`2`, `{` + strings.Join(append(members(api.MaxMetaKeys-1), deep), ",") + `}`},
		"the most data":          {`"` + strings.Repeat("x", limits.MaxRecordBytes-2) + `"`, ``},
		"the most data and meta": {`"` + strings.Repeat("x", limits.MaxRecordBytes-len(`{"a":1}`)-2) + `"`, `{"a":1}`},
		"a member of that name":  {`3`, `{"_topics_original_meta":{"b":1},"a":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			source, dest := fresh(), fresh()
			b := h.open(dest)
			h.call("PUT", "/v0/topics/"+dest, `{"type":"queue"}`)
			h.call("PUT", "/v0/routers/"+dest, `{"source":"`+source+`","dest":"`+dest+`","guarantee":"exactly_once"}`)
			record := `{"data":` + c.data
			if c.meta != "" {
				record += `,"meta":` + c.meta
			}
			h.call("POST", "/v0/topics/"+source, `{"records":[`+record+`}]}`)
			for range 2 {
				if err := b.DeadLetter(t.Context(), one(t, b), "", backend.Cause{Reason: backend.ReasonMaxDeliveries, Error: "it failed"}); err != nil {
					t.Fatal(err)
				}
				letters, err := b.List(t.Context(), "", "", 10)
				if err != nil || len(letters) != 1 {
					t.Fatalf("%d letters, %v", len(letters), err)
				}
				if err := b.Redrive(t.Context(), "", letters[0]); err != nil {
					t.Fatal(err)
				}
			}
			var back struct {
				Records []struct{ Data, Meta any }
			}
			if err := json.Unmarshal([]byte(h.call("POST", "/v0/topics/"+dest+"/diff", `{"max_batch_bytes":8388608}`)), &back); err != nil || len(back.Records) != 1 {
				t.Fatalf("%d records, %v", len(back.Records), err)
			}
			meta, _ := back.Records[0].Meta.(map[string]any)
			if original, ok := meta["_topics_original_meta"].(map[string]any); ok && meta["a"] == nil {
				meta = original
			}
			delete(meta, "_topics_router")
			delete(meta, backend.HeaderRedrives)
			var data, sent any
			for text, to := range map[string]any{c.data: &data, c.meta: &sent} {
				if err := json.Unmarshal([]byte(text), to); err != nil && text != "" {
					t.Fatal(err)
				}
			}
			if want, _ := sent.(map[string]any); !reflect.DeepEqual(back.Records[0].Data, data) || len(meta)+len(want) > 0 && !reflect.DeepEqual(meta, want) {
				t.Errorf("sent back is meta %.200v, want %.200v", meta, want)
			}
		})
	}
}

// Nor could anybody write the dead letter that a server makes of such a job. Where it is a job
// itself it can die again.
func TestALetterOfTheServerCanDieAgain(t *testing.T) {
	h := &host{t: t, kind: "http"}
	h.serve("")
	for name, meta := range map[string]string{
		"the most meta": `{"a":"` + strings.Repeat("x", api.DefaultLimits().MaxMetaBytes-len(`{"a":""}`)) + `"}`,
		"the most keys": `{` + strings.Join(members(api.MaxMetaKeys), ",") + `}`,
		"a little":      `{"a":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			jobs, letters := fresh(), fresh()
			h.call("PUT", "/v0/topics/"+letters, `{"type":"queue"}`)
			h.call("PUT", "/v0/topics/"+jobs, `{"type":"queue","max_deliveries":1,"dead_letter":"`+letters+`"}`)
			h.call("POST", "/v0/topics/"+jobs, `{"records":[{"data":1,"meta":`+meta+`}]}`)
			h.call("POST", "/v0/topics/"+jobs+"/claim", `{"node":"w"}`)
			h.call("POST", "/v0/topics/"+jobs+"/nack", `{"node":"w","seqs":[1]}`)
			h.call("POST", "/v0/topics/"+jobs+"/claim", `{"node":"w"}`)
			b := h.open(letters)
			if err := b.DeadLetter(t.Context(), one(t, b), "", backend.Cause{Reason: backend.ReasonMaxDeliveries}); err != nil {
				t.Fatal(err)
			}
			if list, err := b.List(t.Context(), "", "", 10); err != nil || len(list) != 1 {
				t.Errorf("%d letters, %v", len(list), err)
			}
		})
	}
}
