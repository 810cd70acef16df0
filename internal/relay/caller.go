package relay

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
)

const (
	// trusted is how long an answer of the upstream about a key counts.
	trusted = 5 * time.Second
	// mostAnswers is how many are kept.
	mostAnswers = 10_000
)

// Caller is who makes a request: the key it came with, or nobody.
type Caller struct{ secret string }

// CallerOf reads the key of a request; with token it may also be among the protocols of a
// WebSocket or in the query.
func CallerOf(r *http.Request, token bool) Caller {
	secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok && token && r.Header.Get("Upgrade") != "" {
		secret, ok = api.SocketKey(r.Header["Sec-Websocket-Protocol"])
	}
	if !ok && token {
		secret = r.URL.Query().Get("token")
	}
	return Caller{strings.TrimSpace(secret)}
}

// Anonymous reports whether the caller is nobody.
func (c Caller) Anonymous() bool { return c.secret == "" }

// Digest is 16 bytes that stand for the key, however long that is.
func (c Caller) Digest() string {
	sum := sha256.Sum256([]byte(c.secret))
	return string(sum[:16])
}

func (c Caller) header() http.Header {
	h := make(http.Header)
	if c.secret != "" {
		h.Set("Authorization", "Bearer "+c.secret)
	}
	return h
}

// asked are answers about keys, each for a short time.
type asked struct {
	mu       sync.Mutex
	answers  map[string]verdict
	scrapers map[string]bool // callers that were shown the metrics last; for any time
}

type verdict struct {
	until time.Time
	err   error
}

func (a *asked) init() { a.answers, a.scrapers = make(map[string]verdict), make(map[string]bool) }

func (a *asked) find(key string) (verdict, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v, ok := a.answers[key]
	return v, ok && time.Now().Before(v.until)
}

func (a *asked) note(key string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.answers) >= mostAnswers {
		clear(a.answers)
	}
	a.answers[key] = verdict{time.Now().Add(trusted), err}
}

// mayScrape notes what err, an answer about who may scrape, says. If it says nothing, what was noted last counts.
func (a *asked) mayScrape(who string, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		if len(a.scrapers) >= mostAnswers {
			clear(a.scrapers)
		}
		a.scrapers[who] = true
	case isRefusal(err):
		delete(a.scrapers, who)
	case a.scrapers[who]:
		return nil
	}
	return err
}

// isRefusal reports whether err is about the key and not about the moment.
func isRefusal(err error) bool {
	return api.IsCode(err, api.CodeUnauthorized) || api.IsCode(err, api.CodeForbidden)
}

// forget has everybody asked about anew.
func (a *asked) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.answers)
}

// mayRead asks the upstream whether the caller may read the topics.
func (r *Relay) mayRead(ctx context.Context, caller Caller, topics []api.WatchPosition) error {
	if len(topics) == 0 {
		return r.Known(ctx, caller)
	}
	req := api.WatchRequest{Lenient: true}
	all := make([]string, len(topics))
	for i := range topics {
		all[i] = topics[i].Topic
		req.Topics = append(req.Topics, api.WatchTopic{Topic: all[i]})
	}
	slices.Sort(all)
	return r.verdict(caller.Digest()+"\x00read\x00"+names(all), func() error {
		_, err := r.resolve(ctx, caller, &req)
		return err
	})
}

// knownPath is refused for an unknown key, and else a bad request.
const knownPath = "/v0/ws"

// Known asks the upstream whether it knows the caller's key.
func (r *Relay) Known(ctx context.Context, caller Caller) error {
	return r.granted(ctx, caller, knownPath)
}

// MayScrape asks whether the caller may see metrics. While the upstream is away whoever was granted
// them last may: they say that it is.
func (r *Relay) MayScrape(ctx context.Context, caller Caller) error {
	return r.asked.mayScrape(caller.Digest(), r.granted(ctx, caller, "/v0/topics?page_size=1"))
}

// granted asks whether a GET is refused for its key.
func (r *Relay) granted(ctx context.Context, caller Caller, path string) error {
	return r.verdict(caller.Digest()+"\x00"+path, func() error { return r.asks(ctx, caller, path) })
}

// asks makes a GET to find out whether it is refused for its key.
func (r *Relay) asks(ctx context.Context, caller Caller, path string) error {
	if err := r.Serves(); err != nil {
		return err
	}
	a, err := r.ask(ctx, http.MethodGet, path, caller.header(), nil, maxAnswer)
	if err != nil {
		return r.errAway()
	}
	switch a.status {
	case http.StatusOK, http.StatusBadRequest: // the key is good
		return nil
	}
	return a.error()
}

// verdict returns what is known by the name of key, or asks. That somebody is refused for
// now is not kept.
func (r *Relay) verdict(key string, ask func() error) error {
	if v, ok := r.asked.find(key); ok {
		return v.err
	}
	err := ask()
	if err == nil || isRefusal(err) {
		r.asked.note(key, err)
	}
	return err
}

// Resolved is the upstream's answer to a watch that the relay will serve.
type Resolved struct {
	Keyed  bool                `json:"keyed"`
	Topics map[string]position `json:"topics"`
}

// resolve asks the upstream, as the caller, where a watch begins.
func (r *Relay) resolve(ctx context.Context, caller Caller, req *api.WatchRequest) (*api.WatchResult, error) {
	if err := r.Serves(); err != nil {
		return nil, err
	}
	topics := make(map[string]begin, len(req.Topics))
	for _, t := range req.Topics {
		topics[t.Topic] = begin{t.FromSeq, t.Tail}
	}
	path := "/v0/watch?relay=true"
	if req.Lenient {
		path += "&lenient=true"
	}
	a, err := r.ask(ctx, http.MethodPost, path, caller.header(), encode(map[string]any{"topics": topics}), maxAnswer)
	if err != nil {
		return nil, r.errAway()
	}
	if a.status != http.StatusOK {
		return nil, a.error()
	}
	return ResultOf(a.body)
}

// ResultOf reads the upstream's answer to a watch with relay=true.
func ResultOf(body []byte) (*api.WatchResult, error) {
	var got Resolved
	if err := json.Unmarshal(body, &got); err != nil {
		return nil, err
	}
	res := &api.WatchResult{Keyed: got.Keyed}
	for name, p := range got.Topics {
		if p.Life == 0 {
			return nil, errOld
		}
		res.Topics = append(res.Topics, api.WatchPosition{Topic: name, FromSeq: p.FromSeq, HeadSeq: p.HeadSeq, EarliestSeq: p.EarliestSeq, Life: p.Life})
	}
	sort.Slice(res.Topics, func(i, j int) bool { return res.Topics[i].Topic < res.Topics[j].Topic })
	return res, nil
}
