package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// scope is a set of rights.
type scope uint8

const (
	scopeRead scope = 1 << iota
	scopeWrite
	scopeDelete
	scopeAdmin
	scopeAll = scopeRead | scopeWrite | scopeDelete | scopeAdmin
)

// String lists the scopes as written in WEIR_API_KEYS.
func (s scope) String() string {
	var out []string
	for i, name := range []string{"read", "write", "delete", "admin"} {
		if s&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, "+")
}

var scopeNames = map[string]scope{
	"read": scopeRead, "r": scopeRead,
	"write": scopeWrite, "w": scopeWrite,
	"rw":     scopeRead | scopeWrite,
	"delete": scopeDelete, "del": scopeDelete, "d": scopeDelete,
	"admin": scopeAdmin, "a": scopeAdmin,
}

// Keys are the keys a server accepts. Secrets are kept only as digests.
type Keys struct {
	list  []*apiKey // of WEIR_API_KEYS
	file  string    // empty: none
	added atomic.Pointer[fileKeys]
}

// apiKey is one entry of Keys. A nil *apiKey means that auth is off and everything is
// allowed.
type apiKey struct {
	digest   [sha256.Size]byte
	place    int    // in the list, counted from 1
	name     string // in the file
	scopes   scope
	prefixes []string        // with topics empty, too: any name
	topics   []string        // of a read token, besides prefixes
	maker    *apiKey         // of a read token: the key that it was made with
	expires  time.Time       // zero: never
	life     context.Context // ends when the key stands no more; nil: it stands as long as the server
	end      context.CancelFunc
	inflight gauge
	streams  int64 // guarded by Server.streams
}

func (k *apiKey) has(need scope) bool { return k == nil || k.scopes&need == need }

func (k *apiKey) limited() bool { return k != nil && len(k.prefixes)+len(k.topics) > 0 }

func (k *apiKey) allows(name string) bool {
	if !k.limited() {
		return true
	}
	for _, p := range k.prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return slices.Contains(k.topics, name)
}

// ParseKeys reads the entry forms of docs/API.md, Keys. It returns nil if the list is
// blank, and refuses anything that could grant nothing, or more than was meant. Its
// errors identify a part by its position and never quote it: after a wrong separator a
// secret may be anywhere.
func ParseKeys(list string) (*Keys, error) {
	if strings.TrimSpace(list) == "" {
		return nil, nil
	}
	keys := &Keys{}
	for i, entry := range strings.Split(list, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		k, err := parseKey(entry)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
		for _, other := range keys.list {
			if other.digest == k.digest {
				return nil, fmt.Errorf("entry %d: its secret is the same as that of entry %d; give each key its own secret", i+1, other.place)
			}
		}
		k.place = i + 1
		keys.list = append(keys.list, k)
	}
	if len(keys.list) == 0 {
		return nil, errors.New("the list contains no key; leave it empty to serve without keys")
	}
	return keys, nil
}

// parseKey reads one entry. An empty field is refused where it would lift a
// restriction: it is what an unset variable leaves of a key that was meant to be
// limited.
func parseKey(entry string) (*apiKey, error) {
	part := strings.SplitN(entry, ":", 3)
	for i := range part {
		part[i] = strings.TrimSpace(part[i])
	}
	k := &apiKey{digest: sha256.Sum256([]byte(part[0])), scopes: scopeAll}
	err := checkSecret(part[0])
	if err == nil && (len(part) == 2 || len(part) == 3 && part[1] != "") {
		k.scopes, err = parseScopes(part[1])
	}
	if err == nil && len(part) > 2 {
		k.prefixes, err = parsePrefixes(part[2])
	}
	if err != nil {
		return nil, err
	}
	return k, nil
}

func checkSecret(secret string) error {
	if secret == "" {
		return errors.New("the secret is empty; write key, key:scopes, key:scopes:prefixes or key::prefixes")
	}
	for i := range len(secret) {
		if c := secret[i]; c < ' ' && c != '\t' || c == 0x7f {
			return fmt.Errorf("the secret has a control character at byte %d, which no client can send; separate entries by commas", i+1)
		}
	}
	return nil
}

func parseScopes(field string) (scope, error) {
	if field == "" {
		return 0, errors.New("the scope field is empty; name its scopes, or leave out the colon for a key with all four")
	}
	var all scope
	for i, word := range strings.Split(field, "+") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		s, ok := scopeNames[strings.ToLower(word)]
		if !ok {
			return 0, fmt.Errorf("scope %d of the scope field is unknown; use read, write, delete, admin or rw, joined by +", i+1)
		}
		all |= s
	}
	if all == 0 {
		return 0, errors.New("the scope field names no scope; use read, write, delete, admin or rw, joined by +")
	}
	return all, nil
}

func parsePrefixes(field string) ([]string, error) {
	if field == "" {
		return nil, errors.New("the prefix field is empty; name its prefixes, or leave out the colon for a key to any name")
	}
	var all []string
	for i, p := range strings.Split(field, "|") {
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		if err := checkPrefix(p); err != nil {
			return nil, fmt.Errorf("prefix %d of the prefix field %w", i+1, err)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, errors.New("the prefix field names no prefix; write prefixes joined by |")
	}
	return all, nil
}

// checkPrefix refuses prefixes that no topic or router name can begin with.
func checkPrefix(p string) error {
	if api.ValidRouterName(p) {
		return nil
	}
	if p == "" {
		return errors.New("is empty; leave the prefixes out for a key to any name")
	}
	for _, c := range p {
		switch {
		case c == '*' || c == '?':
			return fmt.Errorf("has a %q; write the beginning of the names, without a wildcard", c)
		case !api.ValidRouterName("a" + string(c)):
			return fmt.Errorf("has a %q, which no name has; names are letters, digits and . _ : - (routers also >)", c)
		}
	}
	if len(p) > api.MaxNameBytes {
		return fmt.Errorf("is %d bytes long; names have up to %d", len(p), api.MaxNameBytes)
	}
	return fmt.Errorf("begins with %q; names begin with a letter or digit", p[0])
}

// Count returns how many keys there are and how many of them are limited to
// prefixes; 0 if auth is off.
func (ks *Keys) Count() (all, limited int) {
	if ks == nil {
		return 0, 0
	}
	for k := range ks.all() {
		all++
		if k.limited() {
			limited++
		}
	}
	return all, limited
}

// find returns the key with this secret. It compares with all keys of the list, in a time
// that does not depend on which one matches. Those of the file, of which there may be
// thousands, are looked up: they are random, and so are their digests.
func (ks *Keys) find(secret string) *apiKey {
	digest := sha256.Sum256([]byte(secret))
	var found *apiKey
	for _, k := range ks.list {
		if subtle.ConstantTimeCompare(digest[:], k.digest[:]) == 1 {
			found = k
		}
	}
	if added := ks.added.Load(); found == nil && added != nil {
		if k := added.keys[digest]; k != nil && k.stands() {
			return k
		}
	}
	return found
}

// authenticate finds the key of the request, or the read token; with token it may also be among the protocols of a
// WebSocket or in the query, for clients that cannot set headers.
func (q *request) authenticate(token bool) (*apiKey, error) {
	secret, ok := strings.CutPrefix(q.r.Header.Get("Authorization"), "Bearer ")
	if !ok && token && isUpgrade(q.r) {
		secret, ok = api.SocketKey(q.r.Header["Sec-Websocket-Protocol"])
	}
	if !ok && token {
		secret, ok = q.r.URL.Query().Get("token"), true
	}
	if secret = strings.TrimSpace(secret); !ok || secret == "" {
		return nil, api.Errorf(api.CodeUnauthorized, "this server needs a key; send the header Authorization: Bearer <key>")
	}
	if k := q.s.keys.find(secret); k != nil {
		return k, nil
	}
	if strings.HasPrefix(secret, tokenPrefix) {
		return q.tokenKey(secret)
	}
	return nil, errKey()
}

func errKey() error { return api.Errorf(api.CodeUnauthorized, "the key is not known to this server") }

func errScope(need scope) error {
	return api.Errorf(api.CodeForbidden, "the key lacks a scope; this call needs %s", need)
}

func errPrefix() error {
	return api.Errorf(api.CodeForbidden, "the name in the path is outside the prefixes of the key")
}

// errBodyPrefix refuses a name in the body.
func errBodyPrefix(field, name string) error {
	name = name[:min(len(name), api.MaxNameBytes)] // a longer one is none
	return api.Errorf(api.CodeForbidden, "%s %q is outside the prefixes of the key", field, name).With("topic", name)
}
