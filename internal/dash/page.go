package dash

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed assets
var assets embed.FS

// file is a part of the page as it is sent.
type file struct {
	kind         string
	tag          string // ETag
	body, packed []byte
}

// kinds are the types of the files, by the ends of their names. What the machine says of them, as package
// mime does, may be something that no browser runs.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// files are the parts of the page by name, packed when the first is asked for: few
// programs that have the page show it.
var files = sync.OnceValue(load)

func load() map[string]*file {
	all := make(map[string]*file)
	z, _ := gzip.NewWriterLevel(nil, gzip.BestCompression)
	entries, err := fs.ReadDir(assets, "assets")
	if err != nil {
		panic(err) // they are embedded
	}
	for _, e := range entries {
		body, err := assets.ReadFile("assets/" + e.Name())
		if err != nil {
			panic(err)
		}
		var packed bytes.Buffer
		z.Reset(&packed)
		_, _ = z.Write(body) // a buffer takes everything
		_ = z.Close()
		sum := sha256.Sum256(body)
		all[e.Name()] = &file{kind: kinds[path.Ext(e.Name())], tag: `"` + hex.EncodeToString(sum[:8]) + `"`, body: body, packed: packed.Bytes()}
	}
	all[""] = all["index.html"]
	return all
}

// digest tells the page's files from those of another version.
var digest = sync.OnceValue(func() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files())) {
		h.Write([]byte(name + files()[name].tag))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
})

// policy allows the page its own files and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeFile answers with a part of the page; "" is the page itself. It returns false if
// there is none of that name.
func ServeFile(w http.ResponseWriter, r *http.Request, name string) bool {
	f := files()[name]
	if f == nil {
		return false
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.tag)
	h.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	body := f.body
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = f.packed
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that is gone needs no page
	}
	return true
}
