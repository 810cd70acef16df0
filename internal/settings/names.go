package settings

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/weirmq/weir/internal/api"
)

const prefix = "WEIR_"

// ofWork matches the variables that weir work gives to its commands, which may be weir's,
// and those of weir's own tests.
var ofWork = regexp.MustCompile(`^WEIR_(STREAM|GROUP|ID|ATTEMPT|TOPIC|SEQ|DELIVERIES|TAG|META|(HEADER|TEST)_.*)$`)

// serviceLink matches the variables that Kubernetes makes for services whose names begin with weir.
var serviceLink = regexp.MustCompile(`^[A-Z0-9_]+_(SERVICE_(HOST|PORT(_.*)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// ofKubernetes reports whether Kubernetes has set the variable, for a service that is called
// like weir or redis: WEIR_PORT=tcp://10.0.0.1:4000 is no port to listen on.
func ofKubernetes(name, text string) bool {
	if !serviceLink.MatchString(name) {
		return false
	}
	scheme, _, isURL := strings.Cut(text, "://")
	return !strings.HasSuffix(name, "_PORT") || strings.HasSuffix(name, "_SERVICE_PORT") || isURL && slices.Contains([]string{"tcp", "udp", "sctp"}, scheme)
}

// Unknown returns a warning for each variable of an environment, as os.Environ returns it,
// that begins like weir's and is none, or that has another name now.
func Unknown(environ []string) []string {
	known, now := map[string]bool{}, map[string]string{}
	for _, s := range table {
		for _, name := range s.variables() {
			known[name] = true
		}
		for _, name := range s.former() {
			now[name] = s.variable()
		}
	}
	names := slices.Sorted(maps.Keys(known))
	var warnings []string
	for _, entry := range environ {
		name, text, _ := strings.Cut(entry, "=")
		if now[name] != "" && text != "" {
			warnings = append(warnings, "environment variable "+name+" is called "+now[name]+" now")
			continue
		}
		if strings.HasPrefix(name, prefix) && text != "" && !known[name] && !ofWork.MatchString(name) && !ofKubernetes(name, text) {
			warnings = append(warnings, "unknown environment variable "+name+Meant("", name, names))
		}
	}
	return warnings
}

// Meant returns the end of an error about an unknown name: whether the nearest of names,
// shown with prefix in front of it, was meant. It is empty if none is near.
func Meant(prefix, typed string, names []string) string {
	if near := api.Nearest(typed, names); near != "" {
		return fmt.Sprintf(", did you mean %s%s?", prefix, near)
	}
	return ""
}
