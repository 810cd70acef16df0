package kafka

import "time"

// WithOpening returns opt with another time for which brokers are asked before somebody is told.
func WithOpening(opt Options, limit time.Duration) Options {
	opt.opening = limit
	return opt
}
