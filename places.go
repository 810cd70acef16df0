package weir

import (
	"sync"
	"time"

	"github.com/weirmq/weir/internal/admission"
)

// What the Streams of one process share if they say where they are: those on the same
// stream a window, those that are also of the same group a controller.
var (
	windows     = places[*window]{make: newWindow}
	controllers = places[*admission.Controller]{make: newController}
)

func newController() *admission.Controller { return admission.New(30 * time.Second) }

// places holds one T per place while anybody uses it.
type places[T any] struct {
	make func() T

	mu  sync.Mutex
	all map[string]*tenants[T]
}

type tenants[T any] struct {
	of    T
	users int
}

// join returns the T of a place. It is forgotten when all who joined have left.
func (p *places[T]) join(place string) (shared T, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]*tenants[T]{}
	}
	t := p.all[place]
	if t == nil {
		t = &tenants[T]{of: p.make()}
		p.all[place] = t
	}
	t.users++
	return t.of, sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(p.all, place)
		}
	})
}
