package fake

// delay has written records wait for their first claim. s.mu is held.
func (s *Server) delay(t *topic, first uint64, recs []Record) {
	now, longest := s.ms(), int64(0)
	for i := range recs {
		longest = max(longest, recs[i].Delay)
	}
	for i := range recs {
		d := recs[i].Delay
		if s.Break == DelayBatch {
			d = longest
		}
		if d == 0 {
			continue
		}
		j := t.job(first + uint64(i))
		j.delay, j.due = d, now+d
		switch {
		case s.Break == IgnoreDelay && s.rng.IntN(20) == 0:
			j.due = 0
		case s.Break == NeverDue && s.rng.IntN(20) == 0:
			j.due += 1 << 40
		}
		j.notBefore = j.due
	}
}

// crashJobs ends what a crash ends: leases that are not durable, and no delay of a record.
func (t *topic) crashJobs(now int64, breaks string) {
	for seq, j := range t.jobs {
		if !t.cfg.LeasesDurable {
			*j = job{notBefore: j.due, delay: j.delay, due: j.due}
		}
		switch {
		case breaks == ForgetDelay:
			j.notBefore = 0
		case breaks == DelayAgain && j.due > 0:
			j.due = now + 10*j.delay
			j.notBefore = j.due
		}
		if *j == (job{}) {
			delete(t.jobs, seq)
		}
	}
}
