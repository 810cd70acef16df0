package engine

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// keyedWrites are writes of one record each; a key is text in front of a colon.
func keyedWrites(texts ...string) (reqs []api.WriteRequest) {
	for _, text := range texts {
		w := api.WriteRequest{}
		for i := range text {
			if text[i] == ':' {
				w.IdempotencyKey, w.HasIdempotencyKey, text = []byte(text[:i]), true, text[i+1:]
				break
			}
		}
		w.Records = []api.Record{{Data: []byte(text)}}
		reqs = append(reqs, w)
	}
	return reqs
}

// Each of many writes has the number and the key that it would have alone, in every class
// and after a restart.
func TestEachOfManyWritesIsAsIfAlone(t *testing.T) {
	for _, class := range []api.Durability{api.Ephemeral, api.Disk, api.Fsync} {
		t.Run(class.String(), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				dir := t.TempDir()
				e := open(t, dir)
				put(t, e, "t", configOf(class))
				write(t, e, "t", "0")
				for round := range 2 {
					out, err := e.WriteEach(bg, "t", keyedWrites("a:1", "b:2", "3", "a:1", "c:4"))
					if err != nil {
						t.Fatal(err)
					}
					var got string
					for _, o := range out {
						if o.Err != nil {
							t.Fatal(o.Err)
						}
						got += fmt.Sprintf("%d-%d %t, ", o.FirstSeq, o.LastSeq, o.Deduped)
					}
					want := []string{
						"2-2 false, 3-3 false, 4-4 false, 2-2 true, 5-5 false, ",
						"2-2 true, 3-3 true, 6-6 false, 2-2 true, 5-5 true, ",
					}[round]
					if got != want {
						t.Errorf("round %d: %s, want %s", round, got, want)
					}
					if round == 0 && class == api.Fsync {
						e.Close()
						e = open(t, dir)
					}
				}
				sameRecords(t, e, "t", []string{"0", "1", "2", "3", "4", "3"})
				e.Close()
			})
		})
	}
}

// What passes stops those behind it, so that trying again keeps the order; what never will
// does not.
func TestAWriteThatFailsForNowStopsThoseBehindIt(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := open(t, t.TempDir())
		defer e.Close()
		put(t, e, "t", configOf(api.Disk, func(c *api.Config) { c.CapRecords, c.Discard = 3, api.DiscardReject }))
		reqs := keyedWrites("a:1", "b:2", "c:3", "d:4", "a:1", "e:5")
		reqs[1].Records[0].Delay = 5 // for queues alone
		reqs = append(reqs[:3:3], append(keyedWrites("f:6"), reqs[3:]...)...)
		out, err := e.WriteEach(bg, "t", reqs)
		if err != nil {
			t.Fatal(err)
		}
		for i, code := range []api.Code{"", api.CodeNotAQueue, "", "", api.CodeTopicFull, api.CodeTopicFull, api.CodeTopicFull} {
			if code == "" && out[i].Err != nil || code != "" && !api.IsCode(out[i].Err, code) {
				t.Errorf("write %d: %v, want %q", i, out[i].Err, code)
			}
		}
		sameRecords(t, e, "t", []string{"1", "3", "6"})
		if out, err = e.WriteEach(bg, "none", []api.WriteRequest{{Records: reqs[0].Records, Create: new(bool)}}); err != nil || !api.IsCode(out[0].Err, api.CodeTopicNotFound) {
			t.Errorf("%+v, %v", out, err)
		}
	})
}

// More writes than the log has room for at a time do not wait for themselves.
func TestManyWritesNeedNoMoreRoomThanThereIs(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := open(t, t.TempDir(), func(o *Options) { o.IngestSlots = 3 })
		defer e.Close()
		put(t, e, "t", configOf(api.Fsync))
		begin := time.Now()
		var all sync.WaitGroup
		for g := range 4 {
			all.Go(func() {
				var texts []string
				for i := range 100 {
					texts = append(texts, fmt.Sprintf("%d/%d:%d", g, i, 1000*g+i))
				}
				out, err := e.WriteEach(bg, "t", keyedWrites(texts...))
				if err != nil {
					t.Error(err)
				}
				for i := range out {
					if out[i].Err != nil || i > 0 && out[i].FirstSeq <= out[i-1].FirstSeq {
						t.Errorf("write %d: %+v behind %+v", i, out[i], out[max(0, i-1)])
					}
				}
			})
		}
		all.Wait()
		if took := time.Since(begin); took > time.Second {
			t.Errorf("400 writes took %v", took)
		}
	})
}
