package replica

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/crash/rounds"
)

// succession is a leader and its standby as one server under attack: when the leader is
// killed and its disk removed, the standby is what starts.
type succession struct {
	*pair
	leads, stands *server
	n             int
}

func (s *succession) next() *server {
	s.n++
	return s.pair.start(fmt.Sprint(s.n), "--standby")
}

func (s *succession) Start(ctx context.Context) (string, error) {
	if s.stands == nil {
		s.stands = s.next()
	}
	end := time.After(time.Minute)
	for !s.stands.ready() {
		select {
		case <-s.stands.Exited():
			return "", fmt.Errorf("the standby has ended:\n%s", s.stands.Stderr.String())
		case <-end:
			return "", fmt.Errorf("the standby does not take over:\n%s", s.stands.Stderr.String())
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	s.leads, s.stands = s.stands, s.next()
	return s.leads.base(), nil
}

// StartKilled kills the standby while it takes over.
func (s *succession) StartKilled(d time.Duration) error {
	if s.stands == nil {
		s.stands = s.next()
	}
	time.Sleep(d)
	lose(s.stands)
	s.stands = s.next()
	return nil
}

func (s *succession) Kill() {
	if s.leads != nil {
		lose(s.leads)
	}
}

func lose(s *server) {
	s.Signal(syscall.SIGKILL)
	<-s.Exited()
	os.RemoveAll(s.data)
}

// TestStandbyGoesOnWithoutALoss kills leaders under load, and now and then the standby that
// takes over, and judges the one that leads then.
func TestStandbyGoesOnWithoutALoss(t *testing.T) {
	t.Parallel()
	for left := *lost; left > 0 && !t.Failed(); left -= most {
		n := min(left, most)
		s := &succession{pair: newPair(t, true, left%2 == 0)}
		begin := time.Now()
		sum, err := rounds.Run(t.Context(), rounds.Options{
			Host: s, Rounds: n, Latest: begin.Add(time.Duration(n) * 20 * time.Second), AtLeast: 1,
			Seed: uint64(begin.UnixNano()), Power: true, DiskFlush: time.Second, HistoryDir: t.ArtifactDir(),
		})
		t.Log(sum)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range sum.Violations {
			t.Error(v)
		}
		s.stands.Signal(syscall.SIGKILL)
	}
}
