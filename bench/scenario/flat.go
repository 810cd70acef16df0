package scenario

import (
	"context"
	"errors"
	"time"

	"github.com/weirmq/weir/bench/load"
)

// flatWriters is how many connections write without pause while others watch.
const flatWriters = 4

// flatOut counts what watchers get, one of so many of the usual number, while writers write as
// fast as they can.
func flatOut(of int) func(ctx context.Context, s *session) (measure, measure, error) {
	return func(ctx context.Context, s *session) (measure, measure, error) {
		w, err := s.freshTopic(ctx, writeTopic, "log", "disk")
		if err != nil {
			return nil, nil, err
		}
		hub, addr, err := s.peer(ctx, handlersProgram, "hub")
		if err != nil {
			return nil, nil, err
		}
		n := s.size.watchers / of
		return s.deliveries(w.proc, w.addr, n, w.watch(load.StreamOptions{}, writeTopic)),
			s.deliveries(hub, addr, n, bareStream(addr)), nil
	}
}

// deliveries measures the records that reach all streams during a sample. What
// is left behind then is dropped with the connections and not counted.
func (s *session) deliveries(server *proc, addr string, n int, open opener) measure {
	return func(ctx context.Context) (measured, error) {
		f, err := openFan(ctx, n, open)
		if err != nil {
			return measured{}, err
		}
		defer f.close()
		server.settle(ctx)
		loadCtx, stop := context.WithCancel(ctx)
		written := make(chan error, 1)
		go func() {
			_, err := load.Run(loadCtx, load.Plan{Addr: addr, Conns: flatWriters, Step: everywhere(stampedStep(writeTopic)), Length: sampleLimit})
			written <- err
		}()
		m, err := s.countFan(ctx, server, f)
		stop()
		if loadErr := <-written; err == nil && !errors.Is(loadErr, context.Canceled) {
			err = loadErr
		}
		return m, err
	}
}

func (s *session) countFan(ctx context.Context, server *proc, f *fan) (measured, error) {
	if err := pause(ctx, s.size.warmup); err != nil {
		return measured{}, err
	}
	f.take()
	begin, cpu := time.Now(), server.cpu()
	if err := pause(ctx, s.Sample); err != nil {
		return measured{}, err
	}
	if _, err := f.arrived(); err != nil {
		return measured{}, err
	}
	n, latency := f.take()
	return fromSample(load.Sample{Units: n, Steps: n, Elapsed: time.Since(begin), Latency: latency}, server.cpu()-cpu), nil
}

// stampedStep is the step that writes one record with the time of the write.
func stampedStep(topic string) load.Step {
	return func(c *load.Conn) (int, error) {
		return repeatRequest(stampedWrite(nil, topic), 1)(c)
	}
}
