package main

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// checkURLs looks for mistakes in the URLs of a command line that no backend could explain.
func checkURLs(cmd *cobra.Command, args []string) error {
	switch {
	case !strings.Contains(cmd.Use, "URL"):
		return nil
	case !strings.Contains(cmd.Use, "URL…"):
		args = args[:min(1, len(args))]
	}
	for _, arg := range args {
		err := checkURL(arg)
		if err == nil && cmd.Flags().Lookup("context") != nil {
			err = checkScheme(arg)
		}
		if err != nil {
			return &usageError{err}
		}
	}
	return nil
}

// checkScheme refuses what is no URL, for a command that takes names, too.
func checkScheme(arg string) error {
	if u, err := url.Parse(arg); err != nil || u.Scheme != "" || strings.Contains(arg, "@") { // which may be behind a key
		return nil
	}
	return fmt.Errorf("%q is not a URL, nor a name, which has letters, digits and . _ : - only", arg)
}

// hostFirst is a URL that lacks its scheme. It holds no secret.
var hostFirst = regexp.MustCompile(`^([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]+(/[^@]*)?$`)

// loopbackFirst is one that lacks its port too.
var loopbackFirst = regexp.MustCompile(`^(localhost|127\.0\.0\.1)(/[^@]*)$`)

func checkURL(arg string) error {
	if arg == "" {
		return errors.New("the URL is empty")
	}
	if hostFirst.MatchString(arg) {
		scheme := "http"
		if strings.Contains(arg, "?stream=") || strings.Contains(arg, "&stream=") {
			scheme = "redis"
		}
		return fmt.Errorf("%q is not a URL, did you mean %s://%s?", arg, scheme, arg)
	}
	if host := loopbackFirst.FindStringSubmatch(arg); host != nil {
		return fmt.Errorf("%q is not a URL, did you mean http://%s:4000%s?", arg, host[1], host[2])
	}
	u, err := url.Parse(arg)
	if err != nil {
		return nil // opening it says what is wrong
	}
	if n, err := strconv.Atoi(u.Port()); err == nil && n > 65535 {
		return fmt.Errorf("port %d of the URL is not a whole number from 1 to 65535", n)
	}
	return nil
}

// schemeOf is the scheme of a URL in lower case, as the backends read it.
func schemeOf(raw string) string {
	scheme, _, _ := strings.Cut(raw, ":")
	return strings.ToLower(scheme)
}

func isHTTP(raw string) bool {
	scheme := schemeOf(raw)
	return scheme == "http" || scheme == "https"
}

// withDurability adds a class to a URL that does not name one. On
// Redis the class is up to the server.
func withDurability(class, raw string) string {
	if class == "" || schemeOf(raw) != "file" && !isHTTP(raw) {
		return raw
	}
	return withKey(raw, "durability", class)
}

// withKey adds a query key to a URL that lacks it.
func withKey(raw, key, value string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Query().Has(key) {
		return raw
	}
	query := u.Query()
	query.Set(key, value)
	u.RawQuery = query.Encode()
	return u.String()
}
