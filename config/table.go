package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Part is a set of settings that belong together.
type Part int

// The parts, to be joined with |.
const (
	Producer Part = 1 << iota
	Pool
	Kafka
)

// setting is one row of the table.
type setting struct {
	key   string // in a file
	env   string // empty: WEIR_ and the key
	field string // of the library's configuration, as its errors name it
	part  Part
	kind  string // of value, in --help
	deft  string // the default's text
	help  string
	set   func(s *Settings, text string) error
}

func (s *setting) variable() string {
	if s.env != "" {
		return s.env
	}
	return "WEIR_" + strings.ToUpper(s.key)
}

func (s *setting) flag() string { return strings.ReplaceAll(s.key, "_", "-") }

func find(key string) *setting {
	i := slices.IndexFunc(table, func(s *setting) bool { return s.key == key })
	if i < 0 {
		return nil
	}
	return table[i]
}

func keys() []string {
	all := make([]string, len(table))
	for i, s := range table {
		all[i] = s.key
	}
	slices.Sort(all)
	return all
}

// What 0 and "off" stand for in a setting. A zero field of a configuration is its
// default, so a 0 that somebody wrote has to become something else.
const (
	zeroIsOff    = -1 // 0 and "off" switch it off
	zeroIsZero   = 0  // 0 is off, and so is the field's 0
	zeroIsNone   = 1  // 0 is refused, "off" switches it off
	zeroIsWrong  = 2  // 0 is refused and there is no off
	zeroIsLittle = 3  // 0 is the least there is
)

// zero returns the field's value for a 0 or an "off"; done is false for any other text.
func zero(text string, rule int) (value int64, done bool, err error) {
	n, parseErr := strconv.ParseFloat(strings.TrimRight(text, "hmnsuµ"), 64)
	isZero := parseErr == nil && n == 0
	switch {
	case text == "off" && (rule == zeroIsOff || rule == zeroIsNone):
		return -1, true, nil
	case text == "off" && rule == zeroIsZero, isZero && rule == zeroIsZero:
		return 0, true, nil
	case isZero && rule == zeroIsOff:
		return -1, true, nil
	case isZero && rule == zeroIsLittle:
		return 1, true, nil
	case isZero && rule == zeroIsNone:
		return 0, true, errors.New(`0 would always hold: use 1 or more, or "off"`)
	case isZero:
		return 0, true, errors.New("0 is of no use here: use more")
	}
	return 0, false, nil
}

func whole[T int | int64](at func(*Settings) *T, rule int) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		n, done, err := zero(text, rule)
		if err != nil {
			return err
		}
		if !done {
			if n, err = strconv.ParseInt(text, 10, 64); err != nil || int64(T(n)) != n {
				return fmt.Errorf("%q is not a whole number", text)
			}
		}
		*at(s) = T(n)
		return nil
	}
}

func duration(rule int, at ...func(*Settings) *time.Duration) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		n, done, err := zero(text, rule)
		if err != nil {
			return err
		}
		d := time.Duration(n)
		if !done {
			if d, err = time.ParseDuration(text); err != nil {
				return fmt.Errorf("%q is not a duration: write a number and its unit, as in 500ms, 2s, 10m", text)
			}
			if d < 0 {
				return fmt.Errorf("%s is less than 0", text)
			}
		}
		for _, field := range at {
			*field(s) = d
		}
		return nil
	}
}

// seconds reads a bare number of seconds, and durations as well.
func seconds(at func(*Settings) *time.Duration) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			if !(n > 0 && n <= 1e6) {
				return fmt.Errorf("%s seconds are out of range", text)
			}
			*at(s) = time.Duration(n * float64(time.Second))
			return nil
		}
		return duration(zeroIsWrong, at)(s, text)
	}
}

func fraction(at func(*Settings) *float64) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n > 0 && n <= 1) {
			return fmt.Errorf("%q is not a share: use more than 0, at most 1, as in 0.8", text)
		}
		*at(s) = n
		return nil
	}
}

// disabled reads whether something is enabled into a field that says the opposite.
func disabled(at func(*Settings) *bool) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		var is bool
		err := enabled(func(*Settings) *bool { return &is })(s, text)
		*at(s) = err == nil && !is
		return err
	}
}

// enabled reads true or false.
func enabled(at func(*Settings) *bool) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		switch strings.ToLower(text) {
		case "true", "1", "yes", "on":
			*at(s) = true
		case "false", "0", "no", "off":
			*at(s) = false
		default:
			return fmt.Errorf("%q is neither true nor false", text)
		}
		return nil
	}
}

func word[T ~string](at func(*Settings) *T) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		if text == "" {
			return errors.New("it is empty")
		}
		*at(s) = T(text)
		return nil
	}
}
