// Package keyfile reads and writes files of API keys. A file holds digests, not keys, so
// whoever reads it cannot use them.
package keyfile

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/internal/atomicfile"
)

// Key is what a file says of a key.
type Key struct {
	Name     string    `json:"name"`
	SHA256   string    `json:"sha256"`             // of the key's text, in hexadecimal
	Scopes   []string  `json:"scopes"`             // read, write, delete, admin
	Prefixes []string  `json:"prefixes,omitempty"` // of the names it may use; none: any name
	Created  time.Time `json:"created,omitzero"`
	Expires  time.Time `json:"expires,omitzero"` // zero: never
}

// Digest returns the digest of the key's text.
func (k *Key) Digest() (d [sha256.Size]byte, err error) {
	b, err := hex.DecodeString(k.SHA256)
	if err != nil || len(b) != len(d) {
		return d, fmt.Errorf("key %q: sha256 is not 64 hexadecimal digits", k.Name)
	}
	return [sha256.Size]byte(b), nil
}

// file is the whole of it.
type file struct {
	Keys []Key `json:"keys"`
}

const (
	maxBytes = 4 << 20
	maxKeys  = 10_000
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// Read returns the keys of a file. An error wraps fs.ErrNotExist if it is not there, and
// names what is wrong with it otherwise.
func Read(path string) ([]Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxBytes)
	}
	var all file
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("%s is not a file of keys: %w; see weir key new --help", path, explained(err, text, d.InputOffset()))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s is not a file of keys: something follows the object", path)
	}
	if err := check(all.Keys); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all.Keys, nil
}

// explained says what is wrong with the text of a file, and in which line. Where an error tells no
// place, the decoder came as far as read.
func explained(err error, text []byte, read int64) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var date *time.ParseError
	line := func(offset int64) int {
		return 1 + bytes.Count(text[:min(int(offset), len(text))], []byte("\n"))
	}
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it ends in the middle of a value")
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d is not JSON: %w", line(syntax.Offset), err)
	case errors.As(err, &kind):
		expected := map[reflect.Kind]string{reflect.String: "a string", reflect.Slice: "a list", reflect.Struct: "an object"}[kind.Type.Kind()]
		return fmt.Errorf("line %d: %s is of the type %s; expected %s", line(kind.Offset), cmp.Or(kind.Field, "the whole"), kind.Value, expected)
	case errors.As(err, &date):
		return fmt.Errorf("%q is not a time such as 2026-01-31T12:00:00Z", date.Value)
	}
	return fmt.Errorf("line %d: %s", line(read), strings.TrimPrefix(err.Error(), "json: "))
}

// CheckName refuses what is not the name of a key.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("the name %q is not 1 to 64 letters, digits and . _ @ -, the first a letter or digit", name)
	}
	return nil
}

func check(keys []Key) error {
	if len(keys) > maxKeys {
		return fmt.Errorf("it has %d keys; at most %d", len(keys), maxKeys)
	}
	names, digests := map[string]bool{}, map[[sha256.Size]byte]string{}
	for i := range keys {
		k := &keys[i]
		if err := CheckName(k.Name); err != nil {
			return fmt.Errorf("key %d: %w", i+1, err)
		}
		if names[k.Name] {
			return fmt.Errorf("the name %q is there twice", k.Name)
		}
		names[k.Name] = true
		d, err := k.Digest()
		if err != nil {
			return err
		}
		if other, ok := digests[d]; ok {
			return fmt.Errorf("keys %q and %q are the same; give each its own", other, k.Name)
		}
		digests[d] = k.Name
	}
	return nil
}

// Write replaces the file in one step. A new one is readable by its owner alone; one that is
// there keeps its mode and owner.
func Write(path string, keys []Key) error {
	if err := check(keys); err != nil {
		return err
	}
	text, err := json.MarshalIndent(file{keys}, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if len(text) > maxBytes {
		return fmt.Errorf("%s would be larger than %d bytes, and nobody could read it; it stays as it is", path, maxBytes)
	}
	err = atomicfile.Rewrite(path, text) // the server goes on to read it
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the folder %s does not exist; make it first", filepath.Dir(path))
	}
	return err
}

// New returns the text of a new key of 256 random bits, and its entry, which has no
// rights yet.
func New(name string, now time.Time) (text string, k Key) {
	bits := make([]byte, 32)
	_, _ = rand.Read(bits) // never fails
	text = "weir_" + base64.RawURLEncoding.EncodeToString(bits)
	digest := sha256.Sum256([]byte(text))
	return text, Key{Name: name, SHA256: hex.EncodeToString(digest[:]), Created: now.UTC().Truncate(time.Second)}
}

// Remove returns keys without the one of that name, and whether it was there.
func Remove(keys []Key, name string) (left []Key, found bool) {
	left = slices.DeleteFunc(slices.Clone(keys), func(k Key) bool { return k.Name == name })
	return left, len(left) < len(keys)
}
