package embedded

import (
	"context"
	"sync"

	"github.com/weirmq/weir/internal/engine"
)

// shared is an engine that several backends of this process use.
type shared struct {
	key    string
	engine *engine.Engine
	late   sync.WaitGroup // verbs whose callers may be gone
	users  int
}

// engines holds the open engines. The turn is held while an engine opens or closes, so
// that no directory is opened twice.
var engines = struct {
	turn chan struct{}
	open map[string]*shared
}{make(chan struct{}, 1), map[string]*shared{}}

// share returns the engine known as key, opening it if necessary. It waits for other
// engines to open or close until ctx ends.
func share(ctx context.Context, key string, opt engine.Options) (*shared, error) {
	select {
	case engines.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-engines.turn }()
	s := engines.open[key]
	if s == nil {
		e, err := engine.Open(ctx, opt)
		if err != nil {
			return nil, heldError(err)
		}
		s = &shared{key: key, engine: e}
		engines.open[key] = s
	}
	s.users++
	return s, nil
}

// release closes the engine when its last user is gone.
func (s *shared) release() error {
	engines.turn <- struct{}{}
	defer func() { <-engines.turn }()
	if s.users--; s.users > 0 {
		return nil
	}
	s.late.Wait()
	delete(engines.open, s.key)
	return s.engine.Close()
}
