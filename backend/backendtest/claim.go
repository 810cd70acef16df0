package backendtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir/backend"
)

func (s *suite) claimCases() []testCase {
	cases := []testCase{
		{"a claim that does not wait comes back at once", claimAtOnce},
		{"a claim waits no shorter and not much longer than its block", claimBlocks},
		{"a waiting claim wakes for a message", claimWakes},
		{"a claim gives no more than asked for", claimMax},
		{"a message is delivered to one of two handles", claimOnce},
		{"a waiting claim that a context ended takes nothing with it", claimCancelled},
		{"a waiting claim whose caller has enough ends within its slack", claimHasEnough},
		{"a claim whose caller has enough as a message comes loses nothing", enoughAsMessagesCome},
		{"eight claimers never hold the same message", claimersShare},
	}
	if s.h.OpenGroup != nil {
		cases = append(cases, testCase{"each group gets every message", groupsAreApart})
	}
	return cases
}

func claimAtOnce(f *fixture) {
	b := f.open()
	f.nothing(b, request("a", 1), "the stream is new") // may have to create its group
	start := time.Now()
	f.nothing(b, request("a", 1), "the stream is empty")
	if took := time.Since(start); took > f.prompt() {
		f.Errorf("an empty claim with block 0 took %s", took)
	}
}

func claimBlocks(f *fixture) {
	b := f.open()
	req := request("a", 1)
	req.Block = 400 * time.Millisecond
	start := time.Now()
	got, err := b.Claim(f.ctx(), req)
	took := time.Since(start)
	if err != nil || len(got.Deliveries) != 0 || took < 350*time.Millisecond || took > req.Block+f.prompt() {
		f.Errorf("a claim with block %s on an empty stream: %+v, %v after %s", req.Block, got, err, took)
	}
}

func claimWakes(f *fixture) {
	b, producer := f.open(), f.open()
	f.nothing(b, request("a", 1), "the stream is new")
	req := request("a", 10)
	req.Block = 10 * time.Second
	appended := make(chan time.Time, 1)
	timer := time.AfterFunc(200*time.Millisecond, func() {
		if _, err := producer.Append(f.ctx(), text("x")); err != nil {
			f.Errorf("append: %v", err)
		}
		appended <- time.Now()
	})
	defer timer.Stop()
	got, err := b.Claim(f.ctx(), req)
	if err != nil || len(got.Deliveries) != 1 {
		f.Fatalf("got %+v, %v", got, err)
	}
	if late := time.Since(<-appended); late > f.prompt() {
		f.Errorf("the claim woke %s after the append", late)
	}
}

func claimMax(f *fixture) {
	b := f.open()
	f.publish(b, numbered(0, 25)...)
	seen := map[string]bool{}
	for _, want := range []int{10, 10, 5} {
		got := f.gather(b, request("a", 10), want) // gather checks the bound
		for _, d := range got.Deliveries {
			seen[d.ID] = true
		}
		if got.Reclaimed != 0 {
			f.Errorf("%d of new messages are said to be reclaimed", got.Reclaimed)
		}
	}
	if len(seen) != 25 {
		f.Errorf("25 messages, %d delivered", len(seen))
	}
}

func claimOnce(f *fixture) {
	a, b := f.open(), f.open()
	f.publish(a, numbered(0, 1)...)
	d := f.claim(a, "a", 1)[0]
	f.nothing(b, request("b", 1), "the only message is held")
	f.nothing(b, request("a", 1), "the only message is held under this name by another process")
	f.ack(a, d)
	f.done(b)
}

func claimCancelled(f *fixture) {
	b, other := f.two()
	f.nothing(b, f.shortRequest("a", 1), "the stream is new")
	ctx, cancel := context.WithCancel(f.ctx())
	ended := make(chan time.Time, 1)
	timer := time.AfterFunc(100*time.Millisecond, func() {
		ended <- time.Now()
		cancel()
	})
	defer timer.Stop()
	req := f.shortRequest("a", 1)
	req.Block = 15 * time.Second
	_, err := b.Claim(ctx, req)
	if took := time.Since(<-ended); !errors.Is(err, context.Canceled) || took > f.prompt() {
		f.Errorf("a waiting claim ended %s after its context with %v", took, err)
	}
	f.publish(other, text("x")...)
	start := time.Now()
	got := f.gather(other, f.shortRequest("b", 1), 1)
	if took := time.Since(start); len(got.Deliveries) != 1 || took > f.short+f.prompt() {
		f.Errorf("the next message came after %s: %+v", took, got)
	}
}

func claimersShare(f *fixture) {
	const claimers, messages = 8, 400
	producer := f.open()
	f.publish(producer, numbered(0, messages/2)...)
	var mu sync.Mutex
	seen := map[string]string{}
	finished := make(chan struct{})
	var all sync.WaitGroup
	for i := range claimers {
		b, consumer := f.open(), fmt.Sprintf("c%d", i)
		all.Go(func() {
			for {
				select {
				case <-finished:
					return
				default:
				}
				got, err := b.Claim(f.ctx(), request(consumer, 7))
				if err != nil {
					f.Errorf("claim: %v", err)
					return
				}
				if lost, err := b.Ack(f.ctx(), leases(got.Deliveries)); err != nil || len(lost) > 0 {
					f.Errorf("ack of %s: lost %v, %v", describe(got.Deliveries), lost, err)
				}
				mu.Lock()
				for _, d := range got.Deliveries {
					if by, twice := seen[d.ID]; twice || d.Attempt != 1 {
						f.Errorf("message %s went to %q and, attempt %d, to %s", d.ID, by, d.Attempt, consumer)
					}
					seen[d.ID] = consumer
				}
				if len(seen) == messages {
					select {
					case <-finished:
					default:
						close(finished)
					}
				}
				mu.Unlock()
			}
		})
	}
	for i := messages / 2; i < messages; i += 20 {
		f.publish(producer, numbered(i, i+20)...)
	}
	select {
	case <-finished:
	case <-time.After(patience):
		mu.Lock()
		f.Errorf("%d of %d messages came", len(seen), messages)
		mu.Unlock()
		select {
		case <-finished:
		default:
			close(finished)
		}
	}
	all.Wait()
	f.done(producer)
}

func groupsAreApart(f *fixture) {
	a, b := f.h.OpenGroup(f, f.stream, "first"), f.h.OpenGroup(f, f.stream, "second")
	defer a.Close()
	defer b.Close()
	f.publish(f.open(), numbered(0, 3)...)
	f.ack(a, f.claim(a, "a", 3)...)
	f.ack(b, f.claim(b, "a", 3)...)
	f.done(a)
	f.done(b)
}

func (s *suite) reclaimCases() []testCase {
	return []testCase{
		{"an orphan goes to another, whole and counted", orphanIsReclaimed},
		{"an orphan is not taken before its time", orphanWaits},
		{"orphans come before new messages", orphansFirst},
		{"orphans behind many busy messages are found", orphansBehindBusyOnes},
		{"a waiting claimer finds orphans", waitingClaimerFindsOrphans},
	}
}

func orphanIsReclaimed(f *fixture) {
	a, b := f.two()
	m := backend.Message{Data: []byte{0, 1, 0xff}, Headers: map[string]string{"k": "v"}, Priority: backend.High}
	f.publish(a, m)
	first := f.gather(a, f.shortRequest("a", 1), 1).Deliveries[0]
	got := f.gather(b, f.shortRequest("b", 1), 1)
	if len(got.Deliveries) != 1 || got.Reclaimed != 1 {
		f.Fatalf("got %s, reclaimed %d", describe(got.Deliveries), got.Reclaimed)
	}
	d := got.Deliveries[0]
	if d.ID != first.ID || d.Attempt != 2 || d.Consumer != "b" || !slices.Equal(d.Data, m.Data) ||
		!maps.Equal(d.Headers, first.Headers) || !d.Enqueued.Equal(first.Enqueued) {
		f.Errorf("first %+v, then %+v", first, d)
	}
	if waited := time.Since(first.Since); waited < f.short {
		f.Errorf("reclaimed after %s, ReclaimAfter is %s", waited, f.short)
	}
}

func orphanWaits(f *fixture) {
	f.inTime(f.short, func() (string, time.Duration) {
		a, b := f.two()
		f.nothing(b, request("b", 1), "the stream is new") // it is in the group now
		f.publish(a, text("x")...)
		start := time.Now()
		f.gather(a, f.shortRequest("a", 1), 1)
		req := f.shortRequest("b", 1)
		req.Block = 0
		got, err := b.Claim(f.ctx(), req)
		if err != nil || len(got.Deliveries) > 0 {
			return fmt.Sprintf("%s after the claim of a another got %s, %v", time.Since(start), describe(got.Deliveries), err), time.Since(start)
		}
		return "", 0
	})
}

func orphansFirst(f *fixture) {
	f.untilQuick(30, "the end of a lease", func() bool { return orphansComeFirst(f) })
}

func orphansComeFirst(f *fixture) (quick bool) {
	a, b := f.two()
	old := f.publish(a, numbered(0, 3)...)
	f.gather(a, f.shortRequest("a", 3), 3)
	f.publish(a, numbered(3, 8)...)
	const slack = 500 * time.Millisecond // nothing tells that a lease ran out, and who keeps leases may want for a processor
	before := f.late()
	time.Sleep(f.short + slack)
	most := 4
	if f.h.Unordered {
		most = 8
	}
	got, err := b.Claim(f.ctx(), f.shortRequest("b", most))
	late, fault := f.late()-before, ""
	if err != nil || len(got.Deliveries) < 3 {
		fault = fmt.Sprintf("got %s, %v", describe(got.Deliveries), err)
	} else if i := slices.IndexFunc(got.Deliveries[:3], func(d *backend.Delivery) bool { return !slices.Contains(old, d.ID) }); i >= 0 {
		fault = fmt.Sprintf("delivery %d is %s, attempt %d: a new message before the orphans", i, got.Deliveries[i].ID, got.Deliveries[i].Attempt)
	}
	if fault != "" && late <= slack/2 {
		f.Fatal(fault)
	}
	return fault == ""
}

// orphansBehindBusyOnes: 250 messages are kept by their worker and lie in front
// of five that their worker left.
func orphansBehindBusyOnes(f *fixture) {
	const busy, orphans = 250, 5
	lease := max(f.short, time.Second)
	f.inTime(lease, func() (string, time.Duration) {
		a, b := f.two()
		f.nothing(b, request("b", 1), "the stream is new") // it is in the group now
		req := request("a", busy+orphans)
		req.ReclaimAfter = lease
		f.publish(a, numbered(0, busy+orphans)...)
		all := f.gather(a, req, busy+orphans).Deliveries
		alive, left := leases(all[:busy]), all[busy:]
		req.Consumer, req.Max, req.Block = "b", 10, 0
		found := map[string]bool{}
		var longest time.Duration
		extended := all[0].Since
		for start := time.Now(); len(found) < orphans; {
			if time.Since(start) > lease+5*time.Second {
				return fmt.Sprintf("%d of %d orphans behind %d busy messages were found in %s", len(found), orphans, busy, time.Since(start)), longest
			}
			now := time.Now()
			lost, err := a.Extend(f.ctx(), alive, lease)
			longest, extended = max(longest, time.Since(extended)), now
			if err != nil || len(lost) > 0 {
				return fmt.Sprintf("extend lost %d of %d: %v", len(lost), busy, err), longest
			}
			for range 5 {
				got, err := b.Claim(f.ctx(), req)
				if err != nil {
					return fmt.Sprintf("claim: %v", err), 0
				}
				for _, d := range got.Deliveries {
					found[d.ID] = true
					if !slices.ContainsFunc(left, func(o *backend.Delivery) bool { return o.ID == d.ID }) {
						return fmt.Sprintf("a busy message was taken over: %s", describe(got.Deliveries)), max(longest, time.Since(extended))
					}
				}
				if lost, err := b.Ack(f.ctx(), leases(got.Deliveries)); err != nil || len(lost) > 0 {
					return fmt.Sprintf("ack: lost %v, %v", lost, err), time.Since(got.Deliveries[0].Since)
				}
			}
			time.Sleep(lease / 20)
		}
		return "", 0
	})
}

func waitingClaimerFindsOrphans(f *fixture) {
	a, b := f.two()
	f.publish(a, text("x")...)
	first := f.gather(a, f.shortRequest("a", 1), 1).Deliveries[0]
	req := f.shortRequest("b", 1)
	req.Block = f.short
	got := f.gather(b, req, 1)
	if took := time.Since(first.Since); len(got.Deliveries) != 1 || took > 3*f.short+f.prompt() {
		f.Errorf("an orphan came %s after its claim, ReclaimAfter and block are %s", took, f.short)
	}
}

func claimHasEnough(f *fixture) {
	b := f.open()
	f.nothing(b, request("a", 1), "the stream is new")
	for _, slack := range []time.Duration{0, 200 * time.Millisecond} {
		for _, after := range []time.Duration{0, 150 * time.Millisecond} {
			req, enough := request("a", 1), make(chan struct{})
			req.Block, req.Enough, req.Slack = 20*time.Second, enough, slack
			var closed time.Time
			time.AfterFunc(after, func() { closed = time.Now(); close(enough) })
			got, err := b.Claim(f.ctx(), req)
			<-enough
			if took := time.Since(closed); err != nil || len(got.Deliveries) > 0 || took > slack+prompt/2+f.late() {
				f.Errorf("a claim that had enough after %s, with a slack of %s, ended %s later with %+v, %v", after, slack, took, got, err)
			}
		}
	}
}

// enoughAsMessagesCome ends claims at about the time when a message comes. If one does
// not have it, the next has.
func enoughAsMessagesCome(f *fixture) {
	b, producer := f.open(), f.open()
	f.nothing(b, request("a", 1), "the stream is new")
	for round := range 40 {
		req, enough := request("a", 1), make(chan struct{})
		req.Block, req.Enough = 20*time.Second, enough
		if round%2 > 0 {
			req.Slack = 50 * time.Millisecond
		}
		time.AfterFunc(time.Duration(round)*time.Millisecond/2, func() { close(enough) })
		published := make(chan error, 1)
		time.AfterFunc(10*time.Millisecond, func() {
			_, err := producer.Append(f.ctx(), text("x"))
			published <- err
		})
		got, err := b.Claim(f.ctx(), req)
		if err := errors.Join(err, <-published); err != nil {
			f.Fatal(err)
		}
		if len(got.Deliveries) == 0 {
			got = f.gather(b, request("a", 1), 1)
		}
		if d := got.Deliveries[0]; d.Attempt != 1 && !f.h.CountsUnstarted {
			f.Errorf("a message whose claim had enough came with attempt %d", d.Attempt)
		}
		f.ack(b, got.Deliveries...)
	}
}
