package kafka_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
)

// removes does what retention does.
func (f *fake) removes(before int64) {
	f.Helper()
	if err := f.DeleteRecords("jobs", 0, before); err != nil {
		f.Fatal(err)
	}
}

// leaves has a worker begin a group, and end, with so many of the first messages finished.
func (f *fake) leaves(kind string, published, finished int) {
	f.Helper()
	worker := f.open(kind)
	f.publish(worker, 0, published)
	f.take(worker, finished)
	await(f, "the commit", func() bool { return left(f.T, worker) == int64(published-finished) })
	if err := worker.Close(); err != nil {
		f.Fatal(err)
	}
}

// TestWhatIsRemovedIsSharedByWhoFindItAtOnce: of two that look while retention goes on, the second tells what the first
// has not.
func TestWhatIsRemovedIsSharedByWhoFindItAtOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		f := newFake(t)
		f.leaves(groupClassic, 20, 3)
		both := []*kafka.Backend{f.open(groupClassic), f.open(groupClassic)}
		noted := make(chan chan struct{})
		f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			f.KeepControl()
			f.SleepControl(func() {
				goOn := make(chan struct{})
				noted <- goOn
				<-goOn
			})
			return nil, nil, false
		})
		var lost atomic.Int64
		var told sync.WaitGroup
		var notes []chan struct{}
		ended := make(chan struct{}, len(both))
		for i, b := range both {
			f.removes(int64(7 + 2*i))
			told.Go(func() {
				got, err := b.Retained(t.Context(), true)
				if err != nil {
					t.Error(err)
				}
				for _, gap := range got.Gaps {
					lost.Add(*gap.Missed)
				}
				ended <- struct{}{}
			})
			notes = append(notes, <-noted)
		}
		for _, goOn := range notes {
			close(goOn)
			<-ended
		}
		told.Wait()
		if n := lost.Load(); n != 6 {
			t.Errorf("6 are lost, %d are told", n)
		}
		found, err := both[0].Examine(t.Context())
		if err != nil || !slices.ContainsFunc(found, func(f backend.Finding) bool {
			return f.Code == "trimmed_unread" && f.Problem == `6 messages were removed before group "g" had finished them`
		}) {
			t.Errorf("the doctor finds %+v, %v", found, err)
		}
	}
}

// TestALossThatCouldNotBeNotedIsTold, though the group has gone on behind it meanwhile.
func TestALossThatCouldNotBeNotedIsTold(t *testing.T) {
	t.Parallel()
	for _, kind := range groupTypes {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.leaves(kind, 20, 3)
			b := f.open(kind)
			f.removes(7)
			refused := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "jobs.weir", Err: kerr.PolicyViolation, Count: -1})
			for range 2 {
				if got, err := b.Retained(t.Context(), true); err == nil {
					t.Errorf("%q are told", gapsOf(got))
				}
				f.take(b, 5)
				await(t, "the commit", func() bool { return left(t, b) <= 8 })
			}
			refused.Remove()
			told := looked(t, b) + looked(t, b)
			if told != "4 from 0:3 to 0:6" {
				t.Errorf("%q are told", told)
			}
		})
	}
}

// TestWhatAWorkerPassesOverIsTold: retention overtakes one that is busy, which goes on behind what is gone before any
// pool looks.
func TestWhatAWorkerPassesOverIsTold(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b, beside := f.open(groupClassic), f.open(groupClassic)
	f.publish(b, 0, 10)
	f.take(b, 10)
	if told := looked(t, b) + looked(t, beside); told != "" {
		t.Errorf("%q are told", told)
	}
	fetches, goOn := make(chan struct{}, 1), make(chan struct{})
	f.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if req.(*kmsg.FetchRequest).MaxWaitMillis > 0 { // that of a member
			select {
			case fetches <- struct{}{}:
			default:
			}
			f.SleepControl(func() { <-goOn })
		}
		return nil, nil, false
	})
	<-fetches
	f.publish(b, 10, 30)
	f.removes(25)
	close(goOn)
	f.take(b, 5)
	if told := looked(t, beside) + looked(t, b) + looked(t, b) + looked(t, beside); told != "15 from 0:10 to 0:24" {
		t.Errorf("15 were removed before the worker came, and %q are told", told)
	}
}

// TestWhatAWorkerLeavesIsToldByTheNext: retention has removed what a worker had, and all had looked while it was there.
func TestWhatAWorkerLeavesIsToldByTheNext(t *testing.T) {
	t.Parallel()
	for _, looks := range []int{0, 2} { // before the next one begins
		f := newFake(t)
		worker, next := f.open(groupClassic), f.open(groupClassic)
		f.publish(worker, 0, 20)
		list := gather(t, worker, 8)
		settled(t, worker, []*backend.Delivery{list[0], list[1], list[4]})
		f.says(`"fetched":{"0":20}`)
		for start := range int64(3) {
			f.removes(3 * start)
			if told := looked(t, next); told != "" {
				t.Errorf("a worker has all of them, and %q are told", told)
			}
		}
		f.crash(worker)
		told := ""
		for range looks {
			told += looked(t, next)
		}
		f.take(next, 14)
		if told += looked(t, next) + looked(t, next); told != "3 from 0:2 to 0:5" {
			t.Errorf("3 are lost, and %q are told", told)
		}
	}
}

// TestWhatIsOnItsWayToAWorkerIsNotLost: its client has what it has no room for, and hands it over though it is stored no
// more.
func TestWhatIsOnItsWayToAWorkerIsNotLost(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	client := f.client(kgo.MaxBufferedRecords(mostAhead))
	put := func(n int) {
		t.Helper()
		records := make([]*kgo.Record, n)
		for i := range records {
			records[i] = &kgo.Record{Topic: "jobs", Value: []byte("x")}
		}
		if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	const first = mostAhead + 4000
	put(first)
	var seen polled
	b, beside := f.open(groupClassic, kgo.WithHooks(&seen)), f.open(groupClassic)
	f.take(b, 1)
	await(t, "as many as it takes", func() bool { return seen.Load() >= mostAhead })
	f.says(`"fetched":{"0":1`)
	put(10)
	f.removes(first + 5)
	if told := looked(t, beside); told != "" {
		t.Errorf("before the worker comes there, %q are told", told)
	}
	f.take(b, first+4)
	if told := looked(t, b) + looked(t, beside); told != fmt.Sprintf("5 from 0:%d to 0:%d", first, first+4) {
		t.Errorf("5 are lost, and %q are told", told)
	}
}
