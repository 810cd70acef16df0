package rounds

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirmq/weir/tests/oracle"
)

// rememberGone is how many dropped topics are looked for after a restart.
const rememberGone = 20

// verify reads every topic while nothing else runs, and settles the checker.
func (l *Loop) verify(ctx context.Context) error {
	if err := errors.Join(l.stayGone(ctx), l.routersStay(ctx)); err != nil {
		return err
	}
	absent, err := l.lookAgain(ctx)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	var queues []string // before their dead letters
	for _, t := range l.targets {
		if t.role == "churned" {
			continue
		}
		if !slices.Contains(absent, t) {
			queues = append(queues, t.name)
		}
		if t.cfg.DeadLetter != "" {
			names[t.cfg.DeadLetter] = true
		}
	}
	for name := range names {
		queues = append(queues, name)
	}
	events, err := l.readAll(ctx, queues)
	for _, e := range events {
		l.add(e)
	}
	l.checker.Settle()
	for _, t := range absent {
		err = errors.Join(err, l.must(l.client.Put(ctx, t.name, t.cfg)))
	}
	return err
}

// readAll reads topics with two readers at a time.
func (l *Loop) readAll(ctx context.Context, names []string) ([]oracle.Event, error) {
	var mu sync.Mutex
	var all []oracle.Event
	var failed error
	var wg sync.WaitGroup
	work := make(chan string)
	for range 2 {
		wg.Go(func() {
			for name := range work {
				events, err := l.client.readTopic(ctx, name)
				mu.Lock()
				all, failed = append(all, events...), errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	for _, name := range names {
		work <- name
	}
	close(work)
	wg.Wait()
	for _, t := range l.targets {
		for i := range all {
			if all[i].Topic == t.name {
				t.saw(all[i].Head)
			}
		}
	}
	if failed != nil {
		return all, failed
	}
	for _, name := range names { // and from somewhere in the middle
		var head uint64
		for i := range all {
			if all[i].Topic == name {
				head = max(head, all[i].Head)
			}
		}
		e, _, err := l.client.Diff(ctx, name, l.rnd.Uint64N(head+1), 100)
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// readTopic reads a topic from cursor 0 to its end, and its state.
func (c *Client) readTopic(ctx context.Context, name string) (events []oracle.Event, err error) {
	keep := func(e oracle.Event, err error) error {
		if err == nil && e.Outcome != oracle.OK {
			err = fmt.Errorf("%s of %s: %s", e.Kind, name, e.Note)
		}
		e.Quiet = true
		events = append(events, e)
		return err
	}
	for from := uint64(0); ; {
		e, caughtUp, err := c.Diff(ctx, name, from, 1000)
		if err := keep(e, err); err != nil {
			return events, err
		}
		if caughtUp {
			break
		}
		if e.Next <= from {
			return events, fmt.Errorf("diff of %s from %d does not get on: next_from_seq %d, head %d", name, from, e.Next, e.Head)
		}
		from = e.Next
	}
	e, err := c.State(ctx, name)
	return events, keep(e, err)
}

// stayGone checks that dropped topics did not come back, and drops what the
// churner left.
func (l *Loop) stayGone(ctx context.Context) error {
	l.gone = l.gone[max(0, len(l.gone)-rememberGone):]
	for _, name := range l.gone {
		e, err := l.client.State(ctx, name)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(e.Note, fmt.Sprint(http.StatusNotFound)) {
			return fmt.Errorf("topic %s was dropped, and is there after a restart: %s", name, e.Note)
		}
	}
	kept := l.targets[:0]
	for _, t := range l.targets {
		if t.role != "churned" {
			kept = append(kept, t)
			continue
		}
		if err := l.must(l.client.Drop(ctx, t.name)); err != nil {
			return err
		}
	}
	l.targets = kept
	return nil
}

// retire ends the life of a topic: a queue is first worked off completely, so
// that each of its jobs ends as acked or as dead letter.
func (l *Loop) retire(ctx context.Context, t *target) error {
	names := []string{t.name}
	if t.cfg.Queue && l.rnd.IntN(2) == 0 {
		if err := l.workOff(ctx, t); err != nil {
			return err
		}
	}
	if t.cfg.DeadLetter != "" {
		names = append(names, t.cfg.DeadLetter)
	}
	return l.judgeAndDrop(ctx, names)
}

// judgeAndDrop reads topics once more, settles the checker, and deletes them.
func (l *Loop) judgeAndDrop(ctx context.Context, names []string) error {
	events, err := l.readAll(ctx, names)
	for _, e := range events {
		l.add(e)
	}
	if err != nil {
		return err
	}
	l.checker.Settle()
	for _, name := range names {
		if err := l.must(l.client.Drop(ctx, name)); err != nil {
			return err
		}
		l.gone = append(l.gone, name)
	}
	return nil
}

// workOff claims and acks until a queue is empty.
func (l *Loop) workOff(ctx context.Context, t *target) error {
	deadline := time.Now().Add(15 * time.Second)
	for {
		e, err := l.client.Claim(ctx, t.name, "last", 1000, 5*time.Second)
		if err := l.must(e, err); err != nil {
			return err
		}
		if len(e.Jobs) > 0 {
			if err := l.must(l.client.Settle(ctx, oracle.Ack, t.name, "last", e.Jobs, 0, 0)); err != nil {
				return err
			}
			continue
		}
		s, err := l.client.State(ctx, t.name)
		if err := l.must(s, err); err != nil {
			return err
		}
		if s.Count == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("Q4 %s: %d jobs can be neither claimed nor acked", t.name, s.Count)
		}
		time.Sleep(10 * time.Millisecond) // until leases and delays run out
	}
}
