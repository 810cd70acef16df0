package replicatest

import (
	"context"
	"errors"
	"sync"
)

// Plan is which calls suffer which faults. Its Inject belongs to a handle whose
// calls that change something go Through it.
type Plan struct {
	mu     sync.Mutex
	faults []*planned
}

type planned struct {
	fault   Fault
	left    int // -1: all
	removed chan struct{}
	late    sync.WaitGroup // calls that get there after their context has ended
}

// What Through returns of calls that suffered a fault.
var (
	ErrLost = errors.New("planted: the connection is gone")
	ErrBusy = errors.New("planted: 503 SlowDown")
)

// Inject is an Inject.
func (p *Plan) Inject(f Fault, times int) (remove func()) {
	one := &planned{fault: f, left: times, removed: make(chan struct{})}
	if times == 0 {
		one.left = -1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, one)
	return sync.OnceFunc(func() {
		p.mu.Lock()
		one.left = 0
		p.mu.Unlock()
		close(one.removed)
		one.late.Wait()
	})
}

// next returns the fault that the next call suffers.
func (p *Plan) next() *planned {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.faults {
		if one.left != 0 {
			one.left--
			if one.fault == Hold {
				one.late.Add(1)
			}
			return one
		}
	}
	return nil
}

// Through makes a call.
func (p *Plan) Through(ctx context.Context, call func() error) error {
	one := p.next()
	switch {
	case one == nil:
		return call()
	case one.fault == LoseAnswer:
		_ = call()
		return ErrLost
	case one.fault == LoseCall:
		return ErrLost
	case one.fault == Busy:
		return ErrBusy
	}
	done := make(chan error, 1)
	go func() {
		defer one.late.Done()
		<-one.removed
		done <- call()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
