package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// These bound what the relay reads of an answer to a call of its own, in bytes. What callers may
// send has nothing to do with it.
const (
	maxRecords = 256 << 20 // of one with records, and of a message of a subscription
	maxAnswer  = 8 << 20   // of any other
)

// answer is what the upstream said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// errSilent is why a call or a connection was given up.
var errSilent = errors.New("the upstream does not answer")

// patient calls heard for whatever comes.
type patient struct {
	io.Reader
	heard func()
}

func (p patient) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.heard()
	return n, err
}

// ask makes a call of the relay's own, or one that it needs the answer of, which may have so many
// bytes. The upstream may be silent for askTimeout; on a slow way the whole answer takes longer. What
// something in front of the upstream has answered, while that is away, is an error.
func (r *Relay) ask(ctx context.Context, method, path string, header http.Header, body []byte, most int64) (*answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(askTimeout, func() { cancel(errSilent) })
	defer late.Stop()
	req, err := http.NewRequestWithContext(ctx, method, r.Upstream()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	if len(body) > 0 && header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	rest := patient{io.LimitReader(resp.Body, most+1), func() { late.Reset(askTimeout) }}
	if _, err := text.ReadFrom(rest); err != nil {
		return nil, err
	}
	if int64(text.Len()) > most {
		return nil, fmt.Errorf("the upstream's answer is larger than %d bytes", most)
	}
	a := &answer{resp.StatusCode, resp.Header, text.Bytes()}
	if a.status != http.StatusOK {
		err := a.error()
		if _, ofV0 := errors.AsType[*api.Error](err); !ofV0 {
			return nil, err
		}
	}
	return a, nil
}

// own is the header of calls with the relay's key.
func (r *Relay) own() http.Header {
	h := make(http.Header)
	if r.opt.Key != "" {
		h.Set("Authorization", "Bearer "+r.opt.Key)
	}
	return h
}

// error makes an error of an answer that is not 200.
func (a *answer) error() error {
	var body struct {
		Error struct {
			Code    api.Code       `json:"code"`
			Message string         `json:"message"`
			Detail  map[string]any `json:"detail"`
		} `json:"error"`
	}
	if err := json.Unmarshal(a.body, &body); err != nil || body.Error.Code == "" {
		return fmt.Errorf("the upstream answered %d without an error of /v0", a.status)
	}
	e := &api.Error{Code: body.Error.Code, Message: body.Error.Message, Detail: body.Error.Detail}
	if s, err := strconv.Atoi(a.header.Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return e
}
