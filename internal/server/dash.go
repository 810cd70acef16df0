package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/dash"
	"github.com/weirmq/weir/internal/engine"
)

const (
	// maxDashTopics bounds the topics on the dashboard.
	maxDashTopics = 1000
	// maxAges bounds the queues whose oldest job is read for it.
	maxAges = 200
	// deadSuffix is of the topic into which the library and its commands put the dead
	// letters of a queue that names none.
	deadSuffix = ".dlq"
	// attendedFor is how long after a claim a worker is believed to be there, unless it has
	// a work stream: the lag_ttl of a pool.
	attendedFor = 10 * time.Second
)

// readDash reads what the dashboard shows.
func (s *Server) readDash(ctx context.Context) (dash.Reading, error) {
	out := dash.Reading{Server: &dash.Server{Version: s.version, UptimeMS: s.uptime(), Bands: []int{}}}
	e := s.engine.Load()
	if e == nil {
		return out, nil
	}
	n := e.Metrics()
	d := out.Server
	d.Ready = !s.draining.Load()
	d.Writable, d.Why = e.Writable()
	p := &n.Push
	d.Pressure, d.Depth, d.Latency, d.Pool, d.Rung = p.Pressure, p.DepthSignal, p.LatencySignal, p.Pool, p.Rung
	d.Bands, d.Deferred, d.Lagged, d.Connections = p.Ready[:], p.Deferred, p.Lagged, int64(s.streams.count())
	if d.DiskReserve = n.DiskReserve; n.DiskFree >= 0 {
		d.DiskFree = &n.DiskFree
	}
	d.Fsyncs, d.FsyncTotal = n.WAL.Fsyncs, float64(n.WAL.FsyncMicros)/1000
	for _, w := range p.Waits {
		d.Pushes += w
	}
	d.PushTotal = p.WaitSumMS
	rows, more := e.Busiest(maxDashTopics, nil)
	out.More = more
	out.Streams = make([]dash.Stream, len(rows))
	at := make(map[string]int, len(rows))
	for i := range rows {
		out.Streams[i], at[rows[i].Topic] = dashStream(&rows[i]), i
	}
	hooks, _ := s.hooks.All() // its error has been logged
	for i := range hooks {
		if j, ok := at[hooks[i].Config.Topic]; ok && hooks[i].Failing {
			out.Streams[j].Failing++
		}
	}
	aged := 0
	for i := range rows {
		r, d := &rows[i], &out.Streams[i]
		if !r.Queue {
			continue
		}
		dead := deadOf(r.Topic, &r.Config)
		if j, ok := at[dead]; ok {
			n := int64(rows[j].Count)
			d.Dead, out.Streams[j].Letters = &n, r.Topic
		} else if more {
			n := int64(e.Count(dead))
			d.Dead = &n
		}
		if r.Count == 0 || aged == maxAges {
			continue
		}
		aged++
		ts, err := int64(0), error(nil)
		// The first record may be one that is not due, or was not for long.
		if r.Jobs.Scheduled > 0 || r.Jobs.InFlight == 0 && r.Jobs.Delayed == 0 {
			ts, _, err = e.OldestReady(ctx, r.Topic, true)
		} else {
			ts, err = e.Oldest(ctx, r.Topic)
		}
		if err == nil && ts > 0 {
			age := max(0, time.Now().UnixMilli()-ts)
			d.OldestMS = &age
		}
	}
	return out, nil
}

// dashStream is a topic as the dashboard shows it.
func dashStream(r *engine.TopicRow) dash.Stream {
	stored := int64(r.Count)
	d := dash.Stream{
		ID: r.Topic, Name: r.Topic, Kind: "log", Durability: r.Config.Durability.String(), Stored: &stored,
		In: float64(r.HeadSeq), Out: float64(r.HeadSeq - r.Count),
	}
	if !r.Queue {
		return d
	}
	ready, pending, dead := int64(r.Jobs.Ready), int64(r.Jobs.InFlight), int64(0)
	d.Kind, d.Lag, d.Pending = "queue", &ready, &pending
	d.Dead, d.Paused = &dead, r.Config.Paused
	attended := isAttended(r)
	if attended {
		d.Signal = &pending
	}
	// A pool extends what it holds at a third of the lease.
	if r.Streams == 0 && r.Jobs.InFlight > 0 && r.Heard >= max(attendedFor, r.Lease/2) {
		ms := r.Heard.Milliseconds()
		d.SilentMS = &ms
	}
	if r.Streams > 0 || !attended { // who polls is not counted
		d.Workers = &r.Streams
	}
	d.Reasons = make(map[string]float64, len(r.Produced.Failed))
	for i, n := range r.Produced.Failed {
		d.Refused += float64(n)
		d.Reasons[engine.ProduceReasons[i]] = float64(n)
	}
	if o := r.Overload; o != nil {
		d.Control = &dash.Control{SLOMS: int64(r.Config.WaitSLOMS), Refused: o.Refused, Cut: o.Lowest.String()}
		for rank := len(o.Tiers) - 1; rank >= 0; rank-- {
			tier, _ := api.TierOf(rank)
			t := o.Tiers[rank]
			d.Control.Tiers = append(d.Control.Tiers, dash.Tier{Name: tier.String(), Offered: float64(t.Offered), Refused: float64(t.Refused)})
		}
		if o.Wait >= 0 {
			ms := float64(o.Wait) / float64(time.Millisecond)
			d.Control.WaitMS = &ms
		}
		if o.Drain > 0 {
			d.Control.Drain = &o.Drain
		}
	}
	return d
}

// getPage answers with a file of the dashboard.
func (q *request) getPage() error {
	name := q.path.seg[1]
	if q.path.n == 1 {
		name = ""
	}
	q.hurry(nil)
	if !dash.ServeFile(q.w, q.r, name) {
		return api.Errorf(api.CodeNotFound, "there is nothing at this path")
	}
	q.sent = true
	return nil
}

// getDashLive sends the dashboard's numbers each second.
func (q *request) getDashLive() error {
	if err := q.acceptsEvents(); err != nil {
		return err
	}
	if q.r.Method == http.MethodHead {
		return q.headStream(q.key)
	}
	q.outlive()
	release, err := q.openStream(q.key)
	if err != nil {
		return err
	}
	who := ""
	if q.key != nil {
		who = q.key.String()
	}
	v := q.s.dash.Open(who, q.allowed())
	stream := q.newEventStream(15 * time.Second)
	q.stream = func() {
		stream.run(v, goodbye, func() {
			v.Close()
			release()
		})
	}
	return nil
}

// getDashHistory answers with the last hour of the server, or of a topic.
func (q *request) getDashHistory() error {
	h, name := q.s.dash.ServerHistory(), ""
	if q.path.n > 2 {
		name = q.path.seg[2]
		var ok bool
		if h, ok = q.s.dash.StreamHistory(name); !ok {
			if e := q.s.engine.Load(); e != nil && e.TopicExists(name) {
				return api.Errorf(api.CodeNotFound, "the dashboard has not read topic %q yet: each second it reads the %d busiest", name, maxDashTopics)
			}
			return api.TopicNotFound(name)
		}
	}
	body, err := json.Marshal(&h)
	if err != nil {
		return err
	}
	q.out = append(q.out[:0], body...)
	return q.send(http.StatusOK)
}
