package weir

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/admission"
)

const (
	// accountLasts is how long a stream counts in a budget after its last reading.
	accountLasts = 10 * time.Second
	// shortLasts is how long room is kept for a stream that has found none.
	shortLasts = time.Second
)

// budget is what the streams of this process share that name the same budget: what they
// are offered and what their workers do count as one.
type budget struct {
	control *admission.Controller
	ledger  *ledger // for streams whose backend keeps no budgets
	sent    atomic.Int64
}

var budgets = places[*budget]{make: func() *budget { return &budget{control: newController(), ledger: &ledger{}} }}

// purse is the part of a budget that a stream uses.
type purse struct {
	name     string
	stream   string
	place    string // the stream among those of all servers, as the local ledger knows it
	producer string // names the owner of the shares
	keeper   backend.Budgeter
	local    *ledger // where the keeper fails
}

// signalsFor returns the readings by which producers with that budget decide.
func (s *Stream) signalsFor(name string) *signals {
	if name == "" {
		return s.signals
	}
	s.budgets.Lock()
	defer s.budgets.Unlock()
	if sig := s.budgets.of[name]; sig != nil {
		return sig
	}
	shared, leave := budgets.join(name)
	p := &purse{name: name, stream: s.info.Stream + " " + s.info.Group, producer: rand.Text(), keeper: shared.ledger, local: shared.ledger}
	p.place = p.stream
	if at, ok := s.backend.(backend.Locator); ok {
		p.place = at.Place() + " " + s.info.Group
	}
	if keeper, ok := s.backend.(backend.Budgeter); ok {
		p.keeper = keeper
	}
	sig := &signals{backend: s.backend, control: shared.control, sent: &shared.sent, purse: p}
	if s.budgets.of == nil {
		s.budgets.of = map[string]*signals{}
	}
	s.budgets.of[name] = sig
	if s.leave = append(s.leave, leave); s.budgets.closed {
		leave()
	}
	return sig
}

// draw reads the stream and takes room from the budget. The reading is that of all its
// streams then; if the budget cannot be kept it is that of this stream.
func (s *signals) draw(ctx context.Context, set *settings, need int64, r *reading) {
	p := s.purse
	kept, used := s.keep(r.at)
	lasts := max(set.LagCache, 0) + shareLasts
	req := backend.DrawRequest{
		RoomRequest: backend.RoomRequest{
			Limit: set.limit, Pause: -1, Need: min(need, set.limit), Want: 2 * used,
			Kept: kept + s.flying.Load(), Lifetime: lasts + shareMargin,
		},
		Budget: p.name, Stream: p.stream, Producer: p.producer,
	}
	if set.rules == GuardOff || set.shadow {
		req.Need, req.Want = 0, 0
	}
	keeper := p.keeper
	var failed error
	if keeper != p.local {
		req.Spent, failed = keeper.Spent(ctx, p.name, p.stream)
	}
	if keeper == p.local || failed != nil {
		keeper, req.Stream = p.local, p.place
		req.Spent, _ = p.local.Spent(ctx, p.name, p.place)
	}
	if r.sig, r.err = s.own(ctx, set.limit); r.err != nil {
		s.size = kept
		return
	}
	req.Signal = r.sig
	aside := set.rules == GuardAdaptive && (r.sig.Paused || s.deserted(&r.sig))
	if aside {
		req.Signal = laidAside(r.sig)
	}
	all, room, err := keeper.Draw(ctx, req)
	if err != nil {
		room.Err = err
	} else {
		own := r.sig
		r.sig, r.alone, r.aside = all, &own, aside
		r.sig.Paused = false
		if r.origin = ofBudget; failed != nil {
			r.origin = ofLedger
		}
	}
	if failed != nil && !s.shares.alone.Swap(true) {
		set.Logger.Warn("weir: each process keeps the budget on its own: it cannot be shared", "budget", p.name, "error", failed)
	}
	s.shared(ctx, set, room, req.RoomRequest, kept, lasts, r)
	s.shares.alone.Store(failed != nil || err != nil)
}

// laidAside is the reading of a stream on which nobody works as a budget takes it: what waits
// in it takes room, and waits for none of the workers.
func laidAside(s backend.Signal) backend.Signal {
	s.Delayed += waiting(&s)
	s.Lag, s.Behind, s.Retrying = new(int64), 0, 0
	return s
}

// deserted reports whether messages have waited since the last reading of the stream of which
// none was claimed or finished.
func (s *signals) deserted(now *backend.Signal) bool {
	last := s.last.Load()
	if last == nil || last.alone == nil || last.alone.Finished == nil || now.Finished == nil {
		return false
	}
	before := last.alone
	return before.Pending+now.Pending == 0 && *before.Finished == *now.Finished && min(waiting(before), waiting(now)) > 0
}

// ledger keeps the budgets of one process.
type ledger struct {
	mu       sync.Mutex
	accounts map[string]*account
}

// account is one stream of a budget. What it holds is at most base + spent and its
// shares, since the reading that base comes from.
type account struct {
	spent, base int64
	read        backend.Signal // its Finished less before
	before      int64
	until       time.Time // when it does not count any more
	short       time.Time // until when it wants more room than it had
	shares      map[string]promise
}

// promise is a producer's share.
type promise struct {
	n     int64
	until time.Time
}

func (a *account) promised() (n int64) {
	for _, p := range a.shares {
		n += p.n
	}
	return n
}

func (a *account) holds() int64 { return max(a.base+a.spent, 0) + a.promised() }

// Spent implements backend.Budgeter.
func (l *ledger) Spent(_ context.Context, _, stream string) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[stream]; a != nil {
		return a.spent, nil
	}
	return 0, nil
}

// TallyBudget implements backend.Budgeter: one process knows what it is offered.
func (l *ledger) TallyBudget(context.Context, string, []uint32) ([]uint32, error) { return nil, nil }

// Draw implements backend.Budgeter. The script draw.lua of package redis does the same.
func (l *ledger) Draw(_ context.Context, req backend.DrawRequest) (backend.Signal, backend.Room, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	a := l.report(&req, now)
	even := req.Limit / int64(len(l.accounts))
	total, reserved, promised, depth, producers := int64(0), int64(0), int64(0), int64(0), int64(0)
	all := backend.Signal{Workers: new(int64), Lag: new(int64), Finished: new(int64), Paused: req.Signal.Paused}
	for _, other := range l.accounts {
		total += other.holds()
		promised += other.promised()
		depth += max(other.base+other.spent, 0)
		producers += int64(len(other.shares))
		if other != a && other.short.After(now) {
			reserved += max(0, even-other.holds())
		}
		addSignal(&all, &other.read)
	}
	free := req.Limit - total
	usable := max(free-reserved, min(free, even-a.holds()))
	fair, given := (req.Limit-depth)/(2*producers), int64(0)
	if req.Need > 0 && usable >= req.Need {
		given = min(usable, max(req.Need, min(fair, max(req.Want, fair/8))))
	}
	a.short = time.Time{}
	if given < req.Need {
		a.short = now.Add(shortLasts)
	}
	a.shares[req.Producer] = promise{req.Kept + given, now.Add(req.Lifetime)}
	return all, backend.Room{Given: given, Taken: promised - req.Kept}, nil
}

// report forgets what is over and takes over a reading. What the caller's share has lost
// was appended before the reading began. The sum of what is finished counts on when a stream
// joins or is forgotten: what it had finished before, or had finished by then, is no work done now.
func (l *ledger) report(req *backend.DrawRequest, now time.Time) *account {
	left := int64(0)
	for name, a := range l.accounts {
		for producer, p := range a.shares {
			if !p.until.After(now) && producer != req.Producer {
				a.spent += p.n
				delete(a.shares, producer)
			}
		}
		if !a.until.After(now) && name != req.Stream {
			if n := a.read.Finished; n != nil {
				left += *n
			}
			delete(l.accounts, name)
		}
	}
	if l.accounts == nil {
		l.accounts = map[string]*account{}
	}
	a := l.accounts[req.Stream]
	if a == nil {
		a = &account{shares: map[string]promise{}}
		l.accounts[req.Stream] = a
	}
	landed := max(0, a.shares[req.Producer].n-req.Kept)
	a.spent += landed
	a.base = depthOf(&req.Signal) - req.Spent - landed
	known := a.read.Finished != nil
	a.read, a.until = req.Signal, now.Add(accountLasts)
	if n := req.Signal.Finished; n != nil {
		if !known || *n < a.before { // it is new, or was made again
			a.before = *n
		}
		a.before -= left
		a.read.Finished = new(*n - a.before)
	}
	a.shares[req.Producer] = promise{req.Kept, now.Add(req.Lifetime)}
	return a
}

// addSignal adds what was read of a stream; what is unknown of one is unknown.
func addSignal(all, one *backend.Signal) {
	all.Pending += one.Pending
	all.XLen += one.XLen
	all.Behind += one.Behind
	all.Delayed += one.Delayed
	all.Retrying += one.Retrying
	all.GivenBack += one.GivenBack
	if one.Lag != nil {
		all.Behind += *one.Lag
	}
	for _, n := range []struct {
		sum **int64
		of  *int64
	}{{&all.Workers, one.Workers}, {&all.Lag, one.Lag}, {&all.Finished, one.Finished}} {
		switch {
		case n.of == nil:
			*n.sum = nil
		case *n.sum != nil:
			**n.sum += *n.of
		}
	}
}
