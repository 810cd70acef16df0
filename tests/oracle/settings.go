package oracle

// setting is one configuration of a topic, and when it came into force.
type setting struct {
	lo, hi int64 // sent and answered
	sure   bool  // the answer said that it holds
	cfg    Config
}

// extremes are the limits of all configurations so far: what a topic may have
// lost is judged by them, since what a limit took does not come back.
type extremes struct {
	capRecords, capBytes, ttl uint64 // the smallest, caps with discard old; 0 = none
	weakest                   string // class
	durable, volatile         bool   // leases outlived a crash, or did not
	deadLetter                string // where jobs may have gone; "" = nowhere
	tightened                 bool   // a reject cap was changed: more may lie in the topic
	changed                   bool   // there was more than one
}

var strength = map[string]int{Ephemeral: 0, Memory: 1, Disk: 2, Fsync: 3}

// set notes a configuration that may be in force from now on.
func (t *topic) set(e *Event) {
	cfg := *e.Config
	x := &t.ever
	if len(t.settings) > 0 {
		x.changed = true
		x.tightened = x.tightened || cfg.Reject != t.cfg.Reject || cfg.CapRecords != t.cfg.CapRecords
	}
	t.cfg = cfg
	t.settings = append(t.settings, setting{e.Invoke, e.Return, e.Outcome == OK, cfg})
	x.limit(&cfg)
	if strength[cfg.Class] < strength[x.weakest] {
		x.weakest = cfg.Class
	}
	x.durable, x.volatile = x.durable || cfg.LeasesDurable, x.volatile || !cfg.LeasesDurable
	if cfg.DeadLetter != "" && cfg.MaxDeliveries > 0 {
		x.deadLetter = cfg.DeadLetter
	}
	if cfg.DeadLetter != "" {
		t.c.topic(cfg.DeadLetter).deadLetters = true
	}
}

// limit takes in what a configuration lets go.
func (x *extremes) limit(cfg *Config) {
	if !cfg.Reject {
		x.capRecords, x.capBytes = least(x.capRecords, cfg.CapRecords), least(x.capBytes, cfg.CapBytes)
	}
	x.ttl = least(x.ttl, cfg.TTLMS)
}

// least is the smaller of two limits, of which 0 is none.
func least(a, b uint64) uint64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// during are the configurations that can have been in force at some time
// between lo and hi.
func (t *topic) during(lo, hi int64) []Config {
	var out []Config
	for i := len(t.settings) - 1; i >= 0; i-- {
		s := &t.settings[i]
		if s.lo >= hi {
			continue
		}
		out = append(out, s.cfg)
		if s.sure && s.hi <= lo {
			break
		}
	}
	if out == nil {
		return []Config{t.cfg}
	}
	return out
}

// weakest is the weakest class that can have been in force between lo and hi.
func (t *topic) weakest(lo, hi int64) string {
	class := Fsync
	for _, c := range t.during(lo, hi) {
		if strength[c.Class] < strength[class] {
			class = c.Class
		}
	}
	return class
}

// mostDeliveries is how often a job can have been handed out; 0 = without limit.
func (t *topic) mostDeliveries(lo, hi int64) (most int) {
	for _, c := range t.during(lo, hi) {
		if c.MaxDeliveries == 0 || c.DeadLetter == "" {
			return 0
		}
		most = max(most, c.MaxDeliveries)
	}
	return most
}

// surelyTTL is the ttl_ms that was in force throughout; 0 = none.
func (t *topic) surelyTTL(lo, hi int64) (ttl uint64) {
	for _, c := range t.during(lo, hi) {
		if c.TTLMS == 0 {
			return 0
		}
		ttl = max(ttl, c.TTLMS)
	}
	return ttl
}

// capped says whether something but a crash may have taken records.
func (t *topic) capped() bool { return t.ever.capRecords > 0 || t.ever.capBytes > 0 || t.ever.ttl > 0 }

// evictable is the highest number that a cap can have taken by now (ns): with
// what may lie above it the cap is full; or that has outlived its time at clock.
func (t *topic) evictable(now, clock int64) uint64 {
	if !t.capped() {
		return 0
	}
	x := t.before
	for i := range t.settings {
		if t.settings[i].lo < now {
			x.limit(&t.settings[i].cfg)
		}
	}
	var n, bytes uint64
	for id, b := range t.batches {
		if b.first == 0 && !b.failed && b.invoke < now {
			n += uint64(b.size)
			if x.capBytes > 0 {
				bytes += id.bytes(b.size)
			}
		}
	}
	for i := len(t.order) - 1; i >= 0; i-- {
		seq := t.order[i]
		b := t.bySeq[seq]
		if b.born >= now {
			continue
		}
		bytes += uint64(b.bytes)
		old := max(b.ts, ms(b.born))
		switch {
		case x.capRecords > 0 && n >= x.capRecords,
			x.capBytes > 0 && bytes > x.capBytes,
			x.ttl > 0 && ms(clock)+clockSlack-old > int64(x.ttl):
			return seq
		}
		n++
	}
	return 0
}

// bytes is the length of data and meta of a whole batch.
func (b BatchID) bytes(size int) (n uint64) {
	for i := range size {
		p := PayloadOf(b, i, size)
		n += uint64(len(p.Data) + len(p.Meta))
	}
	return n
}

// judgeSettings holds a state against the configurations that it can have been
// given under: it is one of them, and within its caps.
func (t *topic) judgeSettings(e *Event) {
	list := t.during(e.Invoke, e.Return)
	var records, bytes uint64 // the loosest caps, 0 = none
	for i, c := range list {
		if c.Reject && t.ever.tightened {
			c.CapRecords, c.CapBytes = 0, 0 // it evicts nothing
		}
		if i == 0 {
			records, bytes = c.CapRecords, c.CapBytes
		}
		records, bytes = loosest(records, c.CapRecords), loosest(bytes, c.CapBytes)
	}
	if records > 0 && e.Count > records {
		t.violation("cap", 0, "count is %d, the cap %d", e.Count, records)
	}
	if bytes > 0 && e.Bytes > bytes {
		t.violation("cap", 0, "bytes are %d, the cap %d", e.Bytes, bytes)
	}
	if e.Config == nil || len(t.settings) == 0 {
		return
	}
	for i := range list {
		if sameConfig(list[i], *e.Config) {
			return
		}
	}
	t.violation("config", 0, "configuration is %+v, it can be %+v", *e.Config, list)
}

func loosest(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// sameConfig compares what was sent with what a state shows; lease_ms 0 was left out.
func sameConfig(want, have Config) bool {
	if want.LeaseMS == 0 {
		have.LeaseMS = 0
	}
	return want == have
}

// settled forgets configurations that nothing to come can have been under,
// and learns from a quiet state which of them holds.
func (t *topic) settled(events []*Event) {
	t.before = t.ever
	for _, e := range events {
		if e.Kind != State || !e.Quiet || e.Outcome != OK || e.Config == nil {
			continue
		}
		for i := len(t.settings) - 1; i >= 0; i-- {
			if s := t.settings[i]; s.hi <= e.Invoke && sameConfig(s.cfg, *e.Config) {
				t.settings = append(t.settings[:0:0], setting{s.lo, e.Return, true, s.cfg})
				t.cfg = s.cfg
				break
			}
		}
	}
	for i := len(t.settings) - 1; i > 0; i-- {
		if t.settings[i].sure {
			t.settings = t.settings[i:]
			return
		}
	}
}
