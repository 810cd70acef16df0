package relay

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"

	"github.com/weirmq/weir/internal/api"
)

// widPrefix begins the wid of a relay's session; what follows is longer than the 22
// characters of a server's.
const widPrefix = "wid_"

const (
	macBytes = 16
	// maxWID is the longest wid that the relay makes, so that a request's head has room for
	// it, and for an event id. A session that needs more is the upstream's.
	maxWID = 6 << 10
	// maxPayload bounds what a wid may unpack to.
	maxPayload = 256 << 10
)

// sealer signs sessions.
type sealer struct{ key [sha256.Size]byte }

func newSealer(secret string) sealer {
	if secret == "" {
		secret = rand.Text()
	}
	return sealer{sha256.Sum256([]byte("weir relay wid 1\x00" + secret))}
}

func (s *sealer) mac(payload []byte) []byte {
	h := hmac.New(sha256.New, s.key[:])
	h.Write(payload)
	return h.Sum(nil)[:macBytes]
}

// session is what a wid holds.
type session struct {
	Nonce  string           `json:"r"` // tells it from others that are alike
	Owner  []byte           `json:"k,omitempty"`
	Opt    api.WatchOptions `json:"o"`
	Topics []start          `json:"t"`
}

// start is where a topic of a session begins.
type start struct {
	Topic string `json:"n"`
	From  uint64 `json:"s"`
	Life  uint64 `json:"l"`
}

// seal makes the wid of a session; ok is false if it gets too long.
func (s *sealer) seal(ss *session) (wid string, ok bool) {
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, flate.BestSpeed) // the level is valid
	_, _ = w.Write(encode(ss))                        // a Buffer takes everything
	_ = w.Close()
	payload := packed.Bytes()
	wid = widPrefix + base64.RawURLEncoding.EncodeToString(append(payload, s.mac(payload)...))
	return wid, len(wid) <= maxWID
}

// open reads a wid; ok is false if no relay with this key made it.
func (s *sealer) open(wid string) (ss *session, ok bool) {
	text, ok := strings.CutPrefix(wid, widPrefix)
	if !ok || len(wid) > maxWID {
		return nil, false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(sealed) < macBytes {
		return nil, false
	}
	payload, mac := sealed[:len(sealed)-macBytes], sealed[len(sealed)-macBytes:]
	if !hmac.Equal(mac, s.mac(payload)) {
		return nil, false
	}
	js, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(payload)), maxPayload))
	ss = new(session)
	if err != nil || json.Unmarshal(js, ss) != nil {
		return nil, false
	}
	return ss, true
}

func (ss *session) positions() []api.WatchPosition {
	all := make([]api.WatchPosition, len(ss.Topics))
	for i, t := range ss.Topics {
		all[i] = api.WatchPosition{Topic: t.Topic, FromSeq: t.From, Life: t.Life}
	}
	return all
}

// Seal makes the session of a watch that the upstream has granted to a caller, in res.WID.
// It is false if that would be too long.
func (r *Relay) Seal(caller Caller, opt *api.WatchOptions, res *api.WatchResult) bool {
	ss := session{Nonce: rand.Text()[:12], Opt: *opt}
	if res.Keyed {
		ss.Owner = []byte(caller.Digest())
	}
	for i := range res.Topics {
		p := &res.Topics[i]
		ss.Topics = append(ss.Topics, start{p.Topic, p.FromSeq, p.Life})
		p.Life = 0
	}
	var ok bool
	res.WID, ok = r.sealer.seal(&ss)
	return ok
}

// Session is what a wid of a relay stands for.
type Session struct {
	wid string
	ss  *session
}

// Session reads a wid; ok is false if no relay made it, so that it may be the upstream's.
func (r *Relay) Session(wid string) (s Session, ok bool) {
	ss, ok := r.sealer.open(wid)
	return Session{wid, ss}, ok
}

// HeartbeatMS is how long its streams may be silent.
func (s *Session) HeartbeatMS() int64 { return s.ss.Opt.HeartbeatMS }

// Check asks whether the caller may open streams of the session: it has to be the one who
// made it, and still be allowed to read.
func (r *Relay) Check(ctx context.Context, s Session, caller Caller) error {
	if s.ss.Owner == nil {
		if r.keyed.Load() { // made while the upstream had no keys
			return api.Errorf(api.CodeUnauthorized, "the watch session was made without a key; make a new one")
		}
		return nil
	}
	if caller.secret == "" {
		return api.Errorf(api.CodeUnauthorized, "this server needs a key; send the header Authorization: Bearer <key>")
	}
	if !hmac.Equal(s.ss.Owner, []byte(caller.Digest())) {
		return api.Errorf(api.CodeUnauthorized, "the watch session belongs to another key; create one with this key")
	}
	return r.mayRead(ctx, caller, s.ss.positions())
}
