package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirmq/weir/bench/load"
	"github.com/weirmq/weir/bench/report"
)

// value is one measured figure.
type value struct {
	amount float64
	note   string
}

// figure is one or more values of one server's life, with upper bounds.
type figure struct {
	rows    []report.Figure // name, title, unit and goal
	measure func(ctx context.Context, s *session) ([]value, error)
}

// figures is the table of figures, in the order they are printed.
var figures = slices.Concat(lifeFigures, copiedFigures, sheddingFigures, pushFigures, routeFigures, loopFigures, libraryFigures)

var lifeFigures = []figure{
	{rows: []report.Figure{
		{Name: "restart-ready", Title: "1,000,000 records, kill -9, ready again", Unit: "s", Goal: 1},
		{Name: "restart-memory", Title: "memory after that restart", Unit: "MiB", Goal: 150},
	}, measure: restart},
	{rows: []report.Figure{
		{Name: "restart-tiny", Title: "100,000,000 tiny records, kill -9, ready again", Unit: "s", Goal: 1},
	}, measure: restartTiny},
	{rows: []report.Figure{
		{Name: "stop", Title: "graceful stop under load with long polls open", Unit: "s", Goal: 2},
	}, measure: stopUnderLoad},
	{rows: []report.Figure{
		{Name: "topics-memory", Title: "100,000 topics with one record each, memory", Unit: "MiB", Goal: 300},
		{Name: "topics-ready", Title: "100,000 topics, restart", Unit: "s", Goal: 2},
	}, measure: manyTopics},
	{rows: []report.Figure{
		{Name: "idle-memory", Title: "idle server, memory", Unit: "MiB", Goal: 30},
	}, measure: idle},
	{rows: []report.Figure{
		{Name: "disk-back", Title: "deleted records, disk down to live × 1.3 + five segments", Unit: "s", Goal: 10},
	}, measure: diskBack},
}

func (b *bench) runFigures(ctx context.Context, r *report.Report) {
	header := false
	for _, f := range figures {
		wanted := false
		for _, row := range f.rows {
			wanted = wanted || b.Only.MatchString(row.Name)
		}
		if !wanted || ctx.Err() != nil {
			continue
		}
		if !header {
			b.table().FigureHeader()
			header = true
		}
		for _, row := range b.runFigure(ctx, f) {
			b.table().Figure(&row)
			r.Figures = append(r.Figures, row)
		}
	}
}

func (b *bench) runFigure(ctx context.Context, f figure) []report.Figure {
	ctx, cancel := context.WithTimeout(ctx, sampleLimit)
	defer cancel()
	var values []value
	err := b.session(func(s *session) (err error) {
		values, err = f.measure(ctx, s)
		return err
	})
	rows := append([]report.Figure(nil), f.rows...)
	for i := range rows {
		if err != nil {
			rows[i].Error = err.Error()
		} else {
			rows[i].Value, rows[i].Note = values[i].amount, values[i].note
		}
		rows[i].Judge()
	}
	return rows
}

// restingMemory is the larger of the resident set now and once the server has
// settled.
func restingMemory(ctx context.Context, w *weir) (float64, error) {
	now, err := w.rss()
	if err != nil {
		return 0, err
	}
	w.settle(ctx)
	later, err := w.rss()
	return max(now, later), err
}

// restart kills a server right after its last acknowledgement, so that as much
// as possible is left to replay.
func restart(ctx context.Context, s *session) ([]value, error) {
	w, err := s.freshTopic(ctx, writeTopic, "log", "disk")
	if err != nil {
		return nil, err
	}
	if err := writeAll(ctx, w, writeTopic, s.size.stored/bulkBatch, bulkBatch); err != nil {
		return nil, err
	}
	w.kill()
	if w, err = s.weir(ctx, "weir"); err != nil {
		return nil, err
	}
	memory, err := restingMemory(ctx, w)
	if err != nil {
		return nil, err
	}
	read, err := countReadable(ctx, w, writeTopic)
	if err != nil {
		return nil, err
	}
	if read != s.size.stored {
		return nil, fmt.Errorf("%d of %d acknowledged records can be read after the restart", read, s.size.stored)
	}
	return []value{{w.ready.Seconds(), fmt.Sprintf("all %d records read back", read)}, {amount: memory}}, nil
}

// restartTiny is restart for so many records that it is their number that counts. They are the
// lines of one request; what is read back is their count and the last one.
func restartTiny(ctx context.Context, s *session) ([]value, error) {
	w, err := s.freshTopic(ctx, writeTopic, "log", "disk")
	if err != nil {
		return nil, err
	}
	c, err := load.Dial(ctx, w.addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	const piece = 10_000
	status, err := c.Upload("/v0/topics/"+writeTopic, "application/x-ndjson", bytes.Repeat([]byte("1\n"), piece), int(s.size.tiny/piece))
	if err == nil {
		err = checkStatus(status)
	}
	if err != nil {
		return nil, err
	}
	w.kill()
	used, err := diskUsage(filepath.Join(s.dir, "weir"))
	if err != nil {
		return nil, err
	}
	if w, err = s.weir(ctx, "weir"); err != nil {
		return nil, err
	}
	memory, err := restingMemory(ctx, w)
	if err != nil {
		return nil, err
	}
	var last struct {
		Head    int64             `json:"head_seq"`
		Count   int64             `json:"count"`
		Records []json.RawMessage `json:"records"`
	}
	if err := w.do(ctx, "GET", "/v0/topics/"+writeTopic, nil, &last); err != nil {
		return nil, err
	}
	if err := w.do(ctx, "POST", "/v0/topics/"+writeTopic+"/diff", fmt.Appendf(nil, `{"from_seq":%d}`, s.size.tiny-1), &last); err != nil {
		return nil, err
	}
	if last.Head != s.size.tiny || last.Count != s.size.tiny || len(last.Records) != 1 {
		return nil, fmt.Errorf("of %d acknowledged records there are %d after the restart, the last is %d and %d of it can be read", s.size.tiny, last.Count, last.Head, len(last.Records))
	}
	return []value{{w.ready.Seconds(), fmt.Sprintf("%.1f GiB on disk, %.0f MiB of memory", float64(used)/(1<<30), memory)}}, nil
}

// stopUnderLoad sends SIGTERM while writers write and readers wait. What the
// clients get then is noted, not judged: refused connections are expected.
func stopUnderLoad(ctx context.Context, s *session) ([]value, error) {
	w, err := s.freshTopic(ctx, writeTopic, "log", "disk")
	if err != nil {
		return nil, err
	}
	const quiet = "quiet"
	if err := w.createTopic(ctx, quiet, "log", "disk"); err != nil {
		return nil, err
	}
	polls, err := s.openPolls(ctx, w, quiet)
	if err != nil {
		return nil, err
	}
	written := make(chan struct{})
	loadCtx, stopLoad := context.WithCancel(ctx)
	defer func() { stopLoad(); <-written }()
	go func() {
		defer close(written)
		plan := s.writers(w.addr, writeTopic, manyConns, 1)
		plan.Length = stopLimit
		load.Run(loadCtx, plan)
	}()
	if err := pause(ctx, s.size.underLoad); err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := w.stop(stopLimit); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	polls.wait()
	note := fmt.Sprintf("%d of %d long polls answered", polls.answered.Load(), s.size.polls)
	return []value{{took.Seconds(), note}}, nil
}

// polls are long polls in flight.
type polls struct {
	answered atomic.Int64
	ended    chan struct{} // one value for each poll
	open     int
}

func (p *polls) wait() {
	for range p.open {
		<-p.ended
	}
}

// openPolls starts long polls on an empty topic, each on a connection of its
// own, and returns when the server has had time to park them.
func (s *session) openPolls(ctx context.Context, w *weir, topic string) (*polls, error) {
	request := load.Request("POST", "/v0/topics/"+topic+"/diff", []byte(`{"from_seq":0,"wait_ms":30000}`))
	p := &polls{ended: make(chan struct{}, s.size.polls)}
	for range s.size.polls {
		c, err := load.Dial(ctx, w.addr)
		if err != nil {
			return nil, err
		}
		c.SetDeadline(time.Now().Add(2 * stopLimit))
		p.open++
		go func() {
			defer c.Close()
			if status, err := c.Do(request); err == nil && (status == 200 || status == 503) {
				p.answered.Add(1)
			}
			p.ended <- struct{}{}
		}()
	}
	w.settle(ctx)
	if len(p.ended) > 0 {
		return nil, errors.New("long polls were answered before there was anything to say")
	}
	return p, nil
}

// manyTopics writes one record to each of many topics, which creates them.
func manyTopics(ctx context.Context, s *session) ([]value, error) {
	w, err := s.weir(ctx, "weir")
	if err != nil {
		return nil, err
	}
	body := writeBody(1)
	var next atomic.Int64
	_, err = load.Run(ctx, load.Plan{Addr: w.addr, Conns: manyConns, Step: func(int) load.Step {
		return func(c *load.Conn) (int, error) {
			n := next.Add(1)
			if n > int64(s.size.topics) {
				return 0, nil
			}
			path := fmt.Sprintf("/v0/topics/customer-%06d", n)
			return repeatRequest(load.Request("POST", path, body), 1)(c)
		}
	}})
	if err != nil {
		return nil, err
	}
	before, err := restingMemory(ctx, w)
	if err != nil {
		return nil, err
	}
	if err := w.stop(stopLimit); err != nil {
		return nil, err
	}
	if w, err = s.weir(ctx, "weir"); err != nil {
		return nil, err
	}
	after, err := restingMemory(ctx, w)
	if err != nil {
		return nil, err
	}
	if err := s.checkTopics(ctx, w); err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%.0f MiB before the restart, %.0f after", before, after)
	return []value{{max(before, after), note}, {amount: w.ready.Seconds()}}, nil
}

func (s *session) checkTopics(ctx context.Context, w *weir) error {
	var ready struct {
		Topics int `json:"topics"`
	}
	if err := w.do(ctx, "GET", "/v0/ready", nil, &ready); err != nil {
		return err
	}
	if ready.Topics != s.size.topics {
		return fmt.Errorf("%d of %d topics are there after the restart", ready.Topics, s.size.topics)
	}
	return nil
}

func idle(ctx context.Context, s *session) ([]value, error) {
	w, err := s.weir(ctx, "weir")
	if err != nil {
		return nil, err
	}
	memory, err := restingMemory(ctx, w)
	return []value{{amount: memory}}, err
}

// diskLimit is how long diskBack goes on looking after the goal is missed.
const diskLimit = 60 * time.Second

// diskBack deletes the records of one topic that lie in the same segments as
// those of another and waits until their space is free again.
func diskBack(ctx context.Context, s *session) ([]value, error) {
	const gone, stays = "gone", "stays"
	w, err := s.freshTopic(ctx, gone, "log", "disk")
	if err != nil {
		return nil, err
	}
	if err := w.createTopic(ctx, stays, "log", "disk"); err != nil {
		return nil, err
	}
	const rounds = 10
	for range rounds {
		if err := fill(ctx, w, gone, s.size.deleted/rounds); err != nil {
			return nil, err
		}
		if err := fill(ctx, w, stays, s.size.kept/rounds); err != nil {
			return nil, err
		}
	}
	w.settle(ctx)
	dir := filepath.Join(s.dir, "weir")
	full, err := diskUsage(dir)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	everything := fmt.Appendf(nil, `{"before_seq":%d}`, s.size.deleted+1)
	if err := w.do(ctx, "POST", "/v0/topics/"+gone+"/delete", everything, nil); err != nil {
		return nil, err
	}
	c, err := w.counters(ctx, stays)
	if err != nil {
		return nil, err
	}
	bound := c.Bytes*13/10 + 5*segmentBytes
	for {
		now, err := diskUsage(dir)
		if err != nil {
			return nil, err
		}
		took := time.Since(begin)
		if now <= bound || took > diskLimit {
			note := fmt.Sprintf("from %d to %d MiB, bound %d MiB", full>>20, now>>20, bound>>20)
			return []value{{took.Seconds(), note}}, nil
		}
		if err := pause(ctx, settleStep); err != nil {
			return nil, err
		}
	}
}

// diskUsage is the space that the files below dir take on the disk. A file
// that vanishes while it is counted is not there; hard links count once.
func diskUsage(dir string) (int64, error) {
	var total int64
	seen := map[uint64]bool{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if ok && !seen[st.Ino] {
			seen[st.Ino] = true
			total += st.Blocks * 512
		}
		return nil
	})
	return total, err
}
