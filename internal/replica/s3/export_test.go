package s3

import "time"

// SetSilence sets for how long a call may stand still.
func (s *Store) SetSilence(d time.Duration) { s.silence = d }
