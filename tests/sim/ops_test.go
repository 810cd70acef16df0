package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

var (
	logs   = []string{"log-a", "log-b", "log-c", "eph-log", "dead", "eph-dead"}
	queues = []string{"queue-a", "queue-b", "queue-c", "eph-queue"}
	names  = append(slices.Clone(logs), queues...)
)

// deadOf is where the dead letters of a queue go. Ephemeral topics stay among
// themselves: what becomes of records in memory is the engine's own test.
func deadOf(queue string) string {
	if strings.HasPrefix(queue, "eph") {
		return "eph-dead"
	}
	return "dead"
}

func pickOf[T any](s *sim, list []T) T { return list[s.rng.IntN(len(list))] }

func (s *sim) chance(percent int) bool { return s.rng.IntN(100) < percent }

// config draws a configuration that fits the name.
func (s *sim) config(name string) api.Config {
	c := api.DefaultConfig()
	c.Durability = api.Ephemeral
	if !strings.HasPrefix(name, "eph") {
		c.Durability = pickOf(s, []api.Durability{api.Memory, api.Disk, api.Disk, api.Fsync})
	}
	c.IdempotencyWindowMS = 30_000
	c.DedupeNode = s.chance(80)
	if s.chance(30) {
		c.CapRecords = uint64(1 + s.rng.IntN(40))
	}
	if s.chance(20) {
		c.CapBytes = uint64(200 + s.rng.IntN(8000))
	}
	if s.chance(25) {
		c.TTLMS = uint64(500 + s.rng.IntN(30_000))
	}
	if s.chance(30) {
		c.Discard = api.DiscardReject
	}
	if slices.Contains(queues, name) {
		c.Type = api.TypeQueue
		c.LeaseMS = uint64(1000 + s.rng.IntN(20_000))
		if name == "queue-a" { // fsync: which leases a crash left could not be told otherwise
			c.LeasesDurable, c.Durability = true, api.Fsync
		}
		if s.chance(60) {
			c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = uint64(1+s.rng.IntN(3)), true, deadOf(name)
		}
	}
	return c
}

// begun is a topic that nobody has made before.
func (s *sim) begun(cfg api.Config) *topic {
	s.lifes++
	t := newTopic(cfg)
	t.life = s.lifes
	return t
}

func (s *sim) records(n int) []api.Record {
	recs := make([]api.Record, n)
	for i := range recs {
		s.serial++
		size := 10 + s.rng.IntN(300)
		if s.chance(2) {
			size = 20_000
		}
		r := api.Record{Data: fmt.Appendf(nil, `"%d %s"`, s.serial, strings.Repeat(string(rune('a'+s.serial%26)), size))}
		if s.chance(60) {
			r.HasTag, r.Tag = true, fmt.Append(nil, "t", s.rng.IntN(4))
		}
		if s.chance(50) {
			r.HasNode, r.Node = true, fmt.Append(nil, "n", s.rng.IntN(3))
		}
		if s.chance(30) {
			r.Meta = fmt.Appendf(nil, `{"k":%d}`, s.serial)
		}
		recs[i] = r
	}
	return recs
}

func (s *sim) write(name string) *call {
	req := &api.WriteRequest{Records: s.records(1 + s.rng.IntN(1+s.rng.IntN(8)))}
	cfg := s.config(name)
	if s.chance(20) {
		req.IdempotencyKey = fmt.Append(nil, "key", s.rng.IntN(4), "-", s.era)
		t := s.topics[name]
		req.HasIdempotencyKey = t == nil || !t.keys[string(req.IdempotencyKey)].open(s.leaseClock(), int64(t.cfg.IdempotencyWindowMS))
	}
	req.Config = &cfg
	if slices.Contains(queues, name) && s.chance(25) {
		for i := range req.Records {
			req.Records[i].Delay = s.rng.Uint64N(20_000)
		}
	}
	if s.chance(10) {
		no := false
		req.Create = &no
	}
	s.count["write"]++
	var res api.WriteResult
	c := &call{name: fmt.Sprintf("write %d to %s key %q", len(req.Records), name, req.IdempotencyKey), topics: []string{name}}
	among := req.Create != nil || s.chance(50) // by the call for many
	c.do = func(e *engine.Engine) (err error) {
		if !among {
			res, err = e.Write(bg, name, req)
			return err
		}
		out, err := e.WriteEach(bg, name, []api.WriteRequest{*req})
		if err != nil {
			return err
		}
		res = out[0].WriteResult
		return out[0].Err
	}
	c.plan = func(c *call) plan {
		t, want := s.now(c, name), api.WriteResult{Count: len(req.Records)}
		class := api.Fsync
		switch {
		case t == nil && req.Create != nil:
			return plan{code: api.CodeTopicNotFound}
		case t == nil:
			t, want.Created = s.begun(cfg), true
		default:
			class = t.cfg.Durability
		}
		check := func() error {
			res.AppendMS, res.SyncMS, res.ThrottleMS = 0, 0, 0
			if res != want {
				return fmt.Errorf("%+v, want %+v", res, want)
			}
			return nil
		}
		if k, has := t.keys[string(req.IdempotencyKey)]; has && req.HasIdempotencyKey && c.lease-k.at <= int64(t.cfg.IdempotencyWindowMS) {
			want.FirstSeq, want.LastSeq, want.HeadSeq, want.Count, want.Deduped = k.first, k.first+k.n-1, k.first+k.n-1, int(k.n), true
			want.KeyReused = true // no two calls write the same
			s.count["deduped"]++
			if k.found > 0 {
				s.count["deduped though the clock was stepped"]++
			}
			return plan{code: ok, after: map[string]*topic{name: t}, silent: true, check: check}
		}
		recs, bytes := make([]rec, 0, len(req.Records)), uint64(0)
		for i := range req.Records {
			r := recOf(&req.Records[i])
			r.ts = unknownTS
			bytes += r.size
			recs = append(recs, r)
		}
		delays := slices.ContainsFunc(req.Records, func(r api.Record) bool { return r.Delay > 0 })
		if delays && t.q() == nil {
			return plan{code: api.CodeNotAQueue}
		}
		if code := t.refuses(uint64(len(recs)), bytes); code != "" {
			return plan{code: code}
		}
		loss := t.loss
		want.FirstSeq = t.append(recs)
		s.delay(c, t, want.FirstSeq, req.Records)
		want.LastSeq, want.HeadSeq = t.head, t.head
		if t.loss > loss {
			s.count["evicted"]++
		}
		if req.HasIdempotencyKey {
			t.keys[string(req.IdempotencyKey)] = keyed{first: want.FirstSeq, n: uint64(len(recs)), at: c.lease}
		}
		return plan{code: ok, after: map[string]*topic{name: t}, class: class, check: check}
	}
	return c
}

// delay has those records of a write wait that came with a delay.
func (s *sim) delay(c *call, t *topic, first uint64, records []api.Record) {
	for i := range records {
		seq, ms := first+uint64(i), int64(records[i].Delay)
		live := slices.ContainsFunc(t.recs, func(r rec) bool { return r.seq == seq })
		if ms > 0 && live {
			t.jobs[seq] = job{state: delayed, until: c.lease + ms, due: c.lease + ms}
			s.count["delayed write"]++
		}
	}
}

func (s *sim) put(name string) *call {
	cfg := s.config(name)
	if s.chance(3) {
		cfg.Type = api.TypeQueue - cfg.Type
	}
	s.count["put"]++
	var res api.PutTopicResult
	c := &call{name: "put " + name, topics: []string{name}}
	c.do = func(e *engine.Engine) (err error) { res, err = e.PutTopic(bg, name, cfg); return err }
	c.plan = func(c *call) plan {
		t := s.now(c, name)
		want := api.PutTopicResult{Created: t == nil, Config: cfg}
		switch {
		case t == nil:
			t = s.begun(cfg)
		case t.cfg.Type != cfg.Type:
			return plan{code: api.CodeTopicExistsIncompatible}
		default:
			if t.cfg.Durability != cfg.Durability {
				s.count["class changed"]++
			}
			t.cfg = cfg
			t.cap()
		}
		return plan{code: ok, after: map[string]*topic{name: t}, class: api.Fsync, check: func() error {
			if res != want {
				return fmt.Errorf("%+v, want %+v", res, want)
			}
			return nil
		}}
	}
	return c
}

func (s *sim) drop(name string) *call {
	ifEmpty := s.chance(50)
	s.count["drop"]++
	var res api.DeleteTopicResult
	c := &call{name: fmt.Sprintf("drop %s if empty %v", name, ifEmpty), topics: []string{name}}
	c.do = func(e *engine.Engine) (err error) { res, err = e.DeleteTopic(bg, name, ifEmpty); return err }
	c.plan = func(c *call) plan {
		t := s.now(c, name)
		if t != nil && ifEmpty && len(t.recs) > 0 {
			return plan{code: api.CodeTopicNotEmpty}
		}
		return plan{code: ok, after: map[string]*topic{name: nil}, class: api.Fsync, silent: t == nil, check: func() error {
			if res.Deleted != (t != nil) {
				return fmt.Errorf("deleted %v", res.Deleted)
			}
			return nil
		}}
	}
	return c
}

func (s *sim) remove(name string) *call {
	req := &api.DeleteRequest{}
	if s.chance(60) {
		req.HasBefore = true
		if t := s.topics[name]; t != nil && len(t.recs) > 0 {
			req.BeforeSeq = t.recs[s.rng.IntN(len(t.recs))].seq + s.rng.Uint64N(2)
		}
	}
	if !req.HasBefore || s.chance(30) {
		req.Match = &api.Predicate{Value: fmt.Sprint("t", s.rng.IntN(4)), Glob: s.chance(10)}
	}
	s.count["delete"]++
	var res api.DeleteResult
	c := &call{name: fmt.Sprintf("delete of %s before %d match %v", name, req.BeforeSeq, req.Match), topics: []string{name}}
	c.do = func(e *engine.Engine) (err error) { res, err = e.DeleteRecords(bg, name, req); return err }
	c.plan = func(c *call) plan {
		t := s.now(c, name)
		if t == nil {
			return plan{code: api.CodeTopicNotFound}
		}
		n := t.keep(func(r *rec) bool {
			return req.HasBefore && r.seq >= req.BeforeSeq || req.Match != nil && !req.Match.Match(r.hasTag, []byte(r.tag))
		})
		want := api.DeleteResult{Deleted: uint64(n), TopicCounters: t.counters()}
		return plan{code: ok, after: map[string]*topic{name: t}, class: t.cfg.Durability, silent: n == 0, check: func() error {
			if res != want {
				return fmt.Errorf("%+v, want %+v", res, want)
			}
			return nil
		}}
	}
	return c
}

var workers = []string{"w0", "w1", "w2"}

func (s *sim) claim(name string) *call {
	req := &api.ClaimRequest{Node: pickOf(s, workers), Max: 1 + s.rng.IntN(6)}
	if s.chance(40) {
		req.HasLease, req.LeaseMS = true, uint64(100+s.rng.IntN(9000))
	}
	s.count["claim"]++
	var res api.ClaimResult
	var got []api.Job
	c := &call{name: fmt.Sprintf("claim %d of %s as %s", req.Max, name, req.Node), topics: []string{name, deadOf(name)}}
	c.do = func(e *engine.Engine) (err error) {
		res, err = e.Claim(bg, name, req, func(j *api.Job) {
			k := *j
			k.Data, k.Meta, k.Tag, k.Node = slices.Clone(j.Data), slices.Clone(j.Meta), slices.Clone(j.Tag), slices.Clone(j.Node)
			got = append(got, k)
		})
		return err
	}
	c.plan = func(c *call) plan {
		t := s.now(c, name)
		switch {
		case t == nil:
			return plan{code: api.CodeTopicNotFound}
		case t.q() == nil:
			return plan{code: api.CodeNotAQueue}
		}
		p := plan{code: ok, after: map[string]*topic{name: t}, class: t.cfg.Durability, silent: !t.cfg.LeasesDurable}
		picks, dead := t.pick(req.Max)
		if len(dead) > 0 {
			s.bury(c, name, t, dead, &p)
		}
		lease := t.cfg.LeaseMS
		if req.HasLease {
			lease = req.LeaseMS
		}
		for i, seq := range picks {
			j := t.jobs[seq]
			j.state, j.node, j.until = leased, req.Node, c.lease+int64(lease)
			j.deliveries++
			if i < len(got) {
				j.id = got[i].LeaseID
			}
			t.jobs[seq] = j
		}
		p.silent = p.silent && len(p.after) == 1 || len(picks)+len(dead) == 0
		p.check = func() error { return s.checkClaim(c, name, t, picks, got, res, int64(lease)) }
		return p
	}
	return c
}

// q is nil unless the topic is a queue.
func (t *topic) q() map[uint64]job {
	if t.cfg.Type != api.TypeQueue {
		return nil
	}
	return t.jobs
}

// bury moves jobs to the dead-letter topic, as far as that has room, but for those that it
// can never hold.
func (s *sim) bury(c *call, name string, t *topic, dead []uint64, p *plan) {
	d := s.now(c, t.cfg.DeadLetter)
	if d == nil { // it is created first, and synced
		cfg := api.DefaultConfig()
		cfg.Durability = t.cfg.Durability
		d = s.begun(cfg)
		p.first = map[string]*topic{t.cfg.DeadLetter: d.clone()}
	}
	var copies []rec
	var moved []uint64
	bytes := uint64(0)
	for _, seq := range slices.Sorted(slices.Values(dead)) {
		r := t.deadLetter(name, seq)
		if d.refuses(1, r.size) == api.CodeRecordTooLarge {
			continue
		}
		if bytes += r.size; d.refuses(uint64(len(copies))+1, bytes) != "" {
			break
		}
		copies, moved = append(copies, r), append(moved, seq)
	}
	if len(moved) < len(dead) {
		s.count["dead letters refused"]++
	}
	if len(moved) == 0 {
		return
	}
	d.append(copies)
	t.keep(func(r *rec) bool { return !slices.Contains(moved, r.seq) })
	t.dead += uint64(len(moved))
	p.after[t.cfg.DeadLetter] = d
	p.class = max(p.class, d.cfg.Durability)
	s.count["dead letter"]++
}

func (s *sim) checkClaim(c *call, name string, t *topic, picks []uint64, got []api.Job, res api.ClaimResult, lease int64) error {
	var seqs []uint64
	for i := range got {
		j := &got[i]
		seqs = append(seqs, j.Seq)
		k := t.find(j.Seq)
		if k < 0 {
			return fmt.Errorf("job %d is not live", j.Seq)
		}
		if err := sameRecs(t.recs[k:k+1], []rec{recOf(&j.Record)}); err != nil {
			return err
		}
		life := fmt.Sprint(name, j.LeaseID)
		if s.lives[life] || j.LeaseID == 0 {
			return fmt.Errorf("lease id %x of job %d was given out before", j.LeaseID, j.Seq)
		}
		s.lives[life] = true
		if want := t.jobs[j.Seq].deliveries; j.Deliveries != want {
			return fmt.Errorf("job %d: delivery %d, want %d", j.Seq, j.Deliveries, want)
		}
		if j.Deadline < c.wall+lease-2 || j.Deadline > c.until+lease+2 {
			return fmt.Errorf("job %d: deadline %d, want %d", j.Seq, j.Deadline, c.wall+lease)
		}
		s.tell("job %d deadline %d", j.Seq, j.Deadline)
	}
	if !slices.Equal(seqs, picks) {
		return fmt.Errorf("jobs %v, want %v", seqs, picks)
	}
	if want := t.queue().Ready; res.Count != len(got) || res.Ready != want {
		return fmt.Errorf("%+v, want %d and %d ready", res, len(got), want)
	}
	return nil
}

// settle draws an ack, nack or extend: mostly of what the node holds.
func (s *sim) settle(kind, name string) *call {
	req := &api.SettleRequest{Node: pickOf(s, workers)}
	t := s.topics[name]
	withIDs := s.chance(60)
	if t != nil {
		for _, seq := range slices.Sorted(maps.Keys(t.jobs)) {
			j := t.jobs[seq]
			if j.node != req.Node && s.chance(90) || len(req.Seqs) > 8 {
				continue
			}
			req.Seqs = append(req.Seqs, seq)
			switch s.rng.IntN(6) {
			case 0:
				req.LeaseIDs = append(req.LeaseIDs, 0)
			case 1:
				req.LeaseIDs = append(req.LeaseIDs, max(1, j.id-1)) // a stale one, or another job's
				s.count["stale token"]++
			default:
				req.LeaseIDs = append(req.LeaseIDs, j.id)
			}
			if j.node != req.Node {
				s.count["foreign token"]++
			}
		}
		for range s.rng.IntN(2) {
			req.Seqs = append(req.Seqs, s.rng.Uint64N(t.head+2))
			req.LeaseIDs = append(req.LeaseIDs, 0)
		}
		s.rng.Shuffle(len(req.Seqs), func(i, k int) {
			req.Seqs[i], req.Seqs[k] = req.Seqs[k], req.Seqs[i]
			req.LeaseIDs[i], req.LeaseIDs[k] = req.LeaseIDs[k], req.LeaseIDs[i]
		})
	}
	if !withIDs {
		req.LeaseIDs = nil
	}
	req.NumLeaseIDs = len(req.LeaseIDs)
	if kind == "nack" {
		req.NotStarted = s.chance(20)
		if s.chance(40) {
			req.DelayMS = s.rng.Uint64N(20_000)
		}
	}
	req.LeaseMS = uint64(100 + s.rng.IntN(20_000))
	s.count[kind]++
	var res api.SettleResult
	c := &call{name: fmt.Sprintf("%s %v of %s as %s with %d ids", kind, req.Seqs, name, req.Node, len(req.LeaseIDs)), topics: []string{name}}
	c.do = func(e *engine.Engine) (err error) {
		switch kind {
		case "ack":
			res, err = e.Ack(bg, name, req)
		case "nack":
			res, err = e.Nack(bg, name, req)
		default:
			res, err = e.Extend(bg, name, req)
		}
		return err
	}
	c.plan = func(c *call) plan { return s.planSettle(c, kind, name, req, &res) }
	return c
}

func (s *sim) planSettle(c *call, kind, name string, req *api.SettleRequest, res *api.SettleResult) plan {
	t := s.now(c, name)
	switch {
	case t == nil:
		return plan{code: api.CodeTopicNotFound}
	case t.q() == nil:
		return plan{code: api.CodeNotAQueue}
	}
	var done, skipped []uint64
	failed := t.clone() // each job stays under its lease
	for i, seq := range req.Seqs {
		id := uint64(0)
		if len(req.LeaseIDs) > 0 {
			id = req.LeaseIDs[i]
		}
		if !t.held(seq, req.Node, id) || kind == "extend" && slices.Contains(done, seq) {
			skipped = append(skipped, seq)
			continue
		}
		done = append(done, seq)
		j := t.jobs[seq]
		switch kind {
		case "ack":
			t.keep(func(r *rec) bool { return r.seq != seq })
			continue
		case "nack":
			j.state, j.until = delayed, c.lease+int64(req.DelayMS)
			if req.DelayMS == 0 {
				j.state, j.until = ready, 0
			}
			if req.NotStarted {
				j.deliveries--
			}
		default:
			j.until = c.lease + int64(req.LeaseMS)
		}
		t.jobs[seq] = j
	}
	p := plan{code: ok, after: map[string]*topic{name: t}, class: t.cfg.Durability,
		silent: len(done) == 0 || kind != "ack" && !t.cfg.LeasesDurable}
	if kind == "ack" {
		p.failed = map[string]*topic{name: failed}
	}
	p.check = func() error {
		q := t.queue()
		if res.Done != len(done) || !slices.Equal(res.Skipped, skipped) || res.Ready != q.Ready || res.InFlight != q.InFlight {
			return fmt.Errorf("%+v, want %v done, %v skipped, %+v", *res, done, skipped, q)
		}
		if len(done) > 0 {
			s.count[kind+" accepted"]++
		}
		for i, d := range res.Deadlines {
			if d.Seq != done[i] || d.At < c.wall+int64(req.LeaseMS)-2 || d.At > c.until+int64(req.LeaseMS)+2 {
				return fmt.Errorf("deadline %+v, want %d", d, c.wall+int64(req.LeaseMS))
			}
		}
		return nil
	}
	return p
}

// pass lets time go by.
func (s *sim) pass() {
	d := time.Duration(1+s.rng.IntN(50)) * time.Millisecond
	switch s.rng.IntN(6) {
	case 0:
		d = time.Duration(1+s.rng.IntN(40)) * time.Second
	case 1:
		d = time.Duration(1+s.rng.IntN(3000)) * time.Millisecond
	}
	s.tell("%v pass", d)
	time.Sleep(d)
	s.clock()
	s.count["time passes"]++
}

func (s *sim) thaw() {
	s.stepped = time.Now()
	f := s.wall.frozen.Swap(0)
	s.wall.offset.Store(f - time.Now().UnixNano())
	s.count["the clock goes on"]++
}

// jump moves the wall clock, and lets the server see it.
func (s *sim) jump() {
	s.look()
	s.stepped = time.Now()
	if s.wall.frozen.Load() != 0 {
		s.thaw()
	} else if s.chance(30) {
		s.wall.frozen.Store(s.wall.now().UnixNano())
		s.count["the clock freezes"]++
		s.tell("the clock freezes")
		s.keysAhead = true
	} else {
		d := pickOf(s, []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour, time.Millisecond, -time.Second})
		s.wall.offset.Add(int64(d))
		s.count[fmt.Sprint("the clock jumps by ", d)]++
		s.tell("the clock jumps by %v", d)
	}
	s.look()
}

// look lets the server look at its clock and compares.
func (s *sim) look() {
	want := s.clock()
	st, err := s.e.Topic(probe, true)
	if err != nil {
		s.fail("%v", err)
	}
	if st.LastReadTS != want {
		s.fail("the server's clock is %d, want %d", st.LastReadTS, want)
	}
}
