package server

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/atomicfile"
	"github.com/weirmq/weir/internal/engine"
)

// tokenPrefix is how the text of a read token begins.
const tokenPrefix = "weirt_"

// tokens signs read tokens. The server remembers none of them: all that one may do
// stands in its text.
type tokens struct {
	mu     sync.Mutex
	file   string
	secret []byte // of the signatures; nil until it is needed
}

// tokensFile is where the secret is, in the data directory; a copy or backup has none.
const tokensFile = "TOKENS"

const tokenSecret = 32 // bytes

// tokenText is what a token says.
type tokenText struct {
	Nonce    []byte   `json:"n"`
	Key      []byte   `json:"k"` // the owner that its key is; in the text behind a mask
	Expires  int64    `json:"e"` // Unix ms
	Topics   []string `json:"t,omitempty"`
	Prefixes []string `json:"p,omitempty"`
}

// load returns the secret, which a file of the data directory keeps over restarts. Without
// the file it is nil, unless it may be created.
func (t *tokens) load(create bool) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.secret != nil {
		return t.secret, nil
	}
	secret, err := os.ReadFile(t.file)
	switch {
	case err == nil && len(secret) == tokenSecret:
	case err == nil:
		return nil, fmt.Errorf("%s is not the %d bytes that sign read tokens: remove it, and the tokens given out so far end", t.file, tokenSecret)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case !create:
		return nil, nil
	default:
		if secret, err = t.create(); err != nil {
			return nil, err
		}
	}
	t.secret = secret
	return secret, nil
}

// clean removes what a crash has left of the file's creation.
func (t *tokens) clean(log *slog.Logger) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := atomicfile.Clean(t.file); err != nil {
		log.Warn("a temporary file could not be removed", "error", err)
	}
}

// create makes the file in one step; whoever reads it could sign tokens.
func (t *tokens) create() ([]byte, error) {
	secret := make([]byte, tokenSecret)
	_, _ = rand.Read(secret) // never fails
	if err := atomicfile.Write(t.file, secret); err != nil {
		return nil, err
	}
	return secret, nil
}

// sign makes the text of a token.
func (t *tokens) sign(says *tokenText) (string, error) {
	secret, err := t.load(true)
	if err != nil {
		return "", err
	}
	sealed := *says
	sealed.Nonce = make([]byte, nonceBytes)
	_, _ = rand.Read(sealed.Nonce) // never fails
	sealed.Key = masked(secret, sealed.Nonce, says.Key)
	text, err := json.Marshal(&sealed)
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	return tokenPrefix + encode(text) + "." + encode(signature(secret, text)), nil
}

func signature(secret, text []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write(text)
	return h.Sum(nil)
}

// read returns what a token says, nil if this server did not sign it.
func (t *tokens) read(token string) (*tokenText, error) {
	front, back, ok := strings.Cut(strings.TrimPrefix(token, tokenPrefix), ".")
	if !ok {
		return nil, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(front)
	if err != nil {
		return nil, nil
	}
	given, err := base64.RawURLEncoding.DecodeString(back)
	if err != nil {
		return nil, nil
	}
	secret, err := t.load(false)
	if secret == nil || err != nil {
		return nil, err
	}
	if !hmac.Equal(given, signature(secret, text)) {
		return nil, nil
	}
	says := &tokenText{}
	if err := json.Unmarshal(text, says); err != nil {
		return nil, nil
	}
	says.Key = masked(secret, says.Nonce, says.Key)
	return says, nil
}

const nonceBytes = 12

// masked hides an owner, or shows it again: it is a digest of the key's secret, and whoever
// has a token could guess at that without asking the server.
func masked(secret, nonce, owner []byte) []byte {
	mask := signature(secret, append([]byte("owner of "), nonce...))
	out := make([]byte, min(len(owner), len(mask)))
	subtle.XORBytes(out, owner, mask)
	return out
}

// tokenKey returns the key that the token of a request is: it reads what the token names,
// as long as the key that it was made with stands, and counts as that one. It ends with
// the request.
func (q *request) tokenKey(token string) (*apiKey, error) {
	says, err := q.s.tokens.read(token)
	if err != nil {
		return nil, &api.Error{Code: api.CodeInternal, Message: "the token cannot be checked; the server's log has the details", Err: err}
	}
	if says == nil {
		return nil, errKey()
	}
	maker := q.s.keys.owned(says.Key)
	k := &apiKey{maker: maker, scopes: scopeRead, prefixes: says.Prefixes, topics: says.Topics, expires: time.UnixMilli(says.Expires)}
	if maker == nil || !k.stands() {
		return nil, api.Errorf(api.CodeUnauthorized, "the token has ended, with its time or with its key; POST /v0/tokens makes another")
	}
	var end context.CancelFunc
	k.life, end = context.WithDeadline(q.r.Context(), k.expires)
	forget := context.AfterFunc(maker.standing(), end)
	context.AfterFunc(k.life, func() { forget() })
	return k, nil
}

// owned returns the key that stands whose owner mark is.
func (ks *Keys) owned(mark []byte) *apiKey {
	if len(mark) != len(engine.Owner{}) {
		return nil
	}
	if added := ks.added.Load(); added != nil {
		if k := added.owners[engine.Owner(mark)]; k != nil && k.stands() {
			return k
		}
	}
	for _, k := range ks.list {
		if k.owner() == engine.Owner(mark) {
			return k
		}
	}
	return nil
}

// ownerHalf is the half of an engine.Owner that a key shares with its tokens.
type ownerHalf [len(engine.Owner{}) / 2]byte

func halfOf(o engine.Owner) ownerHalf { return ownerHalf(o[:len(ownerHalf{})]) }

// owner is the key as the watch sessions remember it, across restarts too: its secret
// with its rights, so that a key that has others by then is another one. Tokens of a key that
// name the same are the same.
func (k *apiKey) owner() (o engine.Owner) {
	if k == nil {
		return o
	}
	h := sha256.New()
	if k.maker != nil {
		for _, names := range [][]string{k.topics, k.prefixes} {
			for _, name := range slices.Sorted(slices.Values(names)) {
				h.Write([]byte(name))
				h.Write([]byte{0})
			}
			h.Write([]byte{1})
		}
		copy(o[:], h.Sum(nil))
		half := halfOf(k.maker.owner())
		copy(o[:], half[:])
		return o
	}
	h.Write(k.digest[:])
	h.Write([]byte{byte(k.scopes)})
	for _, p := range k.prefixes {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	copy(o[:], h.Sum(nil))
	return o
}

// counted is the key that requests and streams of k count for.
func (k *apiKey) counted() *apiKey {
	if k != nil && k.maker != nil {
		return k.maker
	}
	return k
}

// postTokens makes a read token.
func (q *request) postTokens() error {
	req, err := api.DecodeToken(q.body, &q.warnings)
	if err != nil {
		return err
	}
	if err := q.strict(); err != nil {
		return err
	}
	if q.key != nil && q.key.maker != nil {
		return api.Errorf(api.CodeForbidden, "a token makes no other token; use the key")
	}
	for _, name := range req.Topics {
		if !q.key.allows(name) {
			return errBodyPrefix("topics", name)
		}
	}
	for _, p := range req.Prefixes {
		if !q.key.allows(p) {
			return errBodyPrefix("prefixes", p)
		}
	}
	until := time.Now().Add(time.Duration(req.TTLMS) * time.Millisecond)
	if q.key != nil && !q.key.expires.IsZero() && q.key.expires.Before(until) {
		until = q.key.expires
	}
	maker := q.key.owner()
	says := &tokenText{Key: maker[:], Expires: until.UnixMilli(), Topics: req.Topics, Prefixes: req.Prefixes}
	if err := q.eng.InPlace(); err != nil {
		return err
	}
	token, err := q.s.tokens.sign(says)
	if err != nil {
		return api.NotStored(err, "the token cannot be signed")
	}
	q.out = api.AppendTokenResult(q.out[:0], &api.TokenResult{Token: token, Expires: says.Expires})
	return q.send(http.StatusOK)
}
