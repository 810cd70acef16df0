package sim

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// listener is a client with a watch session, which goes on with the id of its last frame.
type listener struct {
	wid    string
	stream *engine.Stream // nil: none is open
	at     map[string]place
	id     string // of the last frame; "" if none came
	back   string // an id of before that, of the same lives
	backAt map[string]place
	lost   string // the id in front of the announcement that a topic lives again, while its stream is open
	lostAt map[string]place
	unsure map[string]bool // topics that it was told of so, and has named no number since
	over   map[string]bool // topics whose end the open stream has told

	// When its last stream ended, on the clock of this process: not before, not after.
	early, late time.Time
	base        []int64   // what the log may have had of it at the last restart, as note.since; nil if a note is surely in it
	notes       []note    // since then
	lived       time.Time // when it was told last that a topic lives again, or was seen to know
	again       bool      // it may be told that again
	ending      bool      // nothing can be said of whether it outlives the next restart
	restarted   bool      // and had no frame since
}

// place is how far a client has come in one life of a topic.
type place struct {
	life int
	seq  uint64
}

// note is what the log has of a session: since when, on the lease clock, it has no stream;
// 0 while it has one.
type note struct {
	at    time.Time
	since int64
}

const (
	sessionTTL = api.SessionTTLMS * time.Millisecond
	// nearTTL is how close to its end nothing is said of whether a session is over.
	nearTTL = time.Second
)

// frame is an event of a stream.
type frame struct {
	kind string
	ids  map[string]uint64
	id   string
	data struct {
		Topic   string `json:"topic"`
		GapFrom uint64 `json:"gap_from"`
		GapTo   uint64 `json:"gap_to"`
		Reason  string `json:"reason"`
		Records []struct {
			Seq  uint64          `json:"$seq"`
			TS   int64           `json:"$ts"`
			Data json.RawMessage `json:"data"`
			Meta json.RawMessage `json:"meta"`
		} `json:"records"`
	}
}

// listen makes a step of one client.
//
// What this model finds was tried by hand, with 24 seeds each: a session is not in the log
// (lost, in all), what a client may have got is not revived (records come twice), a revived
// session stands at the head (records are left out), lives are not compared (no announcement),
// a stream is noted as its end (lost, in three), a backup keeps the sessions.
func (s *sim) listen() {
	s.guard()
	if n := len(s.listeners); n == 0 || n < 4 && s.chance(30) {
		s.subscribe()
		return
	}
	l := pickOf(s, s.listeners)
	switch n := s.rng.IntN(100); {
	case n < 4:
		s.hangUp(l)
		d := time.Duration(s.rng.Int64N(int64(sessionTTL + 5*nearTTL)))
		s.tell("%v pass without a stream", d)
		time.Sleep(d)
		s.clock()
		s.guard()
		s.connect(l)
	case n < 20:
		s.hangUp(l)
	case l.stream != nil && n < 70:
		s.follow(l)
	default:
		s.hangUp(l)
		s.connect(l)
	}
}

// subscribe makes a session of some topics.
func (s *sim) subscribe() {
	req := &api.WatchRequest{WatchOptions: api.WatchOptions{Limit: 1 + s.rng.IntN(50), MaxBatchBytes: 256 << 10, HeartbeatMS: 15000, IncludeMeta: true, IncludeData: true}}
	l := &listener{at: map[string]place{}, unsure: map[string]bool{}}
	for _, name := range slices.Sorted(maps.Keys(s.topics)) {
		t := s.topics[name]
		if !slices.Contains(names, name) || s.chance(50) {
			continue
		}
		w := api.WatchTopic{Topic: name}
		switch s.rng.IntN(3) {
		case 0:
			w.FromSeq, w.Tail = t.head, true
		case 1:
			w.FromSeq = s.rng.Uint64N(t.head + 1)
		}
		l.at[name] = place{t.life, w.FromSeq}
		req.Topics = append(req.Topics, w)
	}
	if len(req.Topics) == 0 {
		return
	}
	res, err := s.e.OpenSession(req, engine.Owner{})
	if err != nil {
		s.fail("a session of %v: %v", slices.Sorted(maps.Keys(l.at)), err)
	}
	l.wid, l.early, l.late = res.WID, time.Now(), time.Now()
	l.notes = []note{{time.Now(), s.leaseClock()}}
	s.listeners = append(s.listeners, l)
	s.tell("a session of %v", slices.Sorted(maps.Keys(l.at)))
	s.count["session"]++
}

// hangUp ends the stream of a client.
func (s *sim) hangUp(l *listener) {
	if l.stream == nil {
		return
	}
	s.tell("a stream ends")
	l.stream.Close()
	l.stream, l.early, l.late = nil, time.Now(), time.Now()
	l.notes = append(l.notes, note{time.Now(), s.leaseClock()})
}

// connect opens a stream on a session, with the newest id, an older one or none, and reads all
// that is there.
func (s *sim) connect(l *listener) {
	from, id, exact := l.at, l.id, true
	switch n := s.rng.IntN(10); {
	case n == 0 || l.id == "":
		id, exact = "", !l.restarted
	case n == 1 && l.back != "":
		from, id = l.backAt, l.back
		s.count["a client goes back"]++
	case n < 4 && l.lost != "" && time.Since(l.lived) < sessionTTL/2:
		from, id = l.lostAt, l.lost
		s.count["a client has not got an announcement"]++
	}
	if l.lost = ""; id != "" {
		l.id = id
	}
	before := s.leaseClock() // the store drops what is over by this clock
	st, err := s.e.OpenStream(l.wid, id)
	switch alive := time.Since(l.early) <= sessionTTL; {
	case codeOf(err) == api.CodeNotFound && !alive:
		s.tell("a session is over")
		s.count["a session is over"]++
		s.forget(l)
		return
	case err != nil && alive:
		s.fail("a stream of a session that had one %v ago: %v", time.Since(l.early), err)
	case err != nil:
		s.fail("a stream: %v", err)
	case time.Since(l.late) > sessionTTL:
		s.fail("a session lives %v after its last stream", time.Since(l.late))
	}
	if last := l.idle(); last > 0 && before-last > api.SessionTTLMS-nearTTL.Milliseconds() {
		l.ending = true
	}
	l.notes = append(l.notes, note{time.Now(), 0})
	l.stream, l.over, l.restarted = st, map[string]bool{}, false
	s.tell("a stream begins, with an id %v", id != "")
	s.count["stream"]++
	l.at = maps.Clone(from)
	frames := s.drain(l)
	for _, name := range slices.Sorted(maps.Keys(l.at)) {
		if err := s.sameStream(l, name, from[name], id != "", exact, frames); err != nil {
			s.fail("a stream at %s %d with id %v (exact %v): %v", name, from[name].seq, id != "", exact, err)
		}
	}
	s.moved(l, frames)
	l.again = l.again && id == ""
}

// drain takes all frames that are there.
func (s *sim) drain(l *listener) (all []frame) {
	for {
		b, err := l.stream.Next(bg, nil)
		if err != nil {
			s.fail("a stream: %v", err)
		}
		if len(b) > 0 {
			l.stream.Sent()
			all = append(all, s.frames(b)...)
			continue
		}
		synctest.Wait()
		select {
		case <-l.stream.Ready():
		default:
			return all
		}
	}
}

func (s *sim) frames(b []byte) (all []frame) {
	for block := range strings.SplitSeq(strings.TrimSuffix(string(b), "\n\n"), "\n\n") {
		var f frame
		for line := range strings.SplitSeq(block, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			var err error
			switch name {
			case "event":
				f.kind = value
			case "id":
				var text []byte
				f.id = value
				if text, err = base64.RawURLEncoding.DecodeString(value); err == nil {
					err = json.Unmarshal(text, &f.ids)
				}
			case "data":
				err = json.Unmarshal([]byte(value), &f.data)
			}
			if err != nil {
				s.fail("frame %q: %v", block, err)
			}
		}
		if f.data.Topic != "" {
			all = append(all, f)
		}
	}
	return all
}

// present is a topic as it must be now, nil if it is absent.
func (s *sim) present(name string) *topic {
	t := s.topics[name]
	if t == nil {
		return nil
	}
	t = t.clone()
	s.age(name, t, s.clock(), s.leaseClock())
	s.topics[name] = t
	return t
}

// sameStream holds what a new stream has brought of one topic against the model: all that lies
// behind the place of the client, once. Unless its place is exact it may be more.
func (s *sim) sameStream(l *listener, name string, from place, named, exact bool, frames []frame) error {
	var told []string
	for _, f := range frames {
		if f.data.Topic != name {
			continue
		}
		switch f.kind {
		case "tombstone":
			told = append(told, fmt.Sprintf("gap %d-%d %v", f.data.GapFrom, f.data.GapTo, f.data.Reason == "recreated"))
		case "record":
			for _, r := range f.data.Records {
				told = append(told, fmt.Sprintf("%d at %d %s %s", r.Seq, r.TS, r.Data, r.Meta))
			}
		default:
			told = append(told, f.kind)
		}
	}
	t := s.present(name)
	l.over[name] = t == nil
	want := expected(t, from, t != nil && from.life != t.life)
	if slices.Equal(told, want) {
		if t != nil && from.life == t.life && named && l.unsure[name] {
			l.unsure[name], l.lived = false, time.Now()
		}
		return nil
	}
	if t != nil && l.unsure[name] && slices.Equal(told, expected(t, from, true)) {
		s.count["an announcement is made again"]++
		return nil
	}
	if t != nil && l.again && slices.Equal(told, expected(t, from, true)) {
		return nil
	}
	if !exact && t != nil {
		for seq := range from.seq {
			if slices.Equal(told, expected(t, place{t.life, seq}, false)) {
				s.count["a stream repeats"]++
				return nil
			}
		}
		if slices.Equal(told, expected(t, from, true)) {
			return nil
		}
	}
	return fmt.Errorf("it brought %.60q, want %.60q", told, want)
}

// expected is what a new stream at a place brings.
func expected(t *topic, from place, recreated bool) (want []string) {
	if t == nil {
		return []string{"topic-deleted"}
	}
	pos := from.seq
	if recreated {
		want = append(want, fmt.Sprintf("gap 1-%d true", t.head))
		pos = t.earliest() - 1
	}
	for pos != t.head {
		p := t.read(pos, 1<<30, nil)
		if p.tomb != nil {
			want = append(want, fmt.Sprintf("gap %d-%d false", p.tomb.from, p.tomb.to))
		}
		for _, r := range p.recs {
			want = append(want, fmt.Sprintf("%d at %d %s %s", r.seq, r.ts, r.data, r.meta))
		}
		pos = p.next
	}
	return append(want, "caught-up")
}

// moved lets the client go on to where frames have brought it.
func (s *sim) moved(l *listener, frames []frame) {
	for _, f := range frames {
		if f.id == "" {
			s.fail("a frame %q of %s without an id", f.kind, f.data.Topic)
		}
		l.back, l.backAt = l.id, maps.Clone(l.at)
		l.id = f.id
		if name := f.data.Topic; f.kind == "tombstone" && f.data.Reason == "recreated" {
			l.lost, l.lostAt = l.back, l.backAt
			l.at[name] = place{s.topics[name].life, 0}
			l.lived = time.Now()
			l.unsure[name] = true
			l.back = "" // its number is of the life before
		}
		for name, seq := range f.ids {
			l.at[name] = place{l.at[name].life, seq}
		}
	}
}

// follow reads what has come on an open stream since: records that are gone again as well, but
// every one that is there, each once and in order.
func (s *sim) follow(l *listener) {
	time.Sleep(300 * time.Millisecond) // a visit gathers for less
	s.guard()
	frames := s.drain(l)
	for _, name := range slices.Sorted(maps.Keys(l.at)) {
		if l.over[name] {
			continue
		}
		if err := s.sameLive(l, name, frames); err != nil {
			s.fail("an open stream at %s %d: %v", name, l.at[name].seq, err)
		}
	}
	s.moved(l, frames)
	s.count["an open stream"]++
}

func (s *sim) sameLive(l *listener, name string, frames []frame) error {
	t, pos := s.present(name), l.at[name].seq
	shown := map[uint64]bool{}
	life := l.at[name].life
	for _, f := range frames {
		if f.data.Topic != name {
			continue
		}
		switch {
		case f.kind == "topic-deleted":
			l.over[name] = true
			if t != nil {
				return fmt.Errorf("told that it is deleted")
			}
			return nil
		case f.data.Reason == "recreated":
			if t == nil || life == t.life {
				return fmt.Errorf("told that it lives again")
			}
			life, pos = t.life, 0
		case f.kind == "tombstone":
			if f.data.GapFrom != pos+1 && f.data.GapFrom <= pos {
				return fmt.Errorf("a tombstone from %d on behind %d", f.data.GapFrom, pos)
			}
			pos = max(pos, f.data.GapTo)
		}
		for _, r := range f.data.Records {
			if r.Seq <= pos {
				return fmt.Errorf("record %d behind %d", r.Seq, pos)
			}
			pos = r.Seq
			if t == nil || life != t.life {
				continue
			}
			shown[pos] = true
			s.count["pushed"]++
			if k := t.find(pos); k >= 0 && t.recs[k].data != string(r.Data) {
				return fmt.Errorf("record %d is %.40s, want %.40s", pos, r.Data, t.recs[k].data)
			}
		}
	}
	switch {
	case t == nil:
		return fmt.Errorf("nobody told that it is deleted")
	case life != t.life:
		return fmt.Errorf("nobody told that it lives again")
	}
	from := l.at[name]
	for _, r := range t.recs {
		if (r.seq > from.seq || from.life != t.life) && !shown[r.seq] {
			return fmt.Errorf("record %d was left out", r.seq)
		}
	}
	return nil
}

func (s *sim) forget(l *listener) {
	s.listeners = slices.DeleteFunc(s.listeners, func(o *listener) bool { return o == l })
}

// disconnect ends all streams of an engine that is closed.
func (s *sim) disconnect() {
	for _, l := range s.listeners {
		if l.stream != nil {
			l.stream.Close()
			l.stream = nil
		}
	}
}

// settleNotes forgets what a crash cannot bring back: what the log has of a session is the last
// note that was surely written, or a later one. It is called before the restart.
func (s *sim) settleNotes(how stop) {
	for _, l := range s.listeners {
		for i, n := range slices.Backward(l.notes) {
			if s.old(how, n.at) {
				l.base, l.notes = nil, l.notes[i:]
				break
			}
		}
		if l.idle() > 0 && time.Since(l.early) > sessionTTL-nearTTL {
			l.ending = true // the clock may have been set back while the server was down
		}
		l.ending = l.ending || how == powerCut && l.base == nil && !s.old(how, l.notes[0].at)
		l.again = l.again || !s.old(how, l.lived)
		l.restarted = true
	}
}

// idle is since when the session has no stream, at the earliest; 0 if it has one.
func (l *listener) idle() int64 {
	if n := len(l.notes); n > 0 {
		return l.notes[n-1].since
	}
	first := int64(math.MaxInt64)
	for _, since := range l.base {
		if since > 0 {
			first = min(first, since)
		}
	}
	return first
}

// revived finds out which sessions a restart has left: all whose time is not over, and none
// whose is; till was the lease clock before it.
func (s *sim) revived(how stop, till int64) {
	start := s.lease
	for _, l := range slices.Clone(s.listeners) {
		l.early, l.late = time.Now(), time.Now().Add(-24*time.Hour*1000)
		lives, dies := !l.ending, true
		for _, n := range l.notes {
			l.base = append(l.base, n.since)
		}
		l.notes = nil
		for _, since := range l.base {
			idle, most := time.Duration(0), time.Duration(0)
			if since > 0 {
				idle = time.Duration(max(0, start-since)) * time.Millisecond
				most = time.Duration(max(idle.Milliseconds(), till-since)) * time.Millisecond
			}
			lives, dies = lives && most < sessionTTL-nearTTL, dies && idle > sessionTTL+nearTTL
			if at := s.start.Add(-idle - nearTTL); at.Before(l.early) {
				l.early = at
			}
			if at := s.start.Add(-idle + nearTTL); at.After(l.late) {
				l.late = at
			}
		}
		_, err := s.e.SessionOwner(l.wid)
		switch {
		case err != nil && lives:
			s.fail("a session is lost: %v; since %v, the clock is %d, it was %d", err, l.base, start, till)
		case err == nil && dies:
			s.fail("a session lives on: since %v, the clock is %d", l.base, start)
		case err != nil:
			s.tell("a session is gone")
			s.count["a session goes with a restart"]++
			s.forget(l)
			continue
		}
		if slices.Contains(l.base, 0) {
			l.base = append(l.base, start) // as the server notes it
		}
		s.count["a session outlives a "+how.String()]++
	}
}

func (h stop) String() string { return [...]string{"close", "kill", "power cut"}[h] }
