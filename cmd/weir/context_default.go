package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/settings"
)

// baseURL is where names lead: what WEIR_URL says, or a context.
type baseURL struct {
	where string // for errors
	url   string
	saved *savedContext // nil: WEIR_URL
}

// schemes are those of URLs that a name can be put on.
var schemes = []string{"http", "https", "redis", "rediss", "kafka", "kafkas", "file"}

// base returns where names lead, nil if nothing says it. --context comes before WEIR_URL,
// which comes before WEIR_CONTEXT and the context in use.
func base(cmd *cobra.Command) (*baseURL, error) {
	where, name := "", ""
	if f := cmd.Flags().Lookup("context"); f != nil && f.Changed {
		where, name = "flag --context", f.Value.String()
	} else if raw := os.Getenv("WEIR_URL"); raw != "" {
		if err := checkBase(raw); err != nil {
			return nil, fmt.Errorf("environment variable WEIR_URL: %w", err)
		}
		return &baseURL{where: "WEIR_URL", url: raw}, nil
	} else if name = os.Getenv("WEIR_CONTEXT"); name != "" {
		where = "environment variable WEIR_CONTEXT"
	}
	all, err := readContexts()
	if err != nil {
		return nil, err
	}
	if name == "" {
		name, where = all.Current, "the context in use"
	}
	if name == "" {
		return nil, nil
	}
	saved, err := all.find(name)
	if err == nil {
		err = checkBase(saved.URL)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return &baseURL{where: "context " + name, url: saved.URL, saved: saved}, nil
}

// checkBase refuses a text that no URL begins with. Its errors do not repeat it: it may hold a
// key.
func checkBase(raw string) error {
	if err := checkURL(raw); err != nil {
		return err
	}
	u, err := url.Parse(raw)
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.Scheme != "file" && u.Hostname() == "" {
		return errors.New("not the URL of a server or stream; expected http://host:port, https, redis, rediss, kafka or kafkas likewise, or file:///DIR")
	}
	return nil
}

// join returns the URL of a name.
func (b *baseURL) join(name string) (string, error) {
	u, err := url.Parse(b.url)
	if err != nil {
		return "", fmt.Errorf("%s is not a URL", b.where)
	}
	key := map[string]string{"redis": "stream", "rediss": "stream", "file": "topic"}[u.Scheme]
	query := u.Query()
	if key != "" && query.Has(key) || key == "" && strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("%s has a name already, so %q cannot be a name on it; leave it out, or give a whole URL", b.where, name)
	}
	if key == "" {
		u.Path = "/" + name
		return u.String(), nil
	}
	query.Set(key, name)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

var bareName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:>-]*$`)

// isName reports whether an argument is a name and neither a path nor a URL.
func isName(arg string) bool {
	scheme, _, colon := strings.Cut(arg, ":")
	return bareName.MatchString(arg) && !hostFirst.MatchString(arg) && !(colon && slices.Contains(schemes, scheme))
}

// withURLs returns the arguments of a command with names in the place of URLs made into URLs,
// and the URL of the environment or context where the only one is missing. used is
// the base that they are of, nil if it was not asked for.
func withURLs(cmd *cobra.Command, args []string) (all []string, used *baseURL, err error) {
	words := strings.Fields(strings.TrimSuffix(cmd.Use, " [flags]"))[1:]
	if len(words) == 0 || !strings.Contains(words[0], "URL") || cmd.Flags().Lookup("context") == nil { // of a copy no name says where it is
		return args, nil, nil
	}
	optional := strings.HasPrefix(words[0], "[")
	needed := slices.ContainsFunc(words[1:], func(word string) bool { return !strings.HasPrefix(word, "[") })
	toDir := len(args) == 1 && len(words) == 2 && words[1] == "DIR" && !strings.Contains(args[0], "://") && !strings.HasPrefix(args[0], "file:")
	missing := !optional && (len(args) == 0 && !needed || toDir)
	urls := args[:min(1, len(args))]
	if strings.Contains(words[0], "…") {
		urls = args
	}
	if !missing && !slices.ContainsFunc(urls, isName) {
		if cmd.Flags().Changed("context") { // a URL counts before it, but what is named has to be there
			_, err = base(cmd)
		}
		return args, nil, err
	}
	b, err := base(cmd)
	switch {
	case err != nil && missing:
		return append([]string{""}, args...), nil, err // one was to be used, so the arguments are not too few
	case err != nil:
		return nil, nil, err
	case missing && b == nil:
		return append([]string{""}, args...), nil, fmt.Errorf("the URL is missing: %s; WEIR_URL or a context (weir context set) may say it", cmd.UseLine())
	case missing:
		return append([]string{b.url}, args...), b, nil
	case b == nil:
		first := slices.IndexFunc(urls, isName)
		return nil, nil, fmt.Errorf("%q is not a URL, and as a name it needs WEIR_URL or a context (weir context set)", urls[first])
	}
	all = slices.Clone(args)
	for i := range urls {
		if !isName(all[i]) {
			if b.saved != nil {
				return nil, nil, fmt.Errorf("%s is for names, and argument %d is a URL, which must not get its key; give names or URLs", b.where, i+1)
			}
			continue
		}
		if all[i], err = b.join(all[i]); err != nil {
			return nil, nil, err
		}
	}
	return all, b, nil
}

type contextKey struct{}

// fillFromContext gives a command the key and the certificates of the context that its URLs
// are of, where neither a flag nor the environment has one.
func fillFromContext(cmd *cobra.Command, f settings.Fields) error {
	b, _ := cmd.Context().Value(contextKey{}).(*baseURL)
	if b == nil || b.saved == nil {
		return nil
	}
	fill := func(name, text string) {
		if to, ok := f[name].(*string); ok {
			*to = cmp.Or(*to, text)
		}
	}
	fill("ca", b.saved.CA)
	fill("tls-cert", b.saved.TLSCert)
	fill("tls-key", b.saved.TLSKey)
	key, _ := f["api-key"].(*string)
	file, _ := f["api-key-file"].(*string)
	switch {
	case key == nil || file == nil || *key != "" || *file != "":
	case b.saved.KeyFile != "":
		if _, err := readKey(b.saved.KeyFile); err != nil {
			return fmt.Errorf("%s: the file of its key: %w", b.where, err)
		}
		*file = b.saved.KeyFile
	case b.saved.KeyEnv != "":
		if *key = os.Getenv(b.saved.KeyEnv); *key == "" {
			return fmt.Errorf("%s: the environment variable %s, which has its key, is not set", b.where, b.saved.KeyEnv)
		}
	}
	return nil
}

// ofBase is a usage error about a URL that was not typed, which names where it comes from.
func ofBase(cmd *cobra.Command, err error, urls []string) error {
	b, _ := cmd.Context().Value(contextKey{}).(*baseURL)
	if b == nil || !isUsage(err) || !slices.Contains(urls, b.url) {
		return err
	}
	about, is := strings.CutPrefix(strings.TrimPrefix(err.Error(), "weir: "), "the URL ")
	if !is {
		return err
	}
	return &usageError{fmt.Errorf("%s %s", b.where, about)}
}

// withBase keeps what the URLs of a command are of.
func withBase(cmd *cobra.Command, b *baseURL) {
	cmd.SetContext(context.WithValue(cmd.Context(), contextKey{}, b))
}
