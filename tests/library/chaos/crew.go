package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// crew is the worker processes. One that ends is started again under another name.
type crew struct {
	program string
	dir     string // of the journals
	config  workerConfig

	mu       sync.Mutex
	stopping bool
	seats    []*seat
	kills    map[string]span
	deaths   []string // of processes that ended by themselves
	running  sync.WaitGroup
}

// seat holds one process at a time.
type seat struct {
	number, lives int
	name          string
	cmd           *exec.Cmd // nil: none runs
}

// startCrew starts n processes.
func startCrew(dir string, n int, config workerConfig) (*crew, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &crew{program: program, dir: dir, config: config, kills: map[string]span{}}
	for i := range n {
		s := &seat{number: i}
		c.seats = append(c.seats, s)
		c.running.Go(func() { c.fill(s) })
	}
	return c, nil
}

// fill keeps a process in a seat until the crew stops.
func (c *crew) fill(s *seat) {
	for {
		cmd, err := c.start(s)
		if err != nil {
			c.died(fmt.Sprintf("no process for seat %d: %v", s.number, err))
			return
		}
		if cmd == nil {
			return
		}
		err = cmd.Wait()
		c.left(s, err)
	}
}

// start starts the next process of a seat, nil if the crew stops.
func (c *crew) start(s *seat) (*exec.Cmd, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return nil, nil
	}
	s.lives++
	s.name = fmt.Sprintf("w%d.%d", s.number, s.lives)
	config := c.config
	config.Name, config.Journal = s.name, filepath.Join(c.dir, s.name+".journal")
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(c.dir, s.name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(c.program)
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	cmd.Stderr = log
	if _, err := cmd.StdinPipe(); err != nil { // never written to: its end tells of ours
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.cmd = cmd
	return cmd, nil
}

// left is told that the process of a seat has ended.
func (c *crew) left(s *seat, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.cmd = nil
	if kill, killed := c.kills[s.name]; killed {
		kill.to = time.Now().UnixNano()
		c.kills[s.name] = kill
		return
	}
	if err != nil || !c.stopping {
		c.deaths = append(c.deaths, fmt.Sprintf("worker %s ended by itself: %v; see %s.log", s.name, err, s.name))
	}
}

func (c *crew) died(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaths = append(c.deaths, why)
}

// killLoop kills a random process every so often until ctx ends.
func (c *crew) killLoop(ctx context.Context, every time.Duration, random *rand.Rand) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.kill(c.seats[random.IntN(len(c.seats))])
		case <-ctx.Done():
			return
		}
	}
}

func (c *crew) kill(s *seat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, killed := c.kills[s.name]; s.cmd == nil || killed {
		return
	}
	now := time.Now().UnixNano()
	c.kills[s.name] = span{now, now + int64(time.Hour)} // until it is known better
	_ = s.cmd.Process.Kill()                            // an error means that it has ended already
}

// stop lets every process drain and waits for them; those that are not done by
// then are killed.
func (c *crew) stop(within time.Duration) {
	c.mu.Lock()
	c.stopping = true
	for _, s := range c.seats {
		if s.cmd != nil {
			_ = s.cmd.Process.Signal(syscall.SIGTERM) // an error shows in how it ends
		}
	}
	c.mu.Unlock()
	late := time.AfterFunc(within, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.seats {
			if s.cmd != nil {
				_ = s.cmd.Process.Kill()
			}
		}
	})
	defer late.Stop()
	c.running.Wait()
}
