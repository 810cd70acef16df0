package shard

import (
	"context"
	"fmt"

	"github.com/weirmq/weir/backend"
)

// shelf is the dead-letter stream of a shard: each has its own, under a name with the
// shard's number.
func (s *Stream) shelf(p *part, name string) string {
	if name == "" || name == s.info.DeadLetter {
		return ""
	}
	return fmt.Sprintf("%s.%d", name, p.number)
}

// letter is a shard's dead letter as one of the whole stream, which has that name.
func (p *part) letter(l backend.DeadLetter, name string) backend.DeadLetter {
	if l.ID != "" {
		l.ID = p.prefix + l.ID
	}
	if l.OriginID != "" {
		l.OriginID = p.prefix + l.OriginID
	}
	if l.Stream == p.Info().Stream {
		l.Stream = name
	}
	return l
}

// List returns dead letters of one shard after the other.
func (s *Stream) List(ctx context.Context, from, after string, most int) ([]backend.DeadLetter, error) {
	all := s.all()
	own := ""
	if after != "" {
		p, name := s.split(after)
		if p == nil {
			return nil, fmt.Errorf("%w: dead letter %q is of no shard", backend.ErrNotFound, after)
		}
		all, own = all[p.number:], name
	}
	var list []backend.DeadLetter
	for _, p := range all {
		if len(list) >= most {
			break
		}
		letters, err := p.letters()
		if err != nil {
			return list, err
		}
		some, err := letters.List(ctx, s.shelf(p, from), own, most-len(list))
		if err != nil {
			return list, err
		}
		for _, l := range some {
			list = append(list, p.letter(l, s.opt.Name))
		}
		own = ""
	}
	return list, nil
}

// letters are the shard's dead letters.
func (p *part) letters() (backend.DeadLetters, error) {
	letters, ok := p.Backend.(backend.DeadLetters)
	if !ok {
		return nil, fmt.Errorf("the dead letters of %q cannot be listed", p.Info().Stream)
	}
	return letters, nil
}

// Redrive sends a dead letter back to its shard.
func (s *Stream) Redrive(ctx context.Context, from string, letter backend.DeadLetter) error {
	p, name := s.split(letter.ID)
	if p == nil {
		return fmt.Errorf("%w: dead letter %q is of no shard", backend.ErrNotFound, letter.ID)
	}
	letters, err := p.letters()
	if err != nil {
		return err
	}
	letter.ID = name
	if origin, own := s.split(letter.OriginID); origin == p {
		letter.OriginID = own
	}
	if letter.Stream == s.opt.Name {
		letter.Stream = p.Info().Stream
	}
	return letters.Redrive(ctx, s.shelf(p, from), letter)
}

// Purge removes dead letters from their shards.
func (s *Stream) Purge(ctx context.Context, from string, ids []string) (int, error) {
	own := map[*part][]string{}
	for _, id := range ids {
		if p, name := s.split(id); p != nil {
			own[p] = append(own[p], name)
		}
	}
	removed := 0
	for p, names := range own {
		letters, err := p.letters()
		if err != nil {
			return removed, err
		}
		n, err := letters.Purge(ctx, s.shelf(p, from), names)
		removed += n
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// CheckDeadLetter applies the rules of the shards to the names they would use.
func (s *Stream) CheckDeadLetter(name string) error {
	for _, p := range s.all() {
		names, ok := p.Backend.(backend.DeadLetterNames)
		if !ok || name == "" {
			return nil
		}
		if err := names.CheckDeadLetter(s.shelf(p, name)); err != nil {
			return err
		}
	}
	return nil
}
