package site

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// fetched are the attributes by which a browser asks for something without being told to
// by a person.
var fetched = map[string][]string{
	"script": {"src"}, "img": {"src", "srcset"}, "source": {"src", "srcset"}, "iframe": {"src"}, "embed": {"src"},
	"object": {"data"}, "video": {"src", "poster"}, "audio": {"src"}, "track": {"src"}, "input": {"src"},
	"use": {"href", "xlink:href"}, "image": {"href", "xlink:href"}, "base": {"href"}, "form": {"action"},
	"a": {"ping"}, "body": {"background"},
}

// said are the relations of a link element that nothing is fetched for.
var said = []string{"canonical", "next", "prev", "license", "author"}

// inCSS finds what a style asks for.
var inCSS = regexp.MustCompile(`url\(\s*['"]?([^'")]*)|@import\s+['"]([^'"]*)`)

// A reader of the documentation is seen by nobody but its server.
func TestNoPageAsksAnotherOrigin(t *testing.T) {
	t.Parallel()
	dir := built(t)
	pages, files := 0, 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		ask := func(target string) {
			if err := here(dir, path, target); err != "" {
				t.Errorf("%s: %s %q", strings.TrimPrefix(path, dir+"/"), err, target)
			}
			files++
		}
		switch filepath.Ext(path) {
		case ".html":
			pages++
			asked(t, read(t, path), ask)
		case ".css", ".svg":
			style(read(t, path), ask)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if pages < 40 || files < 4*pages {
		t.Errorf("looked at %d references of %d pages: the search misses them", files, pages)
	}
}

// here says what is wrong with a reference: it leads to another origin, or to a file that
// is not there.
func here(dir, page, target string) string {
	u, err := url.Parse(strings.TrimSpace(target))
	switch {
	case err != nil:
		return "cannot be parsed:"
	case u.Scheme == "data" || target == "" || strings.HasPrefix(target, "#"):
		return ""
	case u.Scheme != "" || u.Host != "":
		return "asks another origin:"
	}
	path := filepath.Join(filepath.Dir(page), filepath.FromSlash(u.Path))
	if strings.HasPrefix(u.Path, "/") {
		path = filepath.Join(dir, filepath.FromSlash(u.Path))
	}
	if _, err := os.Stat(path); err != nil {
		return "asks for what is not there:"
	}
	return ""
}

// asked calls ask with everything that a page fetches.
func asked(t *testing.T, page string, ask func(string)) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	policy := false
	for n := range root.Descendants() {
		if n.Type == html.TextNode && n.Parent.Data == "style" {
			style(n.Data, ask)
		}
		if n.Type != html.ElementNode {
			continue
		}
		attr := map[string]string{}
		for _, a := range n.Attr {
			name := a.Key
			if a.Namespace != "" {
				name = a.Namespace + ":" + a.Key
			}
			attr[name] = a.Val
		}
		policy = policy || n.Data == "meta" && attr["http-equiv"] == "Content-Security-Policy"
		if n.Data == "meta" && strings.EqualFold(attr["http-equiv"], "refresh") {
			_, target, _ := strings.Cut(strings.ToLower(attr["content"]), "url=")
			ask(target)
		}
		if n.Data == "link" && !slices.Contains(said, attr["rel"]) {
			ask(attr["href"])
		}
		for _, name := range fetched[n.Data] {
			if target, has := attr[name]; has {
				for part := range strings.SplitSeq(target, ",") {
					if !strings.HasSuffix(name, "srcset") {
						part = target
					}
					first, _, _ := strings.Cut(strings.TrimSpace(part), " ")
					ask(first)
				}
			}
		}
		style(attr["style"], ask)
	}
	if !policy {
		t.Error("a page has no Content-Security-Policy")
	}
}

// style calls ask with everything that a style fetches.
func style(text string, ask func(string)) {
	for _, m := range inCSS.FindAllStringSubmatch(text, -1) {
		ask(m[1] + m[2])
	}
}

// The search would pass if it found nothing.
func TestWhatAsksAnotherOriginIsFound(t *testing.T) {
	t.Parallel()
	for _, page := range []string{
		`<script src="https://example.com/a.js"></script>`,
		`<link rel="stylesheet" href="//example.com/a.css">`,
		`<link rel="preconnect" href="https://example.com">`,
		`<img src="https://example.com/a.png">`,
		`<img srcset="data:, 1x, https://example.com/a.png 2x">`,
		`<style>@import "https://example.com/a.css";</style>`,
		`<style>@font-face { src: url(https://example.com/a.woff2) }</style>`,
		`<p style="background: url('https://example.com/a.png')">`,
		`<meta http-equiv="refresh" content="0; url=https://example.com">`,
		`<svg><use xlink:href="https://example.com/a.svg#b"/></svg>`,
		`<iframe src="https://example.com"></iframe>`,
	} {
		found := false
		asked(t, `<meta http-equiv="Content-Security-Policy">`+page, func(target string) {
			found = found || here("/", "/a.html", target) == "asks another origin:"
		})
		if !found {
			t.Errorf("not found: %s", page)
		}
	}
}
