package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/keyfile"
)

// lookAtKeys is how often the file of keys is looked at.
const lookAtKeys = time.Second

// fileKeys are the keys of a file as it was read.
type fileKeys struct {
	info   fs.FileInfo // of the file that was read
	keys   map[[sha256.Size]byte]*apiKey
	owners map[engine.Owner]*apiKey
}

// LoadKeys reads the keys of a list in the form of ParseKeys and of a file, either of
// which may be empty. It returns nil if both are.
func LoadKeys(list, file string) (*Keys, error) {
	keys, err := ParseKeys(list)
	if err != nil {
		return nil, fmt.Errorf("environment variable WEIR_API_KEYS: %w", err)
	}
	if file == "" {
		return keys, nil
	}
	if keys == nil {
		keys = &Keys{}
	}
	keys.file = file
	if _, err = keys.read(); err != nil {
		return nil, fmt.Errorf("setting keys_file: %w", err)
	}
	return keys, nil
}

// all are the keys of the list and of the file.
func (ks *Keys) all() iter.Seq[*apiKey] {
	return func(yield func(*apiKey) bool) {
		for _, k := range ks.list {
			if !yield(k) {
				return
			}
		}
		if added := ks.added.Load(); added != nil {
			maps.Values(added.keys)(yield)
		}
	}
}

// mayChange reports whether there is a file.
func (ks *Keys) mayChange() bool { return ks != nil && ks.file != "" }

// run reads the file when it changes and ends keys whose time is over, until ctx ends.
// What a file that cannot be read held before stays.
func (ks *Keys) run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(lookAtKeys)
	defer tick.Stop()
	for told := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		changed, err := ks.read()
		switch {
		case err != nil && err.Error() != told:
			told = err.Error()
			log.Error("the file of keys cannot be read; the keys before stay", "error", err)
		case changed, err == nil && told != "": // or it is back as it was
			all, limited := ks.Count()
			log.Info("the file of keys was read", "keys", all, "limited_to_prefixes", limited)
		}
		if err == nil {
			told = ""
		}
		ks.endOld(log)
	}
}

// read reads the file if it has changed. Keys that stay as they are keep their streams;
// those of others end.
func (ks *Keys) read() (changed bool, err error) {
	info, err := os.Stat(ks.file)
	if err != nil {
		return false, err
	}
	before := ks.added.Load()
	// A file that replaced another within the clock's step is another one.
	if before != nil && os.SameFile(before.info, info) && before.info.ModTime().Equal(info.ModTime()) && before.info.Size() == info.Size() {
		return false, nil
	}
	entries, err := keyfile.Read(ks.file)
	if err != nil {
		return false, err
	}
	now := &fileKeys{info, make(map[[sha256.Size]byte]*apiKey, len(entries)), make(map[engine.Owner]*apiKey, len(entries))}
	for i := range entries {
		k, err := ks.fileKey(&entries[i], before)
		if err != nil {
			return false, fmt.Errorf("%s: key %q: %w", ks.file, entries[i].Name, err)
		}
		now.keys[k.digest], now.owners[k.owner()] = k, k
	}
	ks.added.Store(now)
	if before != nil {
		for digest, k := range before.keys {
			if now.keys[digest] != k {
				k.end()
			}
		}
	}
	return before != nil, nil
}

// fileKey returns the key of an entry: the one from before if nothing about it has changed.
func (ks *Keys) fileKey(e *keyfile.Key, before *fileKeys) (*apiKey, error) {
	k, err := keyOf(e)
	if err != nil {
		return nil, err
	}
	for _, given := range ks.list {
		if given.digest == k.digest {
			return nil, errors.New("it is in WEIR_API_KEYS, too; give each key its own secret")
		}
	}
	if before != nil {
		if old := before.keys[k.digest]; old != nil && old.name == k.name && old.scopes == k.scopes &&
			slices.Equal(old.prefixes, k.prefixes) && old.expires.Equal(k.expires) && old.stands() {
			return old, nil
		}
	}
	k.life, k.end = context.WithCancel(context.Background())
	return k, nil
}

// CheckKey refuses an entry of a file that could grant nothing, or more than was meant.
func CheckKey(e *keyfile.Key) error {
	_, err := keyOf(e)
	return err
}

func keyOf(e *keyfile.Key) (*apiKey, error) {
	k := &apiKey{name: e.Name, expires: e.Expires}
	var err error
	if k.digest, err = e.Digest(); err != nil {
		return nil, err
	}
	for _, word := range e.Scopes {
		s, ok := scopeNames[word]
		if !ok {
			return nil, fmt.Errorf("scope %q is unknown; known: read, write, delete, admin, rw", word)
		}
		k.scopes |= s
	}
	if k.scopes == 0 {
		return nil, errors.New("it has no scopes; name some of read, write, delete, admin")
	}
	if e.Prefixes != nil && len(e.Prefixes) == 0 {
		return nil, errors.New("its list of prefixes is empty; leave it out for a key to any name")
	}
	for _, p := range e.Prefixes {
		if err := checkPrefix(p); err != nil {
			return nil, fmt.Errorf("prefix %q %w", p, err)
		}
	}
	k.prefixes = e.Prefixes
	return k, nil
}

// endOld ends the keys whose time is over.
func (ks *Keys) endOld(log *slog.Logger) {
	for k := range ks.all() {
		if k.life != nil && k.life.Err() == nil && k.old() {
			log.Warn("a key has expired", "key", k.name)
			k.end()
		}
	}
}

func (k *apiKey) old() bool { return !k.expires.IsZero() && !time.Now().Before(k.expires) }

// stands reports whether the key is accepted.
func (k *apiKey) stands() bool {
	if k != nil && k.maker != nil {
		return k.maker.stands() && !k.old() // its life ends with its request, too
	}
	return k == nil || k.life == nil || k.life.Err() == nil && !k.old()
}

// standing returns a context that ends when the key is accepted no more.
func (k *apiKey) standing() context.Context {
	if k == nil || k.life == nil {
		return context.Background()
	}
	return k.life
}

// whileStands makes the request's context end with its key, or with the session that has it, for
// a request that may take long, until release is called.
func (q *request) whileStands(k *apiKey) (release func()) {
	if k == nil || k.life == nil && q.signedIn == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(q.r.Context())
	life := k.life
	switch {
	case q.signedIn != nil:
		life = q.signedIn // which ends with the key, too
	case k.maker != nil:
		// The token's own life ends with its handler.
		ctx, cancel = context.WithDeadline(q.r.Context(), k.expires)
		life = k.maker.standing()
	}
	stop := context.AfterFunc(life, cancel)
	q.r = q.r.WithContext(ctx)
	return func() { stop(); cancel() }
}
