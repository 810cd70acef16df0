package s3

import "time"

// SetSilence sets for how long an answer may stand still.
func (s *Store) SetSilence(d time.Duration) { s.silence = d }
