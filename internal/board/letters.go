package board

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
)

const (
	// page is how many dead letters one answer has, and preview how many bytes of each
	// payload.
	page    = 50
	preview = 2000
	// wholeBytes is how much of a single payload is shown.
	wholeBytes = 1 << 20
)

// Letter is a dead letter as JSON.
type Letter struct {
	ID         string            `json:"id"`
	Stream     string            `json:"stream"`
	Group      string            `json:"group"`
	OriginID   string            `json:"origin_id"`
	Attempts   int               `json:"attempts"`
	Redrives   int               `json:"redrives"`
	Reason     string            `json:"reason"`
	Error      string            `json:"error"`
	Consumer   string            `json:"consumer"`
	EnqueuedMS *int64            `json:"enqueued_ms"` // null: unknown
	DeadMS     int64             `json:"dead_ms"`
	Headers    map[string]string `json:"headers"`
	Payload
}

// Payload is the data of a message as JSON.
type Payload struct {
	Data   *string `json:"data,omitempty"` // if it is text
	Base64 []byte  `json:"data_base64,omitempty"`
}

// Shown is how much of a message is shown.
type Shown struct {
	Bytes int  `json:"data_bytes"` // of the whole payload
	Cut   bool `json:"cut"`
}

// ShownLetter is a dead letter on the dashboard.
type ShownLetter struct {
	Letter
	Shown
}

// LetterOf returns a dead letter as JSON.
func LetterOf(l *weir.DeadLetter) Letter {
	out := Letter{
		ID: l.ID, Stream: l.Stream, Group: l.Group, OriginID: l.OriginID, Attempts: l.Attempts, Redrives: l.Redrives,
		Reason: l.Reason, Error: l.Error, Consumer: l.Consumer, DeadMS: l.DeadAt.UnixMilli(), Headers: l.Headers, Payload: payloadOf(l.Data),
	}
	if out.Headers == nil {
		out.Headers = map[string]string{}
	}
	if !l.Enqueued.IsZero() {
		ms := l.Enqueued.UnixMilli()
		out.EnqueuedMS = &ms
	}
	return out
}

func payloadOf(data []byte) (p Payload) {
	if text := string(data); utf8.ValidString(text) {
		p.Data = &text
	} else {
		p.Base64 = data
	}
	return p
}

// cut returns the beginning of a payload, at a character if it is text.
func cut(data []byte, most int) ([]byte, Shown) {
	s := Shown{Bytes: len(data), Cut: len(data) > most}
	if !s.Cut {
		return data, s
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(data[end]) {
		end--
	}
	return data[:end], s
}

// Letters are the dead letters of one stream, and which of them somebody may touch.
type Letters struct {
	Stream *weir.Stream
	Name   string // where they are; empty: where the stream's own go
	// Allowed says whether letters that came from a stream may be seen and sent back;
	// nil: all.
	Allowed func(stream string) bool
}

// LetterPage is a part of the list of dead letters.
type LetterPage struct {
	Name    string        `json:"dead_letter"`
	Letters []ShownLetter `json:"letters"`
	Next    string        `json:"next,omitempty"` // the last one read, if there may be more
}

// Page lists the dead letters after one.
func (l *Letters) Page(ctx context.Context, after string) (LetterPage, error) {
	d, err := l.Stream.DeadLetters(l.Name)
	if err != nil {
		return LetterPage{}, err
	}
	out := LetterPage{Name: d.Name(), Letters: []ShownLetter{}}
	list, err := l.Stream.Backend().(backend.DeadLetters).List(ctx, l.Name, after, page)
	if err != nil {
		return out, err
	}
	for i := range list {
		if l.allows(&list[i]) {
			out.Letters = append(out.Letters, shown(&list[i], preview))
		}
	}
	if len(list) == page {
		out.Next = list[page-1].ID
	}
	return out, nil
}

func shown(l *weir.DeadLetter, most int) ShownLetter {
	part := *l
	var s Shown
	part.Data, s = cut(l.Data, most)
	return ShownLetter{LetterOf(&part), s}
}

// allows asks for where a letter would be sent back to.
func (l *Letters) allows(letter *weir.DeadLetter) bool {
	return l.Allowed == nil || l.Allowed(cmp.Or(letter.Stream, l.Stream.Info().Stream))
}

// One returns a single dead letter.
func (l *Letters) One(ctx context.Context, id string) (ShownLetter, error) {
	d, err := l.Stream.DeadLetters(l.Name)
	if err != nil {
		return ShownLetter{}, err
	}
	for letter, err := range d.List(ctx, weir.LetterFilter{IDs: []string{id}}) {
		if err != nil {
			return ShownLetter{}, err
		}
		if l.allows(&letter) {
			return shown(&letter, wholeBytes), nil
		}
	}
	return ShownLetter{}, backend.ErrNotFound
}

// Choice says which dead letters are meant: some, or all.
type Choice struct {
	IDs         []string `json:"ids"`
	All         bool     `json:"all"`
	OlderThanMS int64    `json:"older_than_ms"` // only what has been dead for longer
}

// ErrNoChoice says that a Choice is empty, or means both some and all.
var ErrNoChoice = errors.New(`name the letters in "ids", or send "all": true`)

// filter turns a choice into a filter. none is true if nothing may be touched.
func (l *Letters) filter(ctx context.Context, d *weir.DeadLetters, c Choice) (f weir.LetterFilter, none bool, err error) {
	if c.All == (len(c.IDs) > 0) {
		return f, true, ErrNoChoice
	}
	f.IDs, f.OlderThan = slices.Clone(c.IDs), time.Duration(c.OlderThanMS)*time.Millisecond
	if l.Allowed == nil {
		return f, false, nil
	}
	var allowed []string
	for letter, err := range d.List(ctx, f) {
		if err != nil {
			return f, true, err
		}
		if l.allows(&letter) {
			allowed = append(allowed, letter.ID)
		}
	}
	f.IDs = allowed
	return f, len(allowed) == 0, nil
}

// Purged is what a purge did.
type Purged struct {
	Name    string `json:"dead_letter"`
	Removed int    `json:"removed"`
}

// Purge removes dead letters for good.
func (l *Letters) Purge(ctx context.Context, c Choice) (Purged, error) {
	d, err := l.Stream.DeadLetters(l.Name)
	if err != nil {
		return Purged{}, err
	}
	out := Purged{Name: d.Name()}
	f, none, err := l.filter(ctx, d, c)
	if err == nil && !none {
		out.Removed, err = d.Purge(ctx, f)
	}
	return out, err
}

// Redrive says which dead letters to send back, and how.
type Redrive struct {
	Choice
	Rate     float64 `json:"rate"` // per second; 0: no limit
	DryRun   bool    `json:"dry_run"`
	ToOthers bool    `json:"to_others"` // also if others than the group get them
}

// Progress is how far a redrive has got.
type Progress struct {
	Name   string   `json:"dead_letter"`
	DryRun bool     `json:"dry_run"`
	Sent   int      `json:"sent"` // or would be, in a dry run
	Failed int      `json:"failed"`
	Done   bool     `json:"done"`
	Error  string   `json:"error,omitempty"`
	Others []string `json:"others,omitempty"` // who would get them too: nothing was sent
}

// Check returns what is wrong with a redrive.
func (r *Redrive) Check() error {
	if r.All == (len(r.IDs) > 0) {
		return ErrNoChoice
	}
	return r.config().WithDefaults().Validate()
}

// config sends a letter at once: somebody who looks at it has asked for it.
func (r *Redrive) config() weir.RedriveConfig {
	return weir.RedriveConfig{Delay: -1, Rate: r.Rate, DryRun: r.DryRun, ToOthers: r.ToOthers}
}

// Redrive sends dead letters back until ctx ends, and calls tell now and then and at
// the end.
func (l *Letters) Redrive(ctx context.Context, r *Redrive, tell func(Progress)) Progress {
	p := Progress{DryRun: r.DryRun}
	err := l.redrive(ctx, r, &p, tell)
	if others, ok := errors.AsType[*weir.OtherReadersError](err); ok {
		p.Others = others.Others
	}
	if p.Done = true; err != nil {
		p.Error = err.Error()
	}
	tell(p)
	return p
}

// tellEvery is how often a redrive says how far it is.
const tellEvery = 200 * time.Millisecond

func (l *Letters) redrive(ctx context.Context, r *Redrive, p *Progress, tell func(Progress)) error {
	d, err := l.Stream.DeadLetters(l.Name)
	if err != nil {
		return err
	}
	p.Name = d.Name()
	f, none, err := l.filter(ctx, d, r.Choice)
	if err != nil || none {
		return err
	}
	cfg := r.config()
	cfg.Filter = f
	told := time.Now()
	cfg.Progress = func(_ *weir.DeadLetter, err error) {
		if err != nil {
			p.Failed++
		} else {
			p.Sent++
		}
		if time.Since(told) >= tellEvery {
			told = time.Now()
			tell(*p)
		}
	}
	done, err := d.Redrive(ctx, cfg)
	p.Sent, p.Failed = done.Sent, done.Failed
	return err
}
