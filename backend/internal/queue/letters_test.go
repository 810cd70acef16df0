package queue_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/internal/api"
)

// crash claims what there is and leaves it to others.
func crash(t *testing.T, b backend.Backend) {
	t.Helper()
	got := take(t, b, func(r *backend.ClaimRequest) {
		r.Block, r.ReclaimAfter = 5*time.Second, 100*time.Millisecond
	})
	if len(got.Deliveries) == 0 {
		t.Fatalf("nothing to crash with: %+v", got)
	}
}

func TestADeadLetterTellsItsStory(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		_, err := b.Append(t.Context(), []backend.Message{{
			Data: []byte("\xffbody"), Headers: map[string]string{"a": "b", backend.HeaderTag: "mine"}, Priority: backend.Low,
		}})
		if err != nil {
			t.Fatal(err)
		}
		d := one(t, b)
		giveBack(t, b, d, 0) // with "not today"
		crash(t, b)
		got := take(t, b, func(r *backend.ClaimRequest) { r.Block, r.MaxDeliveries = 5*time.Second, 2 })
		if len(got.Dead) != 1 || len(got.Deliveries) != 0 {
			t.Fatalf("claimed %+v", got)
		}
		list, err := b.List(t.Context(), "", "", 10)
		if err != nil || len(list) != 1 {
			t.Fatalf("letters %+v, %v", list, err)
		}
		l := list[0]
		if string(l.Data) != "\xffbody" || l.Stream != b.Info().Stream || l.Group != "weir" || l.OriginID != d.ID || l.Attempts != 2 ||
			l.Reason != backend.ReasonMaxDeliveries || l.Error != "not today" || l.Redrives != 0 || !l.Enqueued.Equal(d.Enqueued) || time.Since(l.DeadAt) > time.Minute {
			t.Errorf("letter %+v", l)
		}
		if len(l.Headers) != 3 || l.Headers["a"] != "b" || l.Headers[backend.HeaderTag] != "mine" || l.Headers[backend.HeaderPriority] != "low" {
			t.Errorf("headers %v", l.Headers)
		}
		if got.Dead[0].ID != l.ID || got.Dead[0].OriginID != d.ID {
			t.Errorf("the claim said %+v", got.Dead[0])
		}
	})
}

func TestARedrivenMessageIsWhatItWas(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte(`{"a":1}`), Headers: map[string]string{"a": "b", backend.HeaderTag: "mine"}}}); err != nil {
			t.Fatal(err)
		}
		for round := 1; round <= 2; round++ {
			if err := b.DeadLetter(t.Context(), one(t, b), "", backend.Cause{Reason: backend.ReasonPoison, Error: strings.Repeat("é", 2000)}); err != nil {
				t.Fatal(err)
			}
			list, err := b.List(t.Context(), "", "", 10)
			if err != nil || len(list) != 1 || list[0].Redrives != round-1 || len(list[0].Error) > backend.MaxErrorBytes || len(list[0].Error) < 1000 {
				t.Fatalf("letters %+v, %v", list, err)
			}
			if err := b.Redrive(t.Context(), "", list[0]); err != nil {
				t.Fatal(err)
			}
			if err := b.Redrive(t.Context(), "", list[0]); !errors.Is(err, backend.ErrNotFound) {
				t.Errorf("the second redrive: %v", err)
			}
		}
		d := one(t, b)
		if string(d.Data) != `{"a":1}` || d.Attempt != 1 || d.Headers["a"] != "b" || d.Headers[backend.HeaderTag] != "mine" ||
			d.Headers[backend.HeaderRedrives] != "2" || len(d.Headers) != 3 {
			t.Errorf("delivered %+v", d)
		}
		if got := take(t, b, nil); len(got.Deliveries) > 0 {
			t.Errorf("stored twice: %+v", got)
		}
	})
}

func TestALetterAsLargeAsARecordIsStillMoved(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		headers := map[string]string{}
		for i := range 40 {
			headers[fmt.Sprintf("h%d", i)] = strings.Repeat("x", 250)
		}
		if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte(strings.Repeat("x", 900<<10)), Headers: headers}}); err != nil {
			t.Fatal(err)
		}
		if err := b.DeadLetter(t.Context(), one(t, b), "", backend.Cause{Reason: backend.ReasonPoison, Error: strings.Repeat("\x01", 1024)}); err != nil {
			t.Fatal(err)
		}
		list, err := b.List(t.Context(), "", "", 10)
		if err != nil || len(list) != 1 || len(list[0].Data) != 900<<10 || list[0].Reason != backend.ReasonPoison {
			t.Errorf("%d letters, %v", len(list), err)
		}
	})
}

// Whatever the size of a message that was accepted, it becomes a dead letter and comes back from
// there with all its headers: what is known of its death makes room.
func TestAMessageOfAnySizeBecomesALetterWithItsHeaders(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		headers := map[string]string{"long": strings.Repeat("x", 1000), "b": "c"}
		size := func(less int) int {
			return api.DefaultLimits().MaxRecordBytes - len(`""{"b":"c","long":""}`) - 1000 - less
		}
		sizes := []int{0, 1, 50, 150, 190, 250, 500, 1500, 3000}
		for n, less := range sizes {
			data := []byte(strings.Repeat("x", size(less)))
			if _, err := b.Append(t.Context(), []backend.Message{{Data: data, Headers: headers}}); err != nil {
				t.Fatal(err)
			}
			if err := b.DeadLetter(t.Context(), one(t, b), "", backend.Cause{Reason: backend.ReasonPoison, Error: strings.Repeat("e", 1000)}); err != nil {
				t.Errorf("%d bytes below the limit: %v", less, err)
				continue
			}
			list, err := b.List(t.Context(), "", "", 100)
			if err != nil || len(list) != n+1 {
				t.Fatalf("%d letters, %v", len(list), err)
			}
			if l := list[n]; len(l.Data) != len(data) || !maps.Equal(l.Headers, headers) {
				t.Errorf("%d bytes below the limit: a letter of %d bytes, headers %v", less, len(l.Data), l.Headers)
			}
			if less > 500 && list[n].Reason != backend.ReasonPoison {
				t.Errorf("%d bytes below the limit: %+v", less, list[n].Reason)
			}
			if err := b.Redrive(t.Context(), "", list[n]); err != nil {
				t.Fatal(err)
			}
			d := one(t, b)
			delete(d.Headers, backend.HeaderRedrives)
			if len(d.Data) != len(data) || !maps.Equal(d.Headers, headers) {
				t.Errorf("%d bytes below the limit: sent back are %d bytes, headers %v", less, len(d.Data), d.Headers)
			}
			if err := b.DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
				t.Errorf("%d bytes below the limit, again: %v", less, err)
			}
		}
	})
}

// What other clients write says more than a Delivery: members of meta that are no strings, strings
// that read like JSON, who wrote it. It comes back from the dead letters as it was.
func TestARecordOfAnotherClientComesBackAsItWas(t *testing.T) {
	h := &host{t: t, kind: "http"}
	h.serve("")
	meta := func(more string) string { return `{"n":9007199254740993,"o":{"a":[1,null]},"s":"x"` + more + `}` }
	ways := map[string]func(b *queue.Backend){
		"the handler says so": func(b *queue.Backend) {
			if err := b.DeadLetter(t.Context(), one(t, b), "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
				t.Fatal(err)
			}
		},
		"it is too late": func(b *queue.Backend) {
			if err := b.DeadLetter(t.Context(), one(t, b), "", backend.Cause{Reason: backend.ReasonExpired, NotStarted: true}); err != nil {
				t.Fatal(err)
			}
		},
		"a claim finds it past the limit": func(b *queue.Backend) {
			crash(t, b)
			take(t, b, func(r *backend.ClaimRequest) { r.Block, r.MaxDeliveries = 5*time.Second, 1 })
		},
		"the server moves it": nil,
	}
	for way, die := range ways {
		t.Run(way, func(t *testing.T) {
			name := fresh()
			cfg := api.DefaultConfig()
			cfg.Type = api.TypeQueue
			if die == nil {
				cfg.MaxDeliveries, cfg.DeadLetter, cfg.HasDeadLetter = 1, name+".dlq", true
			}
			if _, err := h.eng.PutTopic(t.Context(), name, cfg); err != nil {
				t.Fatal(err)
			}
			for _, data := range []string{`"12"`, `"{\"a\":1}"`, `"null"`, `12`} {
				written := api.Record{
					Data: []byte(data), Meta: []byte(meta("")), Tag: []byte("mine"), HasTag: true, Node: []byte("me"), HasNode: true,
					Tier: api.TierCritical, FairKey: []byte("k"),
				}
				if _, err := h.eng.Write(t.Context(), name, &api.WriteRequest{Records: []api.Record{written}}); err != nil {
					t.Fatal(err)
				}
				b := h.open(name)
				if die != nil {
					die(b)
				} else {
					crash(t, b)
					haveDead(t, b, 1)
				}
				list, err := b.List(t.Context(), "", "", 10)
				if err != nil || len(list) != 1 {
					t.Fatalf("letters %+v, %v", list, err)
				}
				if err := b.Redrive(t.Context(), "", list[0]); err != nil {
					t.Fatal(err)
				}
				var got []string
				_, err = h.eng.Claim(t.Context(), name, &api.ClaimRequest{Node: "n", Max: 10, LeaseMS: 30_000, HasLease: true}, func(j *api.Job) {
					got = append(got, fmt.Sprintf("%s %s %s %s %s %s", j.Data, j.Meta, j.Tag, j.Node, j.Tier, j.FairKey))
				})
				if err != nil {
					t.Fatal(err)
				}
				if want := data + " " + meta(`,"weir-redrives":"1"`) + " mine me critical k"; !slices.Equal(got, []string{want}) {
					t.Errorf("came back: %q, want %q", got, want)
				}
				if _, err := h.eng.DeleteTopic(t.Context(), name, false); err != nil {
					t.Fatal(err)
				}
				if _, err := h.eng.PutTopic(t.Context(), name, cfg); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Millisecond) // the time stamps of both lives have to differ
			}
		})
	}
}

// serverLetters makes n dead letters as the server itself does: without a tag of
// their own.
func serverLetters(t *testing.T, h *host, queue string, n int) *queue.Backend {
	t.Helper()
	cfg := api.DefaultConfig()
	cfg.Type, cfg.MaxDeliveries, cfg.DeadLetter, cfg.HasDeadLetter = api.TypeQueue, 1, queue+".dlq", true
	if _, err := h.eng.PutTopic(t.Context(), queue, cfg); err != nil {
		t.Fatal(err)
	}
	b := h.open(queue)
	for i := range n {
		publish(t, b, fmt.Sprint("body ", i))
	}
	take(t, b, func(r *backend.ClaimRequest) { r.ReclaimAfter, r.Max = 100*time.Millisecond, n })
	haveDead(t, b, n)
	return b
}

// haveDead claims until the server has moved n jobs to the dead letters.
func haveDead(t *testing.T, b *queue.Backend, n int) {
	t.Helper()
	for {
		take(t, b, func(r *backend.ClaimRequest) { r.Block = 50 * time.Millisecond })
		if s, err := b.Stats(t.Context()); err != nil {
			t.Fatal(err)
		} else if *s.DeadLetters == int64(n) {
			return
		}
	}
}

func TestLettersOfTheServerGoOldestFirst(t *testing.T) {
	h := &host{t: t, kind: "http"}
	h.serve("")
	queue := fresh()
	b := serverLetters(t, h, queue, 4)
	list, err := b.List(t.Context(), "", "", 10)
	if err != nil || len(list) != 4 {
		t.Fatalf("letters %+v, %v", list, err)
	}
	if l := list[1]; string(l.Data) != "body 1" || l.Stream != queue || l.OriginID != "2" || l.Attempts != 1 || l.Reason != backend.ReasonMaxDeliveries || l.Headers != nil {
		t.Errorf("letter %+v", l)
	}
	if err := b.Redrive(t.Context(), "", list[1]); err == nil || !strings.Contains(err.Error(), "oldest") || strings.Contains(err.Error(), "dead letter "+list[1].ID) {
		t.Errorf("the second of four was sent back: %v", err)
	}
	if n, err := b.Purge(t.Context(), "", []string{list[2].ID}); err == nil || n != 0 {
		t.Errorf("the third of four was purged: %d, %v", n, err)
	}
	if err := b.Redrive(t.Context(), "", list[0]); err != nil {
		t.Error(err)
	}
	if d := one(t, b); string(d.Data) != "body 0" || d.Headers[backend.HeaderRedrives] != "1" {
		t.Errorf("delivered %+v", d)
	}
	if n, err := b.Purge(t.Context(), "", []string{list[2].ID, list[1].ID, list[0].ID}); err != nil || n != 2 {
		t.Errorf("purged %d, %v", n, err)
	}
	if left, err := b.List(t.Context(), "", "", 10); err != nil || len(left) != 1 || left[0].ID != list[3].ID {
		t.Errorf("left %+v, %v", left, err)
	}
}

// Without the right to remove a letter nothing is sent back: the message would be there twice.
func TestARedriveThatMayNotRemoveSendsNothing(t *testing.T) {
	h := &host{t: t, kind: "http"}
	h.serve("all:rw+delete+admin,worker:rw")
	name := fresh()
	open := func(key string) *queue.Backend {
		b, err := openURL(t.Context(), "http://:"+key+"@"+h.addr+"/"+name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
	all, worker := open("all"), open("worker")
	publish(t, all, "x")
	if err := all.DeadLetter(t.Context(), one(t, all), "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
		t.Fatal(err)
	}
	list, err := worker.List(t.Context(), "", "", 10)
	if err != nil || len(list) != 1 {
		t.Fatalf("letters %+v, %v", list, err)
	}
	if err := worker.Redrive(t.Context(), "", list[0]); !errors.Is(err, backend.ErrForbidden) {
		t.Errorf("redrive without delete: %v", err)
	}
	if got := take(t, worker, nil); len(got.Deliveries) > 0 {
		t.Errorf("it was sent back nevertheless: %+v", got)
	}
	if err := all.Redrive(t.Context(), "", list[0]); err != nil {
		t.Error(err)
	}
}

func TestPurgeTakesWhatItIsGivenAndNothingElse(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		publish(t, b, "0", "1", "2", "3", "4", "5")
		for _, d := range take(t, b, nil).Deliveries {
			if err := b.DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
				t.Fatal(err)
			}
		}
		list, err := b.List(t.Context(), "", "", 10)
		if err != nil || len(list) != 6 {
			t.Fatalf("letters %+v, %v", list, err)
		}
		if n, err := b.Purge(t.Context(), "", []string{list[4].ID, list[0].ID, list[1].ID, "99"}); err != nil || n != 3 {
			t.Errorf("purged %d, %v", n, err)
		}
		var left string
		rest, err := b.List(t.Context(), "", list[0].ID, 2)
		for _, l := range rest {
			left += string(l.Data)
		}
		if err != nil || left != "23" {
			t.Errorf("left %q, %v", left, err)
		}
		if n, err := b.Purge(t.Context(), "not-there", []string{"1"}); err != nil || n != 0 {
			t.Errorf("a dead-letter topic that is not there: %d, %v", n, err)
		}
	})
}

func TestALetterOfTheSameNumberInANewLifeIsStored(t *testing.T) {
	h := &host{t: t, kind: "http"}
	h.serve("")
	queue := fresh()
	b := h.open(queue)
	for life := range 2 {
		publish(t, b, fmt.Sprint("life ", life))
		if err := b.DeadLetter(t.Context(), one(t, b), "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.eng.DeleteTopic(t.Context(), queue, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond) // the time stamps of both lives have to differ
	}
	list, err := b.List(t.Context(), "", "", 10)
	if err != nil || len(list) != 2 || string(list[1].Data) != "life 1" {
		t.Errorf("letters %+v, %v", list, err)
	}
}

func TestLettersOfTwoQueuesInOneTopicStayApart(t *testing.T) {
	h := &host{t: t, kind: "http"}
	h.serve("")
	const dead = "all-letters"
	at := time.UnixMilli(1_795_000_000_000)
	var b *queue.Backend
	for _, queue := range []string{fresh(), strings.Repeat("q", 250)} {
		b = h.open(queue)
		publish(t, b, queue[:1])
		d := one(t, b)
		d.Enqueued = at // both messages have the same number and time
		if err := b.DeadLetter(t.Context(), d, dead, backend.Cause{Reason: backend.ReasonPoison}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := b.List(t.Context(), dead, "", 10)
	if err != nil || len(list) != 2 {
		t.Fatalf("letters %+v, %v", list, err)
	}
	if n, err := b.Purge(t.Context(), dead, []string{list[1].ID}); err != nil || n != 1 {
		t.Errorf("purged %d, %v", n, err)
	}
	if rest, err := b.List(t.Context(), dead, "", 10); err != nil || len(rest) != 1 || rest[0].ID != list[0].ID {
		t.Errorf("left %+v, %v", rest, err)
	}
}

// removed is a service with one job past its limit, which somebody deletes once it is claimed.
type removed struct {
	queue.Service
	claims int
}

func (r *removed) Topic(context.Context, string) (api.TopicState, error) {
	return api.TopicState{}, nil
}

func (r *removed) Claim(context.Context, string, *api.ClaimRequest) ([]api.HeldJob, time.Duration, error) {
	if r.claims++; r.claims > 1 {
		return nil, 0, nil
	}
	return []api.HeldJob{{Record: api.Record{Seq: 1, Data: []byte("1")}, Lease: "7", Deliveries: 4}}, 0, nil
}

func (r *removed) Diff(context.Context, string, *api.DiffRequest) ([]api.Record, api.DiffResult, error) {
	return nil, api.DiffResult{HeadSeq: 1, NextFromSeq: 1}, nil
}

func TestAMessagePastItsLimitThatIsRemovedIsNoFailure(t *testing.T) {
	b, err := queue.New(t.Context(), &removed{}, queue.Options{Topic: "q", Limits: api.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 1, MaxDeliveries: 3, ReclaimAfter: time.Second})
	if err != nil || len(got.Deliveries)+len(got.Dead) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// shelf is a service with dead letters that weir's workers have put there.
type shelf struct {
	queue.Service
	letters []api.Record
	looked  int // records that deletes have looked at
}

func (s *shelf) Topic(context.Context, string) (api.TopicState, error) { return api.TopicState{}, nil }

func (s *shelf) Diff(_ context.Context, _ string, req *api.DiffRequest) ([]api.Record, api.DiffResult, error) {
	i, _ := slices.BinarySearchFunc(s.letters, req.FromSeq+1, func(r api.Record, seq uint64) int { return cmp.Compare(r.Seq, seq) })
	page := s.letters[i:min(len(s.letters), i+req.Limit)]
	last := s.letters[len(s.letters)-1].Seq
	res := api.DiffResult{HeadSeq: last, NextFromSeq: last, EarliestSeq: s.letters[0].Seq}
	if len(page) > 0 {
		res.NextFromSeq = page[len(page)-1].Seq
	}
	return slices.Clone(page), res, nil
}

func (s *shelf) Delete(_ context.Context, _ string, req *api.DeleteRequest) (n uint64, err error) {
	s.letters = slices.DeleteFunc(s.letters, func(r api.Record) bool {
		if r.Seq < req.MinSeq || r.Seq >= req.BeforeSeq {
			return false
		}
		s.looked++
		gone := req.Match.Match(r.HasTag, r.Tag)
		if gone {
			n++
		}
		return gone
	})
	return n, nil
}

// What stays in front of a letter that is purged is not looked at again for each, so that the time
// does not grow with the square of their number.
func TestAPurgeFromTheMiddleLooksAtWhatItRemoves(t *testing.T) {
	s := &shelf{}
	var ids []string
	for seq := uint64(1); seq <= 1000; seq++ {
		s.letters = append(s.letters, api.Record{Seq: seq, Data: []byte("1"), HasTag: true, Tag: fmt.Append(nil, "weir-dlq:q:", seq)})
		if seq%2 == 0 {
			ids = append(ids, fmt.Sprint(seq))
		}
	}
	b, err := queue.New(t.Context(), s, queue.Options{Topic: "q", Limits: api.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for page := range slices.Chunk(ids, 100) {
		if n, err := b.Purge(t.Context(), "", page); err != nil || n != len(page) {
			t.Fatalf("%d of %d purged, %v", n, len(page), err)
		}
	}
	if len(s.letters) != 500 || s.looked > 500 {
		t.Errorf("%d letters are left; to purge 500, %d were looked at", len(s.letters), s.looked)
	}
}

// More letters than one read brings are listed, each once, in their order.
func TestAListGoesOnBehindWhatOneReadBrings(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		const many = 1200
		for range many / 400 {
			if _, err := b.Append(t.Context(), slices.Repeat([]backend.Message{{Data: []byte("x")}}, 400)); err != nil {
				t.Fatal(err)
			}
		}
		list, err := b.List(t.Context(), b.Info().Stream, "", many+100) // any topic can be read as one of letters
		if err != nil || len(list) != many {
			t.Fatalf("%d letters, %v; want %d", len(list), err, many)
		}
		for i, l := range list {
			if l.ID != fmt.Sprint(i+1) {
				t.Fatalf("letter %d is %s", i+1, l.ID)
			}
		}
	})
}
