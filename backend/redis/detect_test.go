package redis

import (
	"testing"
	"time"
)

func TestWhatAVersionDoesWrongIsNotUsed(t *testing.T) {
	for info, want := range map[string]struct{ autoclaim, minid bool }{
		"":                        {true, false},
		"redis_version:6.2.0\r\n": {false, false},
		"redis_version:6.2.1\r\n": {false, false},
		"redis_version:6.2.6\r\n": {true, false},
		"redis_version:6.2.7\r\n": {true, true},
		"redis_version:6.3.4\r\n": {true, false},
		"redis_version:7.0.0\r\n": {false, true},
		"redis_version:7.0.3\r\n": {false, true},
		"redis_version:7.0.4\r\n": {true, true},
		"redis_version:7.2.4\r\nvalkey_version:7.0.3\r\n": {true, true},
	} {
		q := newInquiry(t.Context())
		q.info.SetVal("# Server\r\n" + info)
		q.commands.SetVal([]any{[]any{"xautoclaim"}, []any(nil)})
		if f, err := q.features(); err != nil || f.autoclaim != want.autoclaim || f.minid != want.minid {
			t.Errorf("%q: %+v, %v", info, f, err)
		}
	}
}

// A process that starts before its clock is set, by a battery clock that is hours ahead, must
// not believe for hours what it knew of replicas and durability then.
func TestWhatIsKnownOfAServerDoesNotStayWhenTheClockIsSetBack(t *testing.T) {
	var r replicas
	for age, fresh := range map[time.Duration]bool{countEvery / 10: true, 2 * countEvery: false, -time.Hour: false} {
		if r.at.Store(time.Now().Add(-age).UnixNano()); r.fresh() != fresh {
			t.Errorf("read %s ago by the clock: fresh is %v", age, !fresh)
		}
	}
	if r.at.Store(0); r.fresh() {
		t.Error("what was never read is fresh")
	}
}
