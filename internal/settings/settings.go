// Package settings reads what weir's commands and programs are told: by flags, by
// the environment, by a file.
//
// Every setting is one row of the table. It has one name in three spellings: the
// flag --lag-warn, the environment variable WEIR_LAG_WARN and the key lag_warn of
// the file. A flag beats the environment, which beats the file, which beats the
// default. An empty variable counts as absent.
package settings

import (
	"slices"
	"strings"
)

// Command is a set of commands, each with settings of its own.
type Command uint64

// The commands. Library is a program that reads its settings with package config.
const (
	Serve Command = 1 << iota
	Publish
	Work
	Tail
	Sample
	Doctor
	List
	Show
	Redrive
	Purge
	Backup
	Verify
	Restore
	Repair
	Replica
	Overload
	BenchLoad
	Dash
	Bundle
	Top
	Queue
	NewKey
	Keys
	Topics
	TopicInfo
	TopicCreate
	TopicSet
	TopicRemove
	TopicPurge
	TopicTruncate
	Routers
	RouterCreate
	RouterRemove
	Webhooks
	WebhookInfo
	WebhookCreate
	WebhookRemove
	Contexts
	ContextSet
	Health
	Library

	// SampleRedis is sample without a URL, which the environment alone then makes.
	SampleRedis
)

// Setting is one row of the table.
type Setting struct {
	name    string // of its flag
	short   string // one letter of it
	env     string // empty: WEIR_ and the name
	also    string // a second variable, read if the first is absent
	was     string // the flag's name in earlier versions, which still counts
	in      Command
	kind    kind
	deft    string // the default's text; of a field of the library's, only shown
	help    string
	field   string // of the library's configuration, as its errors name it
	places  place
	reloads bool                 // a running command takes a new value from the file
	moot    func(v *Values) bool // true if what was read before makes this one count for nothing
}

// place is where a setting can be written.
type place uint8

const (
	byFlag place = 1 << iota
	byFile
	byEnv

	anywhere = byFlag | byFile | byEnv
)

// variables are the names in the environment; the first one that is set counts.
func (s *Setting) variables() []string {
	switch {
	case s.places&byEnv == 0:
		return nil
	case s.also != "":
		return []string{s.variable(), s.also}
	}
	return []string{s.variable()}
}

// former is the variable of the setting's name in earlier versions, if it had another.
func (s *Setting) former() []string {
	if s.was == "" || s.places&byEnv == 0 {
		return nil
	}
	return []string{variable(s.was)}
}

func (s *Setting) variable() string {
	if s.env != "" {
		return s.env
	}
	return variable(s.name)
}

func variable(name string) string { return prefix + strings.ToUpper(key(name)) }

func key(name string) string { return strings.ReplaceAll(name, "-", "_") }

// key is the name in a file.
func (s *Setting) key() string { return key(s.name) }

// ofLibrary reports whether the setting is a field of the library's, which has
// its default itself.
func (s *Setting) ofLibrary() bool { return s.field != "" }

// rows completes settings that belong together: unless they say otherwise they are
// of these commands and can be written in these places.
func rows(in Command, places place, list ...*Setting) []*Setting {
	for _, s := range list {
		if s.in == 0 {
			s.in = in
		}
		if s.places == 0 {
			s.places = places
		}
	}
	return list
}

// of returns the settings of the commands.
func of(c Command) []*Setting {
	var rows []*Setting
	for _, s := range table {
		if s.in&c != 0 {
			rows = append(rows, s)
		}
	}
	return rows
}

// findKey returns the settings that a key of a file stands for: another command
// may mean something else by it.
func findKey(key string) []*Setting {
	var rows []*Setting
	for _, s := range table {
		if s.places&byFile != 0 && s.key() == key {
			rows = append(rows, s)
		}
	}
	return rows
}

func fileKeys() []string {
	var keys []string
	for _, s := range table {
		if s.places&byFile != 0 {
			keys = append(keys, s.key())
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
