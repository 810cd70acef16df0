package scenario

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
)

func TestEveryRecordHas256BytesOfJSON(t *testing.T) {
	var body struct {
		Records []struct{ Data json.RawMessage }
	}
	if err := json.Unmarshal(writeBody(3), &body); err != nil {
		t.Fatal(err)
	}
	if len(body.Records) != 3 {
		t.Fatalf("%d records, want 3", len(body.Records))
	}
	for _, r := range body.Records {
		if len(r.Data) != recordSize {
			t.Errorf("data of %d bytes, want %d", len(r.Data), recordSize)
		}
	}
}

func TestAnAckNamesTheJobsOfItsClaim(t *testing.T) {
	data := recordData()
	seqs := appendSeqs(nil, fmt.Appendf(nil, `{"claimed":[{"$seq":7,"data":%s},{"$seq":4711,"data":%s}],"count":2}`, data, data))
	if !reflect.DeepEqual(seqs, []uint64{7, 4711}) {
		t.Fatalf("seqs %v", seqs)
	}
	const want = `{"node":"worker-3","seqs":[7,4711]}`
	if got := string(appendAckBody(nil, 3, seqs)); got != want {
		t.Fatalf("ack body %s, want %s", got, want)
	}
}
