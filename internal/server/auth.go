package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"

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

// String lists the scopes as they are written in WEIR_API_KEYS.
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

// Keys are the keys that a server accepts. Secrets are kept as digests only.
type Keys struct {
	list []*apiKey
}

// apiKey is one entry of Keys. A nil *apiKey stands for auth being off and may
// do everything.
type apiKey struct {
	digest   [sha256.Size]byte
	scopes   scope
	prefixes []string // empty: any name
	inflight gauge
	streams  int64 // guarded by Server.streams
}

func (k *apiKey) has(need scope) bool { return k == nil || k.scopes&need == need }

func (k *apiKey) limited() bool { return k != nil && len(k.prefixes) > 0 }

func (k *apiKey) allows(name string) bool {
	if !k.limited() {
		return true
	}
	for _, p := range k.prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// ParseKeys reads the entry forms of section 4. It returns nil if the list has
// no entry, and refuses whatever could grant more than was meant. Its errors
// tell an entry by its position, never by its secret.
func ParseKeys(list string) (*Keys, error) {
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
				return nil, fmt.Errorf("entry %d: the same secret is listed twice", i+1)
			}
		}
		keys.list = append(keys.list, k)
	}
	if len(keys.list) == 0 {
		return nil, nil
	}
	return keys, nil
}

func parseKey(entry string) (*apiKey, error) {
	part := strings.SplitN(entry, ":", 3)
	secret := strings.TrimSpace(part[0])
	if secret == "" {
		return nil, errors.New("the secret is empty; write key[:scopes[:prefixes]]")
	}
	k := &apiKey{digest: sha256.Sum256([]byte(secret)), scopes: scopeAll}
	if len(part) > 1 && strings.TrimSpace(part[1]) != "" {
		k.scopes = 0
		for _, word := range splitTrim(part[1], "+") {
			s, ok := scopeNames[strings.ToLower(word)]
			if !ok {
				return nil, fmt.Errorf("unknown scope %q; use read, write, delete, admin or rw, joined by +", word)
			}
			k.scopes |= s
		}
		if k.scopes == 0 {
			return nil, errors.New("the scope field names no scope; leave it empty for all four")
		}
	}
	if len(part) > 2 && strings.TrimSpace(part[2]) != "" {
		if k.prefixes = splitTrim(part[2], "|"); len(k.prefixes) == 0 {
			return nil, errors.New("the prefix field names no prefix; leave it empty for any name")
		}
	}
	return k, nil
}

// Count returns how many keys there are and how many of them are limited to
// prefixes; 0 if auth is off.
func (ks *Keys) Count() (all, limited int) {
	if ks == nil {
		return 0, 0
	}
	for _, k := range ks.list {
		if k.limited() {
			limited++
		}
	}
	return len(ks.list), limited
}

// find returns the key with this secret, comparing with all of them in a time
// that does not depend on which one matches.
func (ks *Keys) find(secret string) *apiKey {
	digest := sha256.Sum256([]byte(secret))
	var found *apiKey
	for _, k := range ks.list {
		if subtle.ConstantTimeCompare(digest[:], k.digest[:]) == 1 {
			found = k
		}
	}
	return found
}

// authenticate finds the key of a request; with token it may also stand in the
// query, where a client that cannot set headers puts it.
func (ks *Keys) authenticate(r *http.Request, token bool) (*apiKey, *api.Error) {
	secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok && token {
		secret, ok = r.URL.Query().Get("token"), true
	}
	if secret = strings.TrimSpace(secret); !ok || secret == "" {
		return nil, api.Errorf(api.CodeUnauthorized, "this server needs a key; send the header Authorization: Bearer <key>")
	}
	if k := ks.find(secret); k != nil {
		return k, nil
	}
	return nil, api.Errorf(api.CodeUnauthorized, "the key is not known to this server")
}

func errScope(need scope) *api.Error {
	return api.Errorf(api.CodeForbidden, "the key lacks a scope; this call needs %s", need)
}

func errPrefix() *api.Error {
	return api.Errorf(api.CodeForbidden, "the name in the path is outside the prefixes of the key")
}

// errBodyPrefix is the refusal of a name that stands in the body.
func errBodyPrefix(field, name string) *api.Error {
	return api.Errorf(api.CodeForbidden, "%s %q is outside the prefixes of the key", field, name).With("topic", name)
}
