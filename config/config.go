// Package config reads weir's settings from a file, the environment and flags.
//
// One setting has one name in three spellings: the key lag_warn of the file, the
// environment variable WEIR_LAG_WARN and the flag --lag-warn. A flag beats the
// environment, which beats the file, which beats the default. The settings of the queue tier
// are called QUEUE_MAX_DEPTH and so on in the environment, without WEIR_.
//
// Durations are written as Go writes them (500ms). Where a setting can be switched
// off, "off" does it. An empty variable counts as absent.
package config

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/weirmq/weir"
)

// Settings is what was read. A field that nobody set is zero, which stands for its
// default.
type Settings struct {
	Producer weir.ProducerConfig
	Pool     weir.PoolConfig
	Kafka    KafkaProducer
}

// KafkaProducer is how a producer on Kafka buffers.
type KafkaProducer struct {
	BufferMemory        int64 // bytes: 33554432
	MaxInFlightRequests int   // for each connection: 5
}

func (k KafkaProducer) validate() error {
	switch {
	case k.BufferMemory < 0:
		return fmt.Errorf("BufferMemory %d is less than 0", k.BufferMemory)
	case k.MaxInFlightRequests < 0:
		return fmt.Errorf("MaxInFlightRequests %d is less than 0", k.MaxInFlightRequests)
	}
	return nil
}

// Options says where settings come from. The zero value reads the environment,
// and the file that WEIR_CONFIG names.
type Options struct {
	// File is a YAML or JSON file; empty: what --config or WEIR_CONFIG names, if
	// anything.
	File string
	// Flags is a parsed set that AddFlags has added to; nil: no flags. With a set only
	// its settings are read, wherever they stand: those of other commands may stand
	// in the same file.
	Flags *pflag.FlagSet
	// Lookup reads the environment; nil: os.LookupEnv.
	Lookup func(name string) (string, bool)
}

const (
	fileFlag = "config"
	fileEnv  = "WEIR_CONFIG"
)

// maxFileBytes bounds a file of settings.
const maxFileBytes = 1 << 20

// Load reads the settings. Its errors name the key, the variable or the flag.
func Load(o Options) (Settings, error) {
	r := reader{k: koanf.New("."), from: map[string]string{}}
	for _, layer := range []func() error{
		func() error { return r.readFile(o) },
		func() error { return r.readEnv(o) },
		func() error { return r.readFlags(o.Flags) },
	} {
		if err := layer(); err != nil {
			return Settings{}, err
		}
	}
	return r.settings()
}

// file is the path of the file to read, empty if there is none.
func (o Options) file() string {
	if o.File != "" {
		return o.File
	}
	if o.Flags != nil {
		if f := o.Flags.Lookup(fileFlag); f != nil && f.Changed {
			return f.Value.String()
		}
	}
	path, _ := o.env(fileEnv)
	return path
}

// env reads a variable; an empty one counts as absent.
func (o Options) env(name string) (string, bool) {
	lookup := o.Lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	text, _ := lookup(name)
	return text, text != ""
}

// wants reports whether a setting is one of those to read.
func (o Options) wants(s *setting) bool {
	if o.Flags == nil {
		return true
	}
	if s.part == Kafka { // they have no flag: every command with a setting of weir's reads them
		return slices.ContainsFunc(table, func(other *setting) bool { return other.part != Kafka && o.wants(other) })
	}
	f := o.Flags.Lookup(s.flag())
	return f != nil && Reads(f) // another flag of the same name is something else
}

// reader puts the layers on top of each other.
type reader struct {
	k    *koanf.Koanf
	from map[string]string // key → where its value was read, for errors
}

// add lays values over what is there.
func (r *reader) add(values map[string]any) error {
	return r.k.Load(confmap.Provider(values, ""), nil)
}

func (r *reader) readFile(o Options) error {
	path := o.file()
	if path == "" {
		return nil
	}
	text, err := readAtMost(path, maxFileBytes)
	if err != nil {
		return fmt.Errorf("config file: %w", err)
	}
	file := koanf.New(".")
	if err := file.Load(rawbytes.Provider(text), yaml.Parser()); err != nil {
		return fmt.Errorf("config file %s is neither YAML nor JSON: %w", path, err)
	}
	values := map[string]any{}
	for key, raw := range file.All() {
		s := find(key)
		if s == nil {
			return fmt.Errorf("config file %s: key %q is unknown; known: %s", path, key, strings.Join(keys(), ", "))
		}
		if !o.wants(s) {
			continue
		}
		where := fmt.Sprintf("config file %s: key %s", path, key)
		value, err := scalar(raw)
		if err == nil {
			err = s.set(new(Settings), value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		values[key], r.from[key] = value, where
	}
	return r.add(values)
}

func readAtMost(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return text, err
}

func (r *reader) readEnv(o Options) error {
	values := map[string]any{}
	for _, s := range table {
		text, ok := o.env(s.variable())
		if !ok || !o.wants(s) {
			continue
		}
		where := "environment variable " + s.variable()
		if err := s.set(new(Settings), text); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		values[s.key], r.from[s.key] = text, where
	}
	return r.add(values)
}

func (r *reader) readFlags(flags *pflag.FlagSet) error {
	if flags == nil {
		return nil
	}
	values := map[string]any{}
	for _, s := range table {
		f := flags.Lookup(s.flag())
		if f != nil && f.Changed && Reads(f) {
			values[s.key], r.from[s.key] = f.Value.String(), "flag --"+s.flag()
		}
	}
	return r.add(values)
}

// settings reads what the layers came to.
func (r *reader) settings() (Settings, error) {
	var out Settings
	for _, s := range table {
		if !r.k.Exists(s.key) {
			continue
		}
		if err := s.set(&out, r.k.String(s.key)); err != nil {
			return Settings{}, fmt.Errorf("%s: %w", r.from[s.key], err)
		}
	}
	for _, err := range []error{out.Producer.WithDefaults().Validate(), out.Pool.WithDefaults().Validate(), out.Kafka.validate()} {
		if err != nil {
			return Settings{}, r.explain(err)
		}
	}
	return out, nil
}

// explain puts in front of a configuration's error where the fields that it
// names were set.
func (r *reader) explain(err error) error {
	var where []string
	words := strings.FieldsFunc(err.Error(), func(c rune) bool { return c == ' ' || c == ':' })
	for _, s := range table {
		if from := r.from[s.key]; from != "" && slices.Contains(words, s.field) {
			where = append(where, from)
		}
	}
	if len(where) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", strings.Join(where, ", "), err)
}

// scalar is the text of a file's value.
func scalar(raw any) (string, error) {
	switch v := raw.(type) {
	case string:
		return v, nil
	case int:
		return strconv.Itoa(v), nil
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return strconv.FormatFloat(v, 'f', -1, 64), nil
		}
	}
	return "", fmt.Errorf("%v is not one value: write text, a number, true or false", raw)
}
