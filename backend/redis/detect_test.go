package redis

import "testing"

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
