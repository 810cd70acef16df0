package wal

import (
	"context"
	"errors"
	"sync"
	"time"
)

// roomQueue holds those who wait in Reserve, first come first served.
type roomQueue struct {
	sync.Mutex
	waiting []chan struct{}
}

// Reserve takes one of the slots that bound what waits to be written. While
// none is free, too many full segments wait for the store, or too much is
// unsynced, it waits: at most timeout, then it returns ErrFull. It returns
// ErrReadOnly at once while no file can be written.
func (l *Log) Reserve(ctx context.Context, timeout time.Duration) error {
	if l.TryReserve() {
		return nil
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		wait := make(chan struct{}, 1)
		l.room.Lock()
		l.room.waiting = append(l.room.waiting, wait)
		l.roomWaiting.Add(1)
		l.room.Unlock()
		if l.TryReserve() {
			l.leaveRoom(wait)
			return nil
		}
		if err := l.refusal(); err != nil {
			l.leaveRoom(wait)
			return err
		}
		select {
		case <-wait:
			if l.TryReserve() {
				return nil
			}
		case <-timer.C:
			l.leaveRoom(wait)
			l.m.submitFull.Add(1)
			return ErrFull
		case <-ctx.Done():
			l.leaveRoom(wait)
			return ctx.Err()
		}
	}
}

// Unreserve gives back a slot that was not used for an Append.
func (l *Log) Unreserve() { l.freeSlots(1) }

// TryReserve takes a slot if that needs no waiting, and reports whether it did.
func (l *Log) TryReserve() bool {
	if l.blocked.Load() != 0 {
		return false
	}
	// Never one too many, not even for a moment: giving it back would wake a
	// waiter in vain, whose own try would wake the next.
	for {
		n := l.slots.Load()
		if n >= int64(l.opt.Slots) {
			return false
		}
		if l.slots.CompareAndSwap(n, n+1) {
			if n+1 > l.m.depthPeak.Load() {
				l.m.depthPeak.Store(n + 1)
			}
			return true
		}
	}
}

func (l *Log) refusal() error {
	switch b := l.blocked.Load(); {
	case b&blockClosed != 0:
		return ErrClosed
	case b&blockReadOnly != 0:
		l.mu.Lock()
		defer l.mu.Unlock()
		return errors.Join(ErrReadOnly, l.mu.cause)
	}
	return nil
}

func (l *Log) freeSlots(n int) {
	l.slots.Add(int64(-n))
	if l.roomWaiting.Load() > 0 {
		l.wakeRoom(n)
	}
}

// wakeRoom wakes up to n callers waiting in Reserve, to try again.
func (l *Log) wakeRoom(n int) {
	l.room.Lock()
	defer l.room.Unlock()
	n = min(n, len(l.room.waiting))
	for _, ch := range l.room.waiting[:n] {
		ch <- struct{}{}
	}
	l.room.waiting = l.room.waiting[n:]
	if len(l.room.waiting) == 0 {
		l.room.waiting = nil
	}
	l.roomWaiting.Add(int32(-n))
}

// leaveRoom takes wait out of the queue; if it was woken already the next one
// is woken in its place.
func (l *Log) leaveRoom(wait chan struct{}) {
	l.room.Lock()
	for i, ch := range l.room.waiting {
		if ch == wait {
			l.room.waiting = append(l.room.waiting[:i:i], l.room.waiting[i+1:]...)
			l.roomWaiting.Add(-1)
			l.room.Unlock()
			return
		}
	}
	l.room.Unlock()
	l.wakeRoom(1)
}

func (l *Log) block(bit uint32) { l.blocked.Or(bit) }

func (l *Log) unblock(bit uint32) {
	if l.blocked.And(^bit)&bit != 0 {
		l.wakeAll()
	}
}

// wakeAll wakes all callers waiting in Reserve, to look again.
func (l *Log) wakeAll() { l.wakeRoom(1 << 30) }
