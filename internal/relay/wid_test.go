package relay_test

import (
	"net/http"
	"testing"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// A wid holds its session, so that nobody but a relay may make or change one, and it serves the
// key alone that it was made with.
func TestASessionOfARelayIsItsMakersAsItWasMade(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "key-a:r,key-b:r")
		p.write("a", 1, 10, api.Fsync)
		path := p.watch("key-a", "a")
		changed := []byte(path)
		at := &changed[len(changed)-5] // in its signature
		if *at != 'A' {
			*at = 'A'
		} else {
			*at = 'B'
		}
		for what, c := range map[string]struct {
			key, path string
			want      int
		}{
			"the key that made it":         {"key-a", path, http.StatusOK},
			"another key that may read it": {"key-b", path, http.StatusUnauthorized},
			"no key":                       {"", path, http.StatusUnauthorized},
			"the key, but it was changed":  {"key-a", string(changed), http.StatusNotFound},
		} {
			resp := p.do(c.key, "GET", c.path, "", "")
			resp.Body.Close()
			if resp.StatusCode != c.want {
				t.Errorf("%s: %d, want %d", what, resp.StatusCode, c.want)
			}
		}
	})
}
