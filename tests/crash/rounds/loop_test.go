package rounds

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/oracle/fake"
)

// fakeHost runs the fake server; a kill cuts its connections.
type fakeHost struct {
	server *fake.Server
	http   *httptest.Server
	power  bool
}

func (h *fakeHost) Start(context.Context) (string, error) {
	h.http = httptest.NewServer(h.server)
	return h.http.URL, nil
}

func (h *fakeHost) StartKilled(time.Duration) error {
	h.server.Crash(h.power)
	return nil
}

func (h *fakeHost) Kill() {
	h.http.CloseClientConnections()
	h.http.Close()
	h.server.Crash(h.power)
}

func runFake(t *testing.T, breaks string, power bool, rounds int) (*Summary, error) {
	t.Helper()
	host := &fakeHost{server: fake.New(time.Now), power: power}
	host.server.Break = breaks
	backup := func(context.Context, string) (Restore, error) {
		copied := httptest.NewServer(host.server.Copy())
		t.Cleanup(copied.Close)
		return func(context.Context) (string, func(), error) { return copied.URL, copied.Close, nil }, nil
	}
	return Run(t.Context(), Options{
		Host: host, Rounds: rounds, Latest: time.Now().Add(8 * time.Minute), Seed: 7, Power: power,
		DiskFlush: time.Second, HistoryDir: t.TempDir(), Backup: backup,
	})
}

func TestLoopPassesAServerThatKeepsItsPromises(t *testing.T) {
	for _, power := range []bool{false, true} {
		sum, err := runFake(t, "", power, 4)
		if err := errors.Join(err, sum.Err()); err != nil {
			t.Errorf("power cuts %v: %v", power, err)
			for _, v := range sum.Violations[:min(10, len(sum.Violations))] {
				t.Log(v)
			}
		}
		if sum.Rounds == 0 {
			t.Errorf("power cuts %v: no round counted", power)
		}
		t.Log(sum)
	}
}

// A slow machine takes longer; it does not show less.
func TestLoopGoesOnUntilEnoughRoundsCount(t *testing.T) {
	host := &fakeHost{server: fake.New(time.Now)}
	past := time.Now().Add(-time.Second)
	for _, c := range []struct {
		opt  Options
		want int
	}{
		{Options{Deadline: past}, 0},
		{Options{Deadline: past, AtLeast: 2}, 2},
		{Options{Deadline: past, AtLeast: 2, Latest: past}, 0},
	} {
		c.opt.Host, c.opt.Rounds, c.opt.Seed, c.opt.DiskFlush, c.opt.HistoryDir = host, 4, 7, time.Second, t.TempDir()
		sum, err := Run(t.Context(), c.opt)
		if err != nil || sum.Rounds != c.want {
			t.Errorf("deadline over %v, latest over %v, at least %d rounds: %d counted, %v",
				!c.opt.Deadline.IsZero(), !c.opt.Latest.IsZero(), c.opt.AtLeast, sum.Rounds, err)
		}
	}
}

func TestLoopFindsABrokenPromise(t *testing.T) {
	for _, breaks := range []string{
		fake.LoseFsync, fake.LoseDisk, fake.ReuseSeqs, fake.StaleAck, fake.DoubleLease, fake.ForgetKeys,
		fake.EvictBySeq, fake.SilentLoss, fake.HalfBatch, fake.NullData, fake.ExtraDelivery, fake.LoseDeadLetter,
		fake.SkipCopy, fake.CopyTwice, fake.KeepKeys, fake.Undead, fake.ForgetConfig, fake.IgnoreTTL, fake.PartialBackup, fake.LateBackup,
		fake.IgnoreDelay, fake.ForgetDelay, fake.DelayAgain, fake.DelayBatch, fake.NeverDue,
	} {
		t.Run(breaks, func(t *testing.T) {
			t.Parallel()
			sum, err := runFake(t, breaks, breaks == fake.HalfBatch, 25)
			if err == nil && len(sum.Violations) == 0 {
				t.Errorf("not found in %d rounds", sum.Rounds+sum.Repeated)
				return
			}
			t.Log(sum.Rounds, sum.Err(), err)
		})
	}
}
