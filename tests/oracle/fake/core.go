// Package fake is a weir server of a few hundred lines, in memory, for tests of
// the tests: it keeps what each durability class promises over a crash, and can
// be told to break single promises. It knows the topic, write, diff, delete and
// queue calls of /v0, without limits, long poll or authentication.
package fake

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Record is one stored record; absent parts are nil.
type Record struct {
	Seq    uint64
	TS     int64 // epoch ms
	Data   string
	Tag    *string
	Node   *string
	Meta   string // JSON text, "" for none
	Delay  int64  // ms, of a record that is written
	synced int64  // epoch ms of the commit, for power cuts
	class  string // of the topic then
}

// Config is what the fake heeds of a topic's configuration.
type Config struct {
	Type          string  `json:"type"`
	Durability    string  `json:"durability"`
	CapRecords    uint64  `json:"cap_records"`
	CapBytes      uint64  `json:"cap_bytes"`
	TTLMS         uint64  `json:"ttl_ms"`
	Discard       string  `json:"discard"`
	LeaseMS       int64   `json:"lease_ms"`
	MaxDeliveries int     `json:"max_deliveries"`
	DeadLetter    *string `json:"dead_letter"`
	LeasesDurable bool    `json:"leases_durable"`
}

type job struct {
	lease, node string
	deadline    int64 // epoch ms
	notBefore   int64
	delay, due  int64 // of a record with a delay; due is epoch ms
	deliveries  int
}

type written struct{ first, last uint64 }

type topic struct {
	cfg     Config
	live    []*Record // ascending
	head    uint64
	floor   uint64      // loss floor
	crashed [][2]uint64 // ranges of their own above the floor
	keys    map[string]written
	jobs    map[uint64]*job
	dead    uint64
	buried  bool    // it received dead letters
	was     *Config // the first configuration
	routed  bool    // a router reads it, or writes to it
	lostTo  uint64  // end of the last range lost to a crash
}

// Server is the state of one fake server. Its methods are safe for concurrent use.
type Server struct {
	// Break names one promise to break; see the constants.
	Break string
	// DiskFlush is how much of a disk topic a power cut takes, in ms.
	DiskFlush int64

	calls   sync.Mutex // one call of HTTP at a time
	mu      sync.Mutex
	topics  map[string]*topic
	routers map[string]*Router
	buried  map[string]*topic // deleted ones, for Undead and KeepKeys
	leases  uint64
	now     func() time.Time
	rng     *rand.Rand // of one seed: the same calls meet the same faults
}

// Promises that Break can name.
const (
	LoseFsync      = "lose-fsync"      // a crash takes the last fsync record, silently
	LoseDisk       = "lose-disk"       // a kill takes the last disk record, silently
	ReuseSeqs      = "reuse-seqs"      // head falls back to the last live record
	StaleAck       = "stale-ack"       // an ack with any lease id is accepted
	DoubleLease    = "double-lease"    // leased jobs are handed out again
	ForgetDelete   = "forget-delete"   // a crash brings deleted records back
	ForgetKeys     = "forget-keys"     // idempotency keys are not kept
	EvictBySeq     = "evict-by-seq"    // caps count numbers, not live records
	SilentLoss     = "silent-loss"     // crash losses are not announced
	HalfBatch      = "half-batch"      // a crash takes half of the last batch
	NullData       = "null-data"       // now and then data is null
	ExtraDelivery  = "extra-delivery"  // one delivery more than max_deliveries
	LoseDeadLetter = "lose-deadletter" // the move deletes and does not append
	SkipCopy       = "skip-copy"       // a router skips a record now and then
	CopyTwice      = "copy-twice"      // a router copies a record twice now and then
	KeepKeys       = "keep-keys"       // a deleted topic's idempotency keys stay
	Undead         = "undead"          // a crash brings a deleted topic back
	ForgetConfig   = "forget-config"   // a crash sets a changed configuration back
	IgnoreTTL      = "ignore-ttl"      // records outlive their time
	PartialBackup  = "partial-backup"  // a backup lacks what was just written
	LateBackup     = "late-backup"     // a backup holds topics at different places
	IgnoreDelay    = "ignore-delay"    // a delayed record is claimable at once now and then
	ForgetDelay    = "forget-delay"    // a crash ends all delays
	DelayAgain     = "delay-again"     // a crash begins delays anew, ten times as long
	DelayBatch     = "delay-batch"     // the whole batch waits for its longest delay
	DelayRepeat    = "delay-repeat"    // a repeat with a key ends the delays of the first write
	NeverDue       = "never-due"       // a delayed record misses its time now and then
)

// New returns an empty server that reads the time from now.
func New(now func() time.Time) *Server {
	return &Server{topics: map[string]*topic{}, routers: map[string]*Router{}, buried: map[string]*topic{}, now: now,
		rng: rand.New(rand.NewPCG(1, 2)), DiskFlush: 1000}
}

func (s *Server) ms() int64 { return s.now().UnixMilli() }

func newTopic(c Config) *topic {
	return &topic{cfg: c, keys: map[string]written{}, jobs: map[uint64]*job{}}
}

// Write appends a batch and returns its numbers; ok is false if a reject topic is full.
func (s *Server) Write(name, key string, recs []Record) (first, last, head uint64, deduped, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topic(name)
	if t == nil {
		t = newTopic(Config{Durability: "disk"})
		s.topics[name] = t
	}
	if w, have := t.keys[key]; key != "" && have && s.Break != ForgetKeys {
		for seq := w.first; seq <= w.last && s.Break == DelayRepeat; seq++ {
			t.job(seq).notBefore = 0
		}
		return w.first, w.last, w.last, true, true
	}
	bytes := t.bytes()
	for _, r := range recs {
		bytes += uint64(len(r.Data) + len(r.Meta))
	}
	if t.cfg.Discard == "reject" && t.over(uint64(len(t.live)+len(recs)), bytes) {
		return 0, 0, t.head, false, false
	}
	first = t.head + 1
	for _, r := range recs {
		t.append(r, s.ms())
	}
	s.delay(t, first, recs)
	last, head = t.head, t.head
	if key != "" {
		t.keys[key] = written{first, t.head}
	}
	s.forward()
	t.evict(s.Break == EvictBySeq)
	return first, last, head, false, true
}

func (t *topic) append(r Record, now int64) {
	t.head++
	if n := len(t.live); n > 0 {
		now = max(now, t.live[n-1].TS)
	}
	r.Seq, r.TS, r.synced, r.class = t.head, now, now, t.cfg.Durability
	t.live = append(t.live, &r)
}

func (t *topic) evict(bySeq bool) {
	if t.cfg.CapRecords == 0 && t.cfg.CapBytes == 0 || t.cfg.Discard == "reject" && !bySeq {
		return
	}
	for len(t.live) > 0 {
		over := t.over(uint64(len(t.live)), t.bytes())
		if bySeq && t.cfg.CapRecords > 0 {
			over = t.live[0].Seq+t.cfg.CapRecords <= t.head
		}
		if !over {
			return
		}
		t.floor = max(t.floor, t.live[0].Seq)
		delete(t.jobs, t.live[0].Seq)
		t.live = t.live[1:]
	}
}

func (t *topic) over(records, bytes uint64) bool {
	return t.cfg.CapRecords > 0 && records > t.cfg.CapRecords || t.cfg.CapBytes > 0 && bytes > t.cfg.CapBytes
}

// expire takes what has outlived its time.
func (t *topic) expire(now int64) {
	for t.cfg.TTLMS > 0 && len(t.live) > 0 && now-t.live[0].TS > int64(t.cfg.TTLMS) {
		t.floor = max(t.floor, t.live[0].Seq)
		t.remove(t.live[0].Seq)
	}
}

// topic returns a topic as it is now, nil if it is absent. s.mu is held.
func (s *Server) topic(name string) *topic {
	t := s.topics[name]
	if t != nil && s.Break != IgnoreTTL {
		t.expire(s.ms())
	}
	return t
}

func (t *topic) earliest() uint64 {
	if len(t.live) == 0 {
		return t.head + 1
	}
	return t.live[0].Seq
}

func (t *topic) bytes() (n uint64) {
	for _, r := range t.live {
		n += uint64(len(r.Data) + len(r.Meta))
	}
	return n
}

// gap is the tombstone for a cursor; to is 0 if there is none.
func (t *topic) gap(from uint64) (to uint64, reason string) {
	if from < t.floor {
		if t.floor > t.lostTo {
			return t.floor, "cap"
		}
		return t.floor, "crash"
	}
	for _, r := range t.crashed {
		if r[0]-1 <= from && from < r[1] {
			return r[1], "crash"
		}
	}
	return 0, ""
}

// Diff reads after a cursor.
func (s *Server) Diff(name string, from uint64, limit int) (recs []Record, next, head, earliest, gapTo uint64, reason string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topic(name)
	if t == nil {
		return nil, 0, 0, 0, 0, "", false
	}
	if from > t.head {
		return nil, 0, t.head, t.earliest(), t.head, "recreated", true
	}
	gapTo, reason = t.gap(from)
	next = max(from, gapTo)
	stop := t.head
	for _, r := range t.crashed {
		if r[0] > next {
			stop = min(stop, r[0]-1)
		}
	}
	i, _ := slices.BinarySearchFunc(t.live, next+1, func(r *Record, seq uint64) int { return int(int64(r.Seq) - int64(seq)) })
	for ; i < len(t.live) && len(recs) < limit && t.live[i].Seq <= stop; i++ {
		recs = append(recs, *t.live[i])
		next = t.live[i].Seq
		if s.Break == NullData && s.rng.IntN(500) == 0 {
			recs[len(recs)-1].Data = "null"
		}
	}
	if len(recs) < limit {
		next = stop
	}
	return recs, next, t.head, t.earliest(), gapTo, reason, true
}

// Delete removes records below before (0: any) with the tag (nil: any).
func (s *Server) Delete(name string, before uint64, tag *string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topic(name)
	n := len(t.live)
	t.live = slices.DeleteFunc(t.live, func(r *Record) bool {
		hit := (before == 0 || r.Seq < before) && (tag == nil || r.Tag != nil && *r.Tag == *tag)
		if hit {
			delete(t.jobs, r.Seq)
		}
		return hit
	})
	n -= len(t.live)
	s.forward()
	return n
}

// Crash is a kill -9 or a power cut: it takes what each class allows.
func (s *Server) Crash(power bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.ms()
	for name, t := range s.buried {
		if s.Break == Undead && s.topics[name] == nil {
			s.topics[name] = t
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.topics)) {
		t := s.topics[name]
		t.crashJobs(now, s.Break)
		lost := 0
		if s.Break == ForgetConfig && t.was != nil {
			t.cfg = *t.was
		}
		if t.buried || t.routed {
			continue // a move is atomic, and the queue's side of it is kept
		}
		switch t.cfg.Durability {
		case "ephemeral":
			lost = t.newest("ephemeral")
		case "memory":
			lost = s.rng.IntN(t.newest("memory") + 1)
		case "disk":
			if power {
				for lost < t.newest("disk") && t.live[len(t.live)-1-lost].synced > now-s.DiskFlush/2 {
					lost++
				}
			} else if s.Break == LoseDisk {
				lost = min(1, len(t.live))
			}
		case "fsync":
			if s.Break == LoseFsync {
				lost = min(1, len(t.live))
			}
		}
		t.lose(lost, s.Break)
	}
}

// newest is how many records at the end were written in a class.
func (t *topic) newest(class string) (n int) {
	for n < len(t.live) && t.live[len(t.live)-1-n].class == class {
		n++
	}
	return n
}

// lose drops the last n records, widened to whole batches of the writers.
func (t *topic) lose(n int, breaks string) {
	if n == 0 {
		if breaks == ReuseSeqs && len(t.live) > 0 {
			t.head = t.live[len(t.live)-1].Seq
		}
		return
	}
	first := t.live[len(t.live)-n].Seq
	if breaks != HalfBatch {
		first = t.batchStart(first)
	}
	i := slices.IndexFunc(t.live, func(r *Record) bool { return r.Seq >= first })
	for key, w := range t.keys {
		if w.last >= first {
			delete(t.keys, key)
		}
	}
	t.live = t.live[:i]
	if breaks == SilentLoss || breaks == LoseDisk || breaks == LoseFsync {
		return
	}
	t.lostTo = t.head
	if i == 0 {
		t.floor, t.crashed = t.head, nil
		return
	}
	t.crashed = slices.DeleteFunc(t.crashed, func(r [2]uint64) bool { return r[1] >= first })
	t.crashed = append(t.crashed, [2]uint64{first, t.head})
}

// batchStart asks the data itself for the start of the batch of a record.
func (t *topic) batchStart(seq uint64) uint64 {
	i := slices.IndexFunc(t.live, func(r *Record) bool { return r.Seq == seq })
	var place uint64
	if k := indexOf(t.live[i].Data, `"i":`); k >= 0 {
		fmt.Sscanf(t.live[i].Data[k+4:], "%d", &place)
	}
	return seq - place
}

func indexOf(s, sub string) int {
	for i := 0; i+len(sub) <= len(s); i++ {
		if s[i:i+len(sub)] == sub {
			return i
		}
	}
	return -1
}

// Put creates a topic or replaces its configuration.
func (s *Server) Put(name string, c Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topic(name); t != nil {
		if t.was == nil {
			t.was = &Config{}
			*t.was = t.cfg
		}
		t.cfg = c
		t.evict(false)
		return
	}
	s.topics[name] = newTopic(c)
	if old := s.buried[name]; old != nil && s.Break == KeepKeys {
		s.topics[name].keys = old.keys
	}
}

// Drop deletes a topic with its routers.
func (s *Server) Drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[name]; t != nil {
		s.buried[name] = t
	}
	delete(s.topics, name)
	for id, r := range s.routers {
		if r.Source == name || r.Dest == name {
			delete(s.routers, id)
		}
	}
}

// State returns the counters of a topic.
func (s *Server) State(name string) (head, earliest, count, bytes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topic(name)
	return t.head, t.earliest(), uint64(len(t.live)), t.bytes()
}

// DeadLetterSource tells from which queue and number a dead letter came.
func DeadLetterSource(r *Record) (queue string, seq uint64, ok bool) {
	var m struct {
		From string `json:"$dead_letter_from"`
		Seq  string `json:"$dead_letter_src_seq"`
	}
	if err := json.Unmarshal([]byte(r.Meta), &m); err != nil || m.From == "" {
		return "", 0, false
	}
	_, err := fmt.Sscanf(m.Seq, "%d", &seq)
	return m.From, seq, err == nil
}
