package redis_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
)

// A message that the server never takes is refused as such, with the setting that says
// so, and what is published beside it is not in doubt. Where the limit may not be asked for, the
// server's refusal says the same.
func TestAMessageAboveTheServersLimitIsTooLarge(t *testing.T) {
	const limit = 1 << 20
	large := string(make([]byte, limit+1))
	wide := map[string]string{"a": large[:limit], "b": large[:limit]}
	for _, version := range redistest.Versions() {
		for kind, args := range map[string][]string{
			"told":   nil,
			"hidden": {"--rename-command", "CONFIG", "secret"},
		} {
			t.Run(version+" "+kind, func(t *testing.T) {
				s := redistest.Start(t, redistest.Options{Version: version, Args: append([]string{
					"--proto-max-bulk-len", "1mb", "--client-query-buffer-limit", "2mb",
				}, args...)})
				b := open(t, s.Addr(), "stream=jobs")
				publish(t, b, 1)
				odd := map[string]backend.Message{
					"data":          {Data: []byte(large)},
					"a header":      {Headers: map[string]string{"note": large}},
					"data, keyed":   {Data: []byte(large), IdempotencyKey: "k"},
					"the whole":     {Headers: wide},
					"far too large": {Data: []byte(strings.Repeat(large, 20))},
				}
				if kind == "hidden" {
					delete(odd, "the whole") // the server closes without a word
				}
				for _, name := range slices.Sorted(maps.Keys(odd)) {
					_, err := b.Append(t.Context(), []backend.Message{odd[name]})
					if kind == "hidden" && errors.Is(err, backend.ErrOutcomeUnknown) && strings.Contains(err.Error(), "does not take") {
						continue // the server closed before its refusal arrived
					}
					if !errors.Is(err, backend.ErrTooLarge) || errors.Is(err, backend.ErrOutcomeUnknown) || backend.Retryable(err) {
						t.Errorf("%s: %v", name, err)
					} else if !strings.Contains(err.Error(), "proto-max-bulk-len") && !strings.Contains(err.Error(), "client-query-buffer-limit") {
						t.Errorf("%s: no setting is named: %v", name, err)
					}
				}
				if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte(large[:limit])}}); err != nil {
					t.Errorf("just at the limit: %v", err)
				}
				if kind == "hidden" {
					return
				}
				batch := []backend.Message{{Data: []byte("before")}, {Data: []byte(large)}, {Data: []byte("behind")}}
				if _, err := b.Append(t.Context(), batch); !errors.Is(err, backend.ErrTooLarge) || !strings.Contains(err.Error(), "message 1") {
					t.Errorf("in a batch: %v", err)
				}
				if n := s.Client().XLen(t.Context(), "jobs").Val(); n != 2 {
					t.Errorf("%d are stored, want the first and the one at the limit", n)
				}
			})
		}
	}
}
