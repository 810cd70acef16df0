package server

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/internal/keyfile"
	"github.com/weirmq/weir/tests/bubble"
)

// tokenServer is a server with keys of which only those and the tokens work.
func tokenServer(keys *Keys, dir string) *Server {
	return &Server{keys: keys, tokens: tokens{file: filepath.Join(dir, tokensFile)}}
}

func signToken(t *testing.T, s *Server, maker *apiKey, lasts time.Duration, topics ...string) string {
	t.Helper()
	owner := maker.owner()
	text, err := s.tokens.sign(&tokenText{Key: owner[:], Expires: time.Now().Add(lasts).UnixMilli(), Topics: topics})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func keyOfToken(t *testing.T, s *Server, token string) (*apiKey, error) {
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/v0/topics/a", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return (&request{s: s, r: r}).keyOf(false)
}

func TestAStartRemovesWhatACrashLeftOfTheSecret(t *testing.T) {
	var left, token string
	s := serveEngine(t, func(c *Config) {
		c.Keys = parseKeys(t, "maker:r")
		left = filepath.Join(c.DataDir, "."+tokensFile+".new-123")
		token = signToken(t, tokenServer(c.Keys, c.DataDir), c.Keys.list[0], time.Minute, "a")
		if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there, %v", left, err)
	}
	if _, err := keyOfToken(t, s.Server, token); err != nil {
		t.Errorf("the token has ended: %v", err)
	}
}

func TestATokenEndsWithItsTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := tokenServer(parseKeys(t, "maker:r"), t.TempDir())
		token := signToken(t, s, s.keys.list[0], time.Minute, "a")
		k, err := keyOfToken(t, s, token)
		if err != nil {
			t.Fatal(err)
		}
		if !k.allows("a") || k.allows("ab") || k.allows("b") || k.has(scopeWrite) || !k.has(scopeRead) {
			t.Error("the token allows something else than it names")
		}
		if k.counted() != s.keys.list[0] {
			t.Error("the token does not count for its maker")
		}
		time.Sleep(time.Minute - time.Millisecond)
		synctest.Wait()
		if !k.stands() || k.standing().Err() != nil {
			t.Error("the token ended before its time")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if k.stands() || k.standing().Err() == nil {
			t.Error("the token did not end with its time")
		}
		if _, err := keyOfToken(t, s, token); err == nil {
			t.Error("a token was accepted after its time")
		}
	})
}

// A key that is removed, or has other rights, takes its tokens along.
func TestATokenEndsWithItsKey(t *testing.T) {
	for name, change := range map[string]func(*keyfile.Key) []keyfile.Key{
		"removed":      func(*keyfile.Key) []keyfile.Key { return nil },
		"other rights": func(k *keyfile.Key) []keyfile.Key { k.Prefixes = []string{"a"}; return []keyfile.Key{*k} },
		"expired":      func(k *keyfile.Key) []keyfile.Key { k.Expires = time.Now(); return []keyfile.Key{*k} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				dir := t.TempDir()
				file := filepath.Join(dir, "keys.json")
				text, entry := newFileKey("maker", "read")
				writeKeys(t, file, entry)
				s := tokenServer(runKeys(t, file), dir)
				token := signToken(t, s, s.keys.find(text), time.Hour, "a")
				k, err := keyOfToken(t, s, token)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if !k.stands() || k.standing().Err() != nil {
					t.Fatal("the token ended by itself")
				}
				writeKeys(t, file, change(&entry)...)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if k.stands() || k.standing().Err() == nil {
					t.Error("the token outlives its key")
				}
				if _, err := keyOfToken(t, s, token); err == nil {
					t.Error("a token of a key that is gone was accepted")
				}
			})
		})
	}
}

// A token is not promised for longer than its key lasts.
func TestATokenSaysWhenItsKeyEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	text, entry := newFileKey("maker", "read")
	entry.Expires = time.Now().Add(time.Minute).Truncate(time.Second)
	writeKeys(t, file, entry)
	s := serveEngine(t, func(c *Config) {
		var err error
		if c.Keys, err = LoadKeys("", file); err != nil {
			t.Fatal(err)
		}
	})
	r := s.ask("POST", "/v0/tokens", `{"topics":["a"],"ttl_ms":3600000}`, header{"Authorization": "Bearer " + text})
	if want := fmt.Sprintf(`"expires_ts":%d`, entry.Expires.UnixMilli()); r.status != 200 || !strings.Contains(r.body, want) {
		t.Errorf("%d %s, want %s", r.status, r.body, want)
	}
}

// Any changed byte of a token makes it nothing.
func TestATokenThatWasChangedIsNone(t *testing.T) {
	s := tokenServer(parseKeys(t, "maker:r"), t.TempDir())
	token := signToken(t, s, s.keys.list[0], time.Hour, "a")
	for i := len(tokenPrefix); i < len(token); i++ {
		for _, c := range "A_.\x00" {
			if byte(c) == token[i] {
				continue
			}
			if i == len(token)-1 || token[i+1] == '.' {
				continue // the last character of base64 has bits that stand for nothing
			}
			changed := token[:i] + string(c) + token[i+1:]
			if says, err := s.tokens.read(changed); says != nil || err != nil {
				t.Fatalf("byte %d changed to %q: got %v, %v", i, c, says, err)
			}
		}
	}
	for _, other := range []string{token + "AAAA", strings.Replace(token, ".", ".AAAA", 1), tokenPrefix, token[:len(token)-4]} {
		if says, err := s.tokens.read(other); says != nil || err != nil {
			t.Errorf("%q: got %v, %v", other, says, err)
		}
	}
}

// Whoever sees a token cannot try guesses of the key on it: what it says of the key is another
// text each time, and nothing that follows from the key.
func TestATokenDoesNotGiveItsKeyAway(t *testing.T) {
	s := tokenServer(parseKeys(t, "maker:r"), t.TempDir())
	owner := s.keys.list[0].owner()
	seen := map[string]bool{}
	for range 10 {
		token := signToken(t, s, s.keys.list[0], time.Hour, "a")
		front, _, _ := strings.Cut(strings.TrimPrefix(token, tokenPrefix), ".")
		text, err := base64.RawURLEncoding.DecodeString(front)
		if err != nil {
			t.Fatal(err)
		}
		var says tokenText
		if err := json.Unmarshal(text, &says); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(says.Key, owner[:]) || seen[string(says.Key)] {
			t.Fatalf("the token says %x of its key", says.Key)
		}
		seen[string(says.Key)] = true
	}
}

// The file that signs is nobody else's to read, and is never made anew over a damaged one.
func TestTheFileThatSignsTokens(t *testing.T) {
	dir := t.TempDir()
	s := tokenServer(parseKeys(t, "maker:r"), dir)
	file := filepath.Join(dir, tokensFile)
	if _, err := keyOfToken(t, s, tokenPrefix+"e30.e30"); err == nil {
		t.Error("a token was accepted before any was made")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a token that is refused makes the file")
	}
	token := signToken(t, s, s.keys.list[0], time.Hour, "a")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != tokenSecret {
		t.Errorf("the file is %v, %v", info, err)
	}
	next := tokenServer(parseKeys(t, "maker:r"), dir)
	if _, err := keyOfToken(t, next, token); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	other := tokenServer(parseKeys(t, "maker:r"), t.TempDir())
	signToken(t, other, other.keys.list[0], time.Hour, "a")
	if _, err := keyOfToken(t, other, token); err == nil {
		t.Error("a token of another server was accepted")
	}
	if err := os.WriteFile(file, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := tokenServer(parseKeys(t, "maker:r"), dir)
	owner := damaged.keys.list[0].owner()
	if _, err := damaged.tokens.sign(&tokenText{Key: owner[:]}); err == nil || !strings.Contains(fmt.Sprint(err), file) {
		t.Errorf("got %v, want an error that names the file", err)
	}
}
