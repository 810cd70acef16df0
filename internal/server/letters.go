package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/embedded"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/board"
)

// letters returns the dead letters of the stream in the path, as far as the key may touch
// them. The caller has to call done.
func (q *request) letters() (l *board.Letters, done func(), err error) {
	if q.s.board != nil {
		s, err := q.s.board.Find(q.r.Context(), q.topic())
		return &board.Letters{Stream: s}, func() {}, asAPI(err)
	}
	name := q.topic()
	state, err := q.eng.Topic(name, false)
	if err != nil {
		return nil, nil, err
	}
	if state.Config.Type != api.TypeQueue {
		return nil, nil, api.Errorf(api.CodeNotAQueue, "topic %q is a log and has no dead letters", name).With("topic", name)
	}
	dead := deadOf(name, &state.Config)
	if !q.key.allows(dead) {
		return nil, nil, errBodyPrefix("dead letter topic", dead)
	}
	b, err := embedded.On(q.r.Context(), q.eng, name)
	if err != nil {
		return nil, nil, asAPI(err)
	}
	s := weir.New(b)
	l = &board.Letters{Stream: s, Name: dead}
	if key, e := q.key, q.eng; key.limited() || !key.has(scopeAdmin) {
		// Sending one back to a queue that is gone would create it.
		l.Allowed = func(stream string) bool { return key.allows(stream) && (key.has(scopeAdmin) || e.TopicExists(stream)) }
	}
	return l, func() { _ = s.Close() }, nil // it has nothing to report: the engine goes on
}

// deadOf is where the dead letters of a queue are: where its configuration says, or where
// the library puts them.
func deadOf(name string, cfg *api.Config) string {
	if cfg.HasDeadLetter {
		return cfg.DeadLetter
	}
	return name + deadSuffix
}

// asAPI turns an error of the library into one of the contract.
func asAPI(err error) error {
	_, is := errors.AsType[*api.Error](err)
	code := api.CodeInvalidRequest
	switch {
	case err == nil || is || errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, board.ErrUnknown), errors.Is(err, backend.ErrNotFound), errors.Is(err, backend.ErrStreamNotFound):
		code = api.CodeNotFound
	case backend.Retryable(err), errors.Is(err, backend.ErrOutcomeUnknown), errors.Is(err, context.DeadlineExceeded):
		code = api.CodeNotReady
	}
	return &api.Error{Code: code, Message: err.Error(), Err: err}
}

// sendJSON answers with a value that a page of the dashboard asked for.
func (q *request) sendJSON(v any, err error) error {
	if err != nil {
		return asAPI(err)
	}
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	q.out = append(q.out[:0], body...)
	q.w.Header()["Cache-Control"] = headerNoStore
	return q.send(http.StatusOK)
}

// getLetters lists dead letters.
func (q *request) getLetters() error {
	l, done, err := q.letters()
	if err != nil {
		return err
	}
	defer done()
	v, err := q.query()
	if err != nil {
		return err
	}
	page, err := reading(q, func(ctx context.Context) (board.LetterPage, error) { return l.Page(ctx, v.Get("after")) })
	return q.sendJSON(&page, err)
}

// getLetter answers with one dead letter in full.
func (q *request) getLetter() error {
	l, done, err := q.letters()
	if err != nil {
		return err
	}
	defer done()
	letter, err := reading(q, func(ctx context.Context) (board.ShownLetter, error) { return l.One(ctx, q.path.seg[3]) })
	return q.sendJSON(&letter, err)
}

// letterReaders is how many requests read dead letters at a time: each has up to a hundred of them
// whole in memory, however little it shows.
const letterReaders = 2

// reading reads dead letters of the engine when it is this request's turn. Those of a board may
// be in a store that hangs, and keep nobody waiting.
func reading[T any](q *request, read func(context.Context) (T, error)) (T, error) {
	ctx := q.r.Context()
	if q.s.board != nil {
		return read(ctx)
	}
	select {
	case q.s.letters <- struct{}{}:
		defer func() { <-q.s.letters }()
		return read(ctx)
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// postPurge removes dead letters.
func (q *request) postPurge() error {
	var c board.Choice
	if err := q.unmarshal(&c); err != nil {
		return err
	}
	l, done, err := q.letters()
	if err != nil {
		return err
	}
	defer done()
	defer q.mayTakeLong()()
	p, err := l.Purge(q.r.Context(), c)
	if p.Removed > 0 || err == nil {
		q.s.log.Info("dead letters are purged", "key", q.key.String(), "stream", q.topic(), "dead_letter", p.Name, "removed", p.Removed, "error", textOf(err))
	}
	return q.sendJSON(&p, err)
}

func (q *request) unmarshal(v any) error {
	if err := json.Unmarshal(q.body, v); err != nil {
		return &api.Error{Code: api.CodeInvalidRequest, Message: "the body is not what the dashboard sends: " + err.Error(), Err: err}
	}
	return nil
}

// textOf is an error as an attribute of a log line.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// String names a key without its secret: by its name, or its place in WEIR_API_KEYS.
func (k *apiKey) String() string {
	if k == nil {
		return "none: auth is off"
	}
	if k.name != "" {
		return k.name + " (" + k.scopes.String() + ")"
	}
	return "entry " + strconv.Itoa(k.place) + " (" + k.scopes.String() + ")"
}

// postRedrive sends dead letters back and streams how far it is. It ends with the page.
func (q *request) postRedrive() error {
	if err := q.acceptsEvents(); err != nil {
		return err
	}
	var r board.Redrive
	if err := q.unmarshal(&r); err != nil {
		return err
	}
	if err := r.Check(); err != nil {
		return &api.Error{Code: api.CodeInvalidRequest, Message: err.Error(), Err: err}
	}
	l, done, err := q.letters()
	if err != nil {
		return err
	}
	release, err := q.openStream(q.key)
	if err != nil {
		done()
		return err
	}
	stream := q.newEventStream(15 * time.Second)
	log := q.s.log.With("key", q.key.String(), "stream", q.topic(), "rate", r.Rate)
	q.stream = func() {
		run := &redriving{ready: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(stream.ctx)
		var running sync.WaitGroup
		running.Go(func() {
			p := l.Redrive(ctx, &r, run.tell)
			if !p.DryRun {
				log.Info("dead letters are sent back", "dead_letter", p.Name, "sent", p.Sent, "failed", p.Failed, "error", p.Error)
			}
		})
		stream.run(run, goodbye, func() {
			cancel()
			running.Wait()
			done()
			release()
		})
	}
	return nil
}

// redriving is the progress of a redrive on its way to the page.
type redriving struct {
	ready chan struct{}

	mu     sync.Mutex
	last   board.Progress
	unsent bool
}

func (r *redriving) tell(p board.Progress) {
	r.mu.Lock()
	r.last, r.unsent = p, true
	r.mu.Unlock()
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// Ready receives when there is progress.
func (r *redriving) Ready() <-chan struct{} { return r.ready }

// Next appends the newest progress as an event, if it has not been sent yet.
func (r *redriving) Next(_ context.Context, dst []byte) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.unsent {
		return dst, nil
	}
	r.unsent = false
	body, err := json.Marshal(&r.last)
	if err != nil {
		return dst, err
	}
	dst = append(append(dst, "data: "...), body...)
	return append(dst, "\n\n"...), nil
}

// Sent does nothing.
func (r *redriving) Sent() {}

// Ended reports that the redrive is over and the page knows.
func (r *redriving) Ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last.Done && !r.unsent
}
