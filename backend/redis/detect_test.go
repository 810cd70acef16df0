package redis

import "testing"

func TestAutoclaimIsNotUsedWhereItCrashes(t *testing.T) {
	for info, want := range map[string]bool{
		"redis_version:6.2.14\r\n":                        true,
		"redis_version:7.0.0\r\n":                         false,
		"redis_version:7.0.3\r\n":                         false,
		"redis_version:7.0.4\r\n":                         true,
		"redis_version:7.2.4\r\nvalkey_version:7.0.3\r\n": true,
	} {
		q := newInquiry(t.Context())
		q.info.SetVal("# Server\r\n" + info)
		q.commands.SetVal([]any{[]any{"xautoclaim"}, []any(nil)})
		if f, err := q.features(); err != nil || f.autoclaim != want {
			t.Errorf("%q: %+v, %v", info, f, err)
		}
	}
}
