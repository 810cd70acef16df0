package backendtest

import (
	"sync"
	"testing"

	"github.com/weirmq/weir/backend"
)

// The suite itself is tested on the fake: with it every case has to pass.
func TestFakePassesTheSuite(t *testing.T) {
	var mu sync.Mutex
	streams := map[string]*Fake{}
	open := func(_ testing.TB, stream string) backend.Backend {
		mu.Lock()
		defer mu.Unlock()
		if f, known := streams[stream]; known {
			return f.Again()
		}
		streams[stream] = NewFake(FakeOptions{Stream: stream})
		return streams[stream]
	}
	inject := func(fault Fault) func(t testing.TB, stream string) (backend.Backend, func() func()) {
		return func(t testing.TB, stream string) (backend.Backend, func() func()) {
			f := open(t, stream).(*Fake)
			return f, func() func() {
				var removes []func()
				for _, op := range []Op{OpAppend, OpClaim, OpExtend, OpAck, OpNack, OpDeadLetter, OpStats, OpSignal, OpPublishSignal, OpRead, OpList, OpRedrive, OpTrim} {
					removes = append(removes, f.Inject(op, fault))
				}
				return func() {
					for _, remove := range removes {
						remove()
					}
				}
			}
		}
	}
	Run(t, Harness{
		Name: "the fake", Open: open, CreatesStream: true, KeepsErrors: true,
		Faulty:      inject(Fault{LoseAnswer: true, Hang: true}),
		Unreachable: inject(Fault{Err: backend.ErrUnavailable}),
	})
}
