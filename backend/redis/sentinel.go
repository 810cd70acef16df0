package redis

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// The client asks one Sentinel for as long as that answers, and believes it. One that is cut off from the others has
// not heard of a failover, and names the old primary, which is a replica now or gone. So a server that does not take
// what is sent to it casts doubt on who has named it: the client has to ask others, which it does at the same time,
// and takes the first answer.

const (
	// doubtFor is how long a Sentinel is asked nothing. It hears from the others every two seconds.
	doubtFor = 10 * time.Second
	// doubtEvery is the least time between two doubts: those who used the same primary see the same.
	doubtEvery = time.Second
)

// sentinels are those of the URL.
type sentinels struct {
	addrs []string

	mu      sync.Mutex
	open    map[*conn]string    // guarded by mu; connections to them
	doubted map[string]struct{} // guarded by mu; these are asked nothing
	at      time.Time           // guarded by mu; since when
}

var errDoubted = errors.New("this Sentinel has named a server that is not the primary")

// has reports whether an address is a Sentinel's, which is asked for the primary.
func (s *sentinels) has(addr string) bool { return slices.Contains(s.addrs, addr) }

// asks reports whether a Sentinel may be asked.
func (s *sentinels) asks(addr string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) > doubtFor {
		clear(s.doubted)
	}
	if _, doubted := s.doubted[addr]; doubted {
		return errDoubted
	}
	return nil
}

func (s *sentinels) opened(c *conn, addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*conn]string{}
	}
	s.open[c] = addr
}

func (s *sentinels) closed(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// doubt closes the connections to the Sentinel that is asked, and has others asked. If there is none that has not
// been asked, all may be but the last.
func (s *sentinels) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(s.open) == 0 || now.Sub(s.at) < doubtEvery {
		return
	}
	if s.doubted == nil {
		s.doubted = map[string]struct{}{}
	}
	last := map[string]struct{}{}
	for c, addr := range s.open {
		last[addr] = struct{}{}
		s.doubted[addr] = struct{}{}
		_ = c.Conn.Close()
	}
	if len(s.doubted) == len(s.addrs) {
		clear(s.doubted)
		if len(last) < len(s.addrs) {
			s.doubted = last
		}
	}
	s.at = now
}
