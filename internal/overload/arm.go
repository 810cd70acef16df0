package overload

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/settings"
)

// Arm is one guard that is judged.
type Arm struct {
	Name   string
	Config weir.ProducerConfig
}

// Modes are the guards that an arm can name, in the order in which they are compared.
var Modes = []weir.GuardMode{weir.GuardOff, weir.GuardStatic, weir.GuardProportional, weir.GuardAdaptive}

// onOff is an arm that a user without a guard writes by hand: it waits while more than 200
// messages are waiting or worked on.
const onOff = "on/off"

// DefaultArms are the modes that this version has.
func DefaultArms(s Scenario) []Arm {
	var arms []Arm
	for _, mode := range Modes {
		if arm, err := ParseArm(string(mode), s); err == nil {
			arms = append(arms, arm)
		}
	}
	return arms
}

// ParseArm reads an arm: a mode and, after a question mark, settings of a producer as in
// a file, such as "proportional?lag_signal=pending&lag_pause=100". The mode on/off is static
// with nothing but a hard limit of 200 on the backlog.
//
// Unless an arm says otherwise, the window of requests is off, proportional looks at the
// backlog, and wait_slo is the callers' deadline.
func ParseArm(text string, s Scenario) (Arm, error) {
	mode, query, _ := strings.Cut(text, "?")
	if mode == onOff {
		mode, query = string(weir.GuardStatic), "lag_warn=off&lag_pause=200&lag_signal=backlog&"+query
	}
	if !slices.Contains(Modes, weir.GuardMode(mode)) {
		return Arm{}, fmt.Errorf("arm %q: mode %q is unknown; known: %s, %s", text, mode, names(Modes), onOff)
	}
	set := map[string]string{"queue_load_shedding_enabled": "false", "wait_slo": s.Deadline.String()}
	if mode == string(weir.GuardProportional) {
		set["lag_signal"] = string(weir.SignalBacklog)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return Arm{}, fmt.Errorf("arm %q: the settings after ? are not name=value, joined by &: %v", text, err)
	}
	if values.Has("guard") {
		return Arm{}, fmt.Errorf("arm %q: the mode stands before the ?, not in guard", text)
	}
	for name := range values {
		set[strings.ReplaceAll(name, "-", "_")] = values.Get(name)
	}
	c, err := configure(set)
	if err != nil {
		return Arm{}, fmt.Errorf("arm %q: %w", text, err)
	}
	c.Guard = weir.GuardMode(mode)
	if err := c.WithDefaults().Validate(); err != nil {
		return Arm{}, fmt.Errorf("arm %q: %w", text, err)
	}
	return Arm{Name: text, Config: c}, nil
}

// configure reads settings as a program reads them from its environment.
func configure(set map[string]string) (weir.ProducerConfig, error) {
	used := map[string]bool{}
	c, _, err := settings.LoadConfigs(settings.Source{
		Command: settings.Library,
		Lookup: func(name string) (string, bool) {
			name = strings.ToLower(strings.TrimPrefix(name, "WEIR_"))
			used[name] = true
			text, ok := set[name]
			return text, ok
		},
	}, nil)
	if err != nil {
		return weir.ProducerConfig{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !used[name] {
			return weir.ProducerConfig{}, fmt.Errorf("there is no setting %q; docs/SETTINGS.md lists them", name)
		}
	}
	return c.Producer, nil
}
