package redis_test

import (
	"testing"

	"github.com/weirmq/weir/tests/redistest"
)

// While a script counts, the server does nothing else, and from 7.2 on TIME stands still meanwhile.
func TestACountDoesNotKeepTheServerFromOthers(t *testing.T) {
	onEveryServer(t, func(t *testing.T, server *redistest.Server) {
		const n, behind = 4000, 3998
		c := server.Client()
		fill := `for i = ARGV[1], ARGV[1] + 99 do redis.call('XADD', KEYS[1], i, 'data', string.rep('x', 10000)) end return 1`
		for i := 1; i < n; i += 100 {
			if err := c.Eval(t.Context(), fill, []string{"k"}, i).Err(); err != nil {
				t.Fatal(err)
			}
		}
		// One has been removed, so what the server says of the others has to be verified.
		s := &stage{t: t, c: c, stream: "k", ids: []string{"1-0", "2-0"}}
		s.play("XGROUP CREATE K G #2; XDEL K #1")
		b := open(t, server.Addr(), "stream=k&group=g")
		first, err := b.Signal(t.Context(), 1_000_000)
		if err != nil {
			t.Fatal(err)
		}
		if first.Behind == behind {
			t.Errorf("one reading counts %d entries of 10 kB", behind)
		}
		counted := first.Behind
		for range 1000 {
			if counted == behind {
				return
			}
			next, err := b.Signal(t.Context(), 1_000_000)
			if err != nil {
				t.Fatal(err)
			}
			counted = next.Behind
		}
		t.Errorf("after all readings %d of %d are counted", counted, behind)
	})
}
