package weir

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
)

func known(n int64) *int64 { return &n }

func TestPressureIsWrittenAsTenFieldsInOrder(t *testing.T) {
	at := time.UnixMilli(1771090569852)
	cases := []struct {
		name string
		in   Pressure
		want string
	}{
		{"idle", Pressure{"deepoj:jobs", "deepoj:workers", backend.Stats{At: at, Lag: known(0), OldestSource: backend.AgeNone}},
			`{"ts_ms":1771090569852,"stream_key":"deepoj:jobs","group":"deepoj:workers","xlen":0,"pending":0,"lag":0,"lag_valid":true,"oldest_age_ms":0,"oldest_age_source":"none","approx":false}`},
		{"backlog", Pressure{"deepoj:jobs", "deepoj:workers", backend.Stats{At: at, XLen: 30, Lag: known(30), OldestAge: 130220*time.Millisecond + 900*time.Microsecond, OldestSource: backend.AgeBacklog, Approx: true}},
			`{"ts_ms":1771090569852,"stream_key":"deepoj:jobs","group":"deepoj:workers","xlen":30,"pending":0,"lag":30,"lag_valid":true,"oldest_age_ms":130220,"oldest_age_source":"backlog","approx":true}`},
		{"unknown lag with entries that wait", Pressure{"s", "g", backend.Stats{At: at, XLen: 9, OldestAge: time.Second, OldestSource: backend.AgeBacklog, Approx: true}},
			`{"ts_ms":1771090569852,"stream_key":"s","group":"g","xlen":9,"pending":0,"lag":null,"lag_valid":false,"oldest_age_ms":1000,"oldest_age_source":"backlog","approx":true}`},
		{"unknown lag, odd names, an age from the future", Pressure{"a\"<b>&\n", "g", backend.Stats{At: at, XLen: 1, Pending: 1, OldestAge: -time.Second, OldestSource: backend.AgeUnknown, Approx: true}},
			`{"ts_ms":1771090569852,"stream_key":"a\"<b>&\n","group":"g","xlen":1,"pending":1,"lag":null,"lag_valid":false,"oldest_age_ms":0,"oldest_age_source":"unknown","approx":true}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			line := c.in.AppendJSON(nil)
			if string(line) != c.want {
				t.Errorf("got  %s\nwant %s", line, c.want)
			}
			if !json.Valid(line) {
				t.Error("not valid JSON")
			}
		})
	}
}

func TestUnknownLagIsNeverCountedAsNoBacklog(t *testing.T) {
	p := Pressure{Stats: backend.Stats{XLen: 12, Pending: 3, Behind: 9, OldestSource: backend.AgeUnknown}}
	if n, sure := p.Backlog(); n != 12 || sure {
		t.Errorf("backlog of a stream without lag = %d, %v; want the 3 that are pending and the 9 that were counted, not known", n, sure)
	}
	m := p.Measurement()
	if m.Lag != nil || m.OldestAge != nil || m.DeadLetters != nil || m.Depth != 12 || *m.Pending != 3 {
		t.Errorf("measurement %+v", m)
	}
	p.Lag, p.OldestSource = known(4), backend.AgeBacklog
	if n, sure := p.Backlog(); n != 7 || !sure {
		t.Errorf("backlog = %d, %v; want 7", n, sure)
	}
}

// What is not due takes room of producers: the depth that metrics show has to be the one that they are refused for.
func TestTheMeasuredDepthIncludesWhatIsNotDue(t *testing.T) {
	p := Pressure{Stats: backend.Stats{XLen: 12, Pending: 1, Lag: known(2), Delayed: 9}}
	if m := p.Measurement(); m.Depth != 12 || *m.Lag != 2 {
		t.Errorf("depth %d and lag %d of 9 messages that are not due, 2 that wait and 1 in work; want 12 and 2", m.Depth, *m.Lag)
	}
	if n, sure := p.Backlog(); n != 3 || !sure {
		t.Errorf("backlog %d, %v; want the 3 that workers have to do now", n, sure)
	}
}
