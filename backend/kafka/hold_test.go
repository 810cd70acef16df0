package kafka_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
)

// TestALateExtendObeysItsContext while the brokers do not answer its renewal.
func TestALateExtendObeysItsContext(t *testing.T) {
	t.Parallel()
	for kind, key := range map[string]kmsg.Key{groupShare: kmsg.ShareAcknowledge, groupClassic: kmsg.OffsetCommit} {
		f := newFake(t, kfake.BrokerConfigs(map[string]string{"group.share.record.lock.duration.ms": "15000"}))
		b := f.open(kind)
		f.publish(b, 0, 1)
		list := gather(t, b, 1)
		goOn := make(chan struct{})
		f.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
			f.KeepControl()
			f.SleepControl(func() { <-goOn })
			return nil, nil, false
		})
		kafka.StandStill(b)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		watch := stopwatch()
		lost, err := b.Extend(ctx, leasesOf(list), time.Minute)
		if took := watch(); !errors.Is(err, context.DeadlineExceeded) || len(lost) > 0 || took > 2*time.Second {
			t.Errorf("in a %s group: lost %v, %v after %s", kind, lost, err, took)
		}
		cancel()
		close(goOn)
		if lost, err := b.Extend(t.Context(), leasesOf(list), time.Minute); err != nil || len(lost) > 0 {
			t.Errorf("in a %s group, again: lost %v, %v", kind, lost, err)
		}
	}
}

// TestAFetchThatIsLateForItsHandle begins no share session behind the end of the others: who is next gets the
// messages at once, and for the first time.
func TestAFetchThatIsLateForItsHandle(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupShare)
	f.publish(b, 0, 1)
	if lost, err := b.Ack(t.Context(), leasesOf(gather(t, b, 1))); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	f.publish(b, 1, 2)
	asked, left, goOn := make(chan struct{}, 100), make(chan struct{}, 100), make(chan struct{})
	f.Fault(trouble{key: kmsg.ShareFetch, err: kerr.ShareSessionNotFound, whole: true}.fault(1)) // the next fetch looks for the leaders
	f.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		f.SleepControl(func() { asked <- struct{}{}; <-goOn })
		return nil, nil, false
	})
	f.ControlKey(int16(kmsg.ShareGroupHeartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if req.(*kmsg.ShareGroupHeartbeatRequest).MemberEpoch < 0 {
			left <- struct{}{}
		}
		return nil, nil, false
	})
	claimed, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, Block: 10 * time.Second, ReclaimAfter: time.Minute})
		claimed <- err
	}()
	<-asked
	go func() { closed <- b.Close() }()
	<-left
	close(goOn)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := <-claimed; !errors.Is(err, backend.ErrClosed) {
		t.Errorf("the claim: %v", err)
	}
	if d := gather(t, f.open(groupShare), 1)[0]; d.Attempt != 1 {
		t.Errorf("the next one has it with attempt %d", d.Attempt)
	}
}

// TestWhatALostShareSessionHeldIsLost at once, whatever the answer that shows it: the broker hands it out again.
func TestWhatALostShareSessionHeldIsLost(t *testing.T) {
	t.Parallel()
	for _, err := range []*kerr.Error{kerr.ShareSessionNotFound, kerr.InvalidShareSessionEpoch, kerr.UnknownServerError} {
		f := newFake(t, kfake.BrokerConfigs(map[string]string{"group.share.record.lock.duration.ms": "15000"}))
		b := f.open(groupShare)
		f.publish(b, 0, 3)
		leases := leasesOf(gather(t, b, 3))
		f.Fault(trouble{key: kmsg.ShareAcknowledge, err: err, whole: true}.fault(1))
		_, _ = b.Ack(t.Context(), leases[:1])
		if lost, failed := b.Extend(t.Context(), leases[1:], time.Minute); len(lost) != 2 || failed != nil {
			t.Errorf("%s: an extension of the 2 others says: lost %v, %v", err.Message, lost, failed)
		}
	}
}

// TestWhatARenewalIsRefusedIsLost, and nothing else.
func TestWhatARenewalIsRefusedIsLost(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupShare)
	f.publish(b, 0, 3)
	list := gather(t, b, 3)
	f.ControlKey(int16(kmsg.ShareAcknowledge), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		return refusal(req.(*kmsg.ShareAcknowledgeRequest), list[1].ID, kerr.InvalidRecordState), nil, true
	})
	f.soon(func() string {
		lost, err := b.Extend(t.Context(), leasesOf(list), time.Minute)
		switch {
		case err == nil && len(lost) == 1 && lost[0] == list[1].ID:
			return ""
		case err != nil || len(lost) > 0:
			t.Fatalf("lost %v, %v", lost, err)
		}
		return "the one that is another's by now is extended"
	})
}

// TestAnAckThatIsRefusedNamesTheRight that the user lacks, as when it is taken away from a worker at work.
func TestAnAckThatIsRefusedNamesTheRight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		trouble
		want string
	}{
		{trouble{key: kmsg.ShareAcknowledge, err: kerr.TopicAuthorizationFailed}, `lacks READ on topic "jobs"`},
		{trouble{key: kmsg.ShareAcknowledge, err: kerr.GroupAuthorizationFailed, whole: true}, `lacks READ on group "g"`},
	} {
		f := newFake(t)
		b := f.open(groupShare)
		f.publish(b, 0, 1)
		list := gather(t, b, 1)
		f.Fault(c.fault(1))
		if _, err := b.Ack(t.Context(), leasesOf(list)); !errors.Is(err, backend.ErrOutcomeUnknown) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.trouble, err)
		}
	}
}
