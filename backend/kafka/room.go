package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirmq/weir/backend"
)

var _ backend.Sharer = (*Backend)(nil)

// roomKept is how long a share is remembered after its end, for those who had read the
// ledger before it was taken and take theirs after.
const roomKept = 2 * callTimeout

// shownWithin is how long a leader that has just been elected may not show what the one before it has
// acknowledged, while the replicas catch up.
const shownWithin = 250 * time.Millisecond

// roomEntry asks for a share of the room. How much is given follows from it and from the
// entries before it, so every reader of the ledger knows.
type roomEntry struct {
	Read int64 `json:"read"` // the ledger's offset behind what was read before the load was
	Room int64 `json:"room"` // below the limits, by the load that was read
	Kept int64 `json:"kept"`
	Need int64 `json:"need"`
	Want int64 `json:"want"`
	Life int64 `json:"life_ms"`
}

// share is what an entry was given.
type share struct {
	offset   int64
	key      string
	messages int64 // that may be appended, kept ones too
	given    int64
	others   int64 // what the other producers might append then
	ends     time.Time
}

// Share reads the ledger and the signal, asks in the ledger for a share of the room, and reads
// there what it is given: one append and two reads beside those of a signal.
func (b *Backend) Share(ctx context.Context, req backend.RoomRequest) (backend.Signal, backend.Room, error) {
	if err := b.rooms.turn.take(ctx); err != nil {
		return backend.Signal{}, backend.Room{}, err
	}
	defer b.rooms.turn.give()
	read, why := int64(0), b.rooms.denied.still()
	if why == nil {
		read, why = b.ledger.upTo(ctx)
	}
	s, err := b.Signal(ctx, req.Limit)
	if err != nil {
		return s, backend.Room{}, err
	}
	if why == nil {
		e := roomEntry{read, roomOf(&s, &req), req.Kept, req.Need, req.Want, req.Lifetime.Milliseconds()}
		var got share
		if got, why = b.ledger.takeShare(ctx, &e); why == nil {
			b.rooms.denied.note(nil)
			return s, backend.Room{Given: got.given, Taken: got.others}, nil
		}
	}
	why = fmt.Errorf("topic %q, where producers share the room: %w", b.set.ledger(), b.cut(ctx, b.explain(why)))
	if isDenial(why) && b.rooms.denied.still() == nil {
		b.rooms.denied.note(why)
	}
	return s, backend.Room{Err: why}, nil
}

// rooms is what this handle knows about sharing.
type rooms struct {
	turn   turn // of who takes a share
	denied refusal
}

// roomOf is what the load leaves below the limits.
func roomOf(at *backend.Signal, req *backend.RoomRequest) int64 {
	if at.Lag == nil {
		return req.Limit - at.Pending - at.Behind
	}
	ceiling := req.Limit
	if req.Pause >= 0 {
		ceiling = min(ceiling, req.Pause+req.Need)
	}
	return ceiling - at.Pending - *at.Lag
}

func (l *ledger) allRooms() string { return "room/" + l.b.set.group + "/" }
func (l *ledger) room() string     { return l.allRooms() + l.b.group.name() }

// upTo reads the ledger and returns up to where.
func (l *ledger) upTo(ctx context.Context) (int64, error) {
	call, done, err := l.b.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	if err := l.refresh(call); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next, nil
}

// takeShare writes an entry and reads what it is given.
func (l *ledger) takeShare(ctx context.Context, e *roomEntry) (share, error) {
	call, done, err := l.b.begin(ctx)
	if err != nil {
		return share{}, err
	}
	defer done()
	id, err := l.append(call, l.room(), &entry{Room: e})
	if err != nil {
		return share{}, err
	}
	for end := time.Now().Add(shownWithin); ; {
		if err := l.refresh(call); err != nil {
			return share{}, err
		}
		if s, ok := l.given(id); ok {
			return s, nil
		}
		if time.Now().After(end) || !l.b.pause(call, retryFetch) {
			return share{}, fmt.Errorf("kafka: %w: the entry %s cannot be read", backend.ErrUnavailable, id)
		}
	}
}

// given returns what the handle's entry of that ID was given.
func (l *ledger) given(id string) (share, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.shares {
		if s := &l.shares[i]; s.key == l.room() && idOf(0, s.offset) == id {
			return *s, true
		}
	}
	return share{}, false
}

// noteRoom gives a share. What other producers might append beside the load that was read
// are the shares they had by then, and all that they were given since. The lock is held.
func (l *ledger) noteRoom(key string, offset int64, at time.Time, e *roomEntry) {
	if !under(key, l.allRooms()) || len(l.shares) > 0 && l.shares[len(l.shares)-1].offset >= offset {
		return
	}
	l.shares = slices.DeleteFunc(l.shares, func(s share) bool { return at.After(s.ends.Add(roomKept)) })
	theirs := map[string]int64{}
	for i := range l.shares {
		switch s := &l.shares[i]; {
		case s.key == key:
		case s.offset >= e.Read:
			theirs[s.key] += s.given
		case at.Before(s.ends):
			theirs[s.key] = s.messages
		default:
			delete(theirs, s.key)
		}
	}
	mine := share{offset: offset, key: key, ends: at.Add(time.Duration(e.Life) * time.Millisecond)}
	for _, n := range theirs {
		mine.others += n
	}
	mine.given = e.divide(mine.others, int64(len(theirs))+1)
	mine.messages = e.Kept + mine.given
	l.shares = append(l.shares, mine)
}

// divide says how much is given while others may append so many messages. Half of what is
// left stays for who comes next.
func (e *roomEntry) divide(others, producers int64) int64 {
	free := e.Room - others - e.Kept
	if e.Need <= 0 || free < e.Need {
		return 0
	}
	fair := e.Room / (2 * producers)
	return min(free, max(e.Need, min(fair, max(e.Want, fair/8))))
}
