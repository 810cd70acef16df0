package restore

import (
	"fmt"
	"path"
	"strings"

	"github.com/weirmq/weir/internal/replica"
)

const segmentSuffix = ".wal"

func segmentName(number uint32) string { return fmt.Sprintf("%010d%s", number, segmentSuffix) }

// chain checks that each entry goes on where the ones before have ended.
type chain struct {
	term   uint64
	last   uint64
	lowest uint32           // segment that the base has; the store holds what is in front of it
	end    map[uint32]int64 // of what there is of each segment's file
}

func newChain(base *replica.Base) chain {
	c := chain{term: base.Term, last: base.LSN, end: map[uint32]int64{}}
	for _, f := range base.Files {
		var n uint32
		if path.Dir(f.Name) != "wal" || !strings.HasSuffix(f.Name, segmentSuffix) {
			continue
		}
		if _, err := fmt.Sscanf(path.Base(f.Name), "%d", &n); err != nil {
			continue
		}
		c.end[n] = f.Size
		if c.lowest == 0 || n < c.lowest {
			c.lowest = n
		}
	}
	return c
}

// next decodes an entry and checks that it follows those before. The one that
// begins a term holds nothing.
func (c *chain) next(e *replica.Entry) (g replica.Group, err error) {
	if g.Term = e.Term; len(e.Data) > 0 {
		g, err = replica.DecodeGroup(e.Data)
	}
	switch {
	case err != nil:
	case g.Term != e.Term:
		err = fmt.Errorf("%w: a group of term %d in an entry of term %d", replica.ErrDamaged, g.Term, e.Term)
	case e.Term > c.term && len(e.Data) > 0:
		err = fmt.Errorf("%w: the entry that begins term %d is missing", replica.ErrDamaged, e.Term)
	case g.Term < c.term:
		err = fmt.Errorf("%w: a group of term %d behind one of term %d", replica.ErrDamaged, g.Term, c.term)
	}
	if err == nil && (len(g.Pieces) == 0 || g.Ends()) && g.Last > c.last {
		err = fmt.Errorf("%w: operations %d to %d are missing", replica.ErrDamaged, c.last+1, g.Last)
	}
	if err != nil {
		return g, fmt.Errorf("position %d: %w", e.Pos, err)
	}
	c.term, c.last = g.Term, max(c.last, g.Last)
	for _, p := range g.Pieces {
		if p.Segment < c.lowest {
			continue
		}
		if end := c.end[p.Segment]; p.Offset > end {
			return g, fmt.Errorf("position %d: %w: bytes of log file %s from %d on are missing, the entry goes on at %d", e.Pos, replica.ErrDamaged, segmentName(p.Segment), end, p.Offset)
		}
		c.end[p.Segment] = max(c.end[p.Segment], p.Offset+int64(len(p.Bytes)))
	}
	return g, nil
}
