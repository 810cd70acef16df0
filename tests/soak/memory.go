package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// growth is the resident memory of a process over a run.
type growth struct {
	name              string
	first, last, most int64
}

func (g *growth) String() string {
	const mib = 1 << 20
	return fmt.Sprintf("memory of %s: %d MiB after a tenth of the time, %d MiB at the end (%+.1f %%), %d MiB at most",
		g.name, g.first/mib, g.last/mib, 100*(float64(g.last)/float64(g.first)-1), g.most/mib)
}

// watch measures from now on, until the function is called that it returns.
func watch(ctx context.Context, p *place, length time.Duration) func() []*growth {
	ctx, stop := context.WithCancel(ctx)
	all := []*growth{{name: "this process"}}
	if p.redis != nil {
		all = append(all, &growth{name: "Redis"})
	}
	began := time.Now()
	measure := func() {
		for i, of := range []func() int64{resident, p.redisResident}[:len(all)] {
			n, g := of(), all[i]
			if g.first == 0 && time.Since(began) >= length/10 {
				g.first = n
			}
			g.last, g.most = n, max(g.most, n)
		}
	}
	var end sync.WaitGroup
	end.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				measure()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() []*growth {
		stop()
		end.Wait()
		return all
	}
}

// resident is the memory of this process, 0 where the system does not tell.
func resident() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64) // else 0
			return kb << 10
		}
	}
	return 0
}

// redisResident is the memory of Redis.
func (p *place) redisResident() int64 {
	text, err := p.redis.Info(context.Background(), "memory").Result()
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(text, "used_memory_rss:")
	number, _, _ := strings.Cut(rest, "\r")
	n, _ := strconv.ParseInt(number, 10, 64) // else 0
	return n
}
