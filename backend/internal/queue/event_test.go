package queue

import (
	"testing"

	"github.com/weirmq/weir/internal/api"
)

// A CloudEvent that is claimed and sent on, as dead letters are, stays what it was.
func TestACloudEventOutlivesBeingSentOn(t *testing.T) {
	for _, r := range []api.Record{
		{Data: []byte(`"AP8Q"`), Meta: []byte(`{"$cloudevent":{"specversion":"1.0","id":"1","source":"/s","type":"t","n":9007199254740993,"datacontenttype":"image/png"},"weir-encoding":"base64"}`)},
		{Data: []byte(`{"a":1}`), Meta: []byte(`{"$cloudevent":{"specversion":"1.0","id":"1","source":"/s","type":"t"}}`)},
		{Data: []byte(`null`), Meta: []byte(`{"$cloudevent":{"specversion":"1.0","id":"1","source":"/s","type":"t"},"weir-encoding":"none"}`)},
		{Data: []byte(`"AP8Q"`), Meta: []byte(`{"$content_type":"application/octet-stream","weir-encoding":"base64"}`)},
	} {
		data, headers := decode(&r)
		again, err := encodeRecord(data, headers)
		if err != nil {
			t.Fatal(err)
		}
		if string(again.Data) != string(r.Data) || string(again.Meta) != string(r.Meta) {
			t.Errorf("got %s %s, want %s %s", again.Data, again.Meta, r.Data, r.Meta)
		}
	}
}
