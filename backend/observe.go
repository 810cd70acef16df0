package backend

import (
	"context"
	"time"
)

// Observer is a backend that shows people who holds what, and what was stored last.
type Observer interface {
	// Observe reads up to most of each kind. It changes nothing.
	Observe(ctx context.Context, most int) (Observed, error)
}

// Observed is what an Observer sees. A nil slice is not known; an empty one is none.
type Observed struct {
	Groups    []GroupState
	Consumers []ConsumerState
	Held      []Held   // the oldest first
	Last      []Record // the newest first
}

// GroupState is one group of a stream.
type GroupState struct {
	Name      string
	Consumers int64
	Pending   int64
	Lag       *int64 // nil if unknown
}

// ConsumerState is one consumer of the stream's group.
type ConsumerState struct {
	Name    string
	Pending int64
	Idle    time.Duration // since its last command
}

// Held is one message that was delivered and is not finished.
type Held struct {
	ID         string
	Consumer   string
	Idle       time.Duration // since its delivery or last sign of life
	Deliveries int64
}
