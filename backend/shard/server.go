package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirmq/weir/backend"
)

// server is what Redis offers beyond a queue of weir's own.
type server interface {
	backend.Sharer
	backend.Budgeter
	backend.Windower
	backend.Trimmer
	backend.Shared
}

// onServer is a Stream whose shards are such servers.
type onServer struct{ *Stream }

var _ server = (*onServer)(nil)

func (s *onServer) zero() server { return s.all()[0].Backend.(server) }

// Tally counts at the first shard, whose load says nothing about the others. If it has no
// counters nothing is known.
func (s *Stream) Tally(ctx context.Context, add []uint32) ([]uint32, *backend.Signal, error) {
	b, ok := s.all()[0].Backend.(backend.Tallier)
	if !ok {
		return nil, nil, nil
	}
	sums, _, err := b.Tally(ctx, add)
	return sums, nil, err
}

// Share reads all shards and takes a share of the room below a limit on their sum. It is
// a budget with one stream, kept where the first shard is.
func (s *onServer) Share(ctx context.Context, req backend.RoomRequest) (backend.Signal, backend.Room, error) {
	name := s.opt.Name + " " + s.info.Group // no budget of a user has a space
	spent, failed := s.Spent(ctx, name, name)
	sig, err := s.Signal(ctx, req.Limit)
	if err != nil || failed != nil {
		return sig, backend.Room{Err: failed}, err
	}
	if req.Pause >= 0 && sig.Lag != nil {
		req.Limit = min(req.Limit, req.Pause+req.Need+sig.Delayed) // nobody waits for what is not due
	}
	_, room, failed := s.Draw(ctx, backend.DrawRequest{
		RoomRequest: req, Budget: name, Stream: name, Producer: s.producer, Spent: spent, Signal: sig,
	})
	if failed != nil {
		room.Err = failed
	}
	return sig, room, nil
}

// Spent asks the first shard's server, which keeps the budget.
func (s *onServer) Spent(ctx context.Context, budget, stream string) (int64, error) {
	return s.zero().Spent(ctx, budget, stream)
}

// Draw draws on the first shard's server.
func (s *onServer) Draw(ctx context.Context, req backend.DrawRequest) (backend.Signal, backend.Room, error) {
	return s.zero().Draw(ctx, req)
}

// TallyBudget counts on the first shard's server.
func (s *onServer) TallyBudget(ctx context.Context, budget string, add []uint32) ([]uint32, error) {
	return s.zero().TallyBudget(ctx, budget, add)
}

// Window counts at the first shard.
func (s *onServer) Window(ctx context.Context, most, want int64, length time.Duration) (int64, time.Duration, error) {
	return s.zero().Window(ctx, most, want, length)
}

// Trim trims every shard; a MaxLen is divided among them.
func (s *onServer) Trim(ctx context.Context, req backend.TrimRequest) (backend.Trimmed, error) {
	all := s.all()
	if req.MaxLen > 0 {
		req.MaxLen = (req.MaxLen + int64(len(all)) - 1) / int64(len(all))
	}
	each, errs := fan(all, func(_ int, p *part) (backend.Trimmed, error) {
		trimmed, err := p.Backend.(server).Trim(ctx, req)
		return trimmed, p.named(err)
	})
	var sum backend.Trimmed
	missing := 0
	for i, t := range each {
		if errors.Is(errs[i], backend.ErrStreamNotFound) && missing < len(all)-1 {
			missing, errs[i] = missing+1, nil
		}
		sum.Removed += t.Removed
		sum.Dropped += t.Dropped
		sum.Owner = max(sum.Owner, t.Owner)
	}
	return sum, firstOf(errs)
}

// Others asks the shard that the stream names, or every one.
func (s *onServer) Others(ctx context.Context, stream, group string) ([]string, error) {
	if stream != "" && stream != s.opt.Name {
		return s.zero().Others(ctx, stream, group)
	}
	each, errs := fan(s.all(), func(_ int, p *part) ([]string, error) { return p.Backend.(server).Others(ctx, "", group) })
	seen := map[string]bool{}
	var all []string
	for i, names := range each {
		if errors.Is(errs[i], backend.ErrStreamNotFound) {
			errs[i] = nil
		}
		for _, name := range names {
			if !seen[name] {
				seen[name], all = true, append(all, name)
			}
		}
	}
	return all, firstOf(errs)
}

// Examine looks at every shard. What is found about the server is said once.
func (s *Stream) Examine(ctx context.Context) ([]backend.Finding, error) {
	parts := s.all()
	each, errs := fan(parts, func(_ int, p *part) ([]backend.Finding, error) {
		if doctor, ok := p.Backend.(backend.Doctor); ok {
			return doctor.Examine(ctx)
		}
		return nil, nil
	})
	found := []backend.Finding{}
	said := map[string]bool{}
	for i, findings := range each {
		for _, f := range findings {
			if f.Concern != backend.OfServer {
				f.Problem = fmt.Sprintf("%s.%d: %s", s.opt.Name, i, f.Problem)
				f.Command = parts[i].Backend.(backend.Doctor).Command(f.Code)
			} else if said[f.Code] {
				continue
			}
			said[f.Code] = true
			found = append(found, f)
		}
	}
	return found, firstOf(errs)
}

// Command is the first shard's, for the stream as a whole.
func (s *Stream) Command(code string) string {
	if doctor, ok := s.all()[0].Backend.(backend.Doctor); ok {
		return doctor.Command(code)
	}
	return ""
}

// Ping is how long the slowest shard takes.
func (s *Stream) Ping(ctx context.Context) (time.Duration, error) {
	each, errs := fan(s.all(), func(_ int, p *part) (time.Duration, error) {
		if doctor, ok := p.Backend.(backend.Doctor); ok {
			return doctor.Ping(ctx)
		}
		return 0, nil
	})
	slowest := time.Duration(0)
	for _, d := range each {
		slowest = max(slowest, d)
	}
	return slowest, firstOf(errs)
}
