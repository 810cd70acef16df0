package postgres

import "time"

// WithSilence sets for how long the database may say nothing.
func WithSilence(opt Options, d time.Duration) Options {
	opt.silence = d
	return opt
}
