// Package config reads the settings of producers and pools from a file and the
// environment, as weir's commands do.
//
// A setting has one name in two spellings: the key lag_warn in the file and the
// environment variable WEIR_LAG_WARN, which overrides the file. The queue_ settings
// have no WEIR_ in the environment: QUEUE_MAX_DEPTH. docs/SETTINGS.md lists them all.
//
// Durations are written as in Go (500ms). "off" disables what can be disabled. An empty
// variable counts as unset.
package config

import (
	"context"
	"log/slog"
	"os"
	"reflect"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/settings"
)

// Settings is what was read. A field that was not set is zero, which means its default.
type Settings struct {
	Producer weir.ProducerConfig
	Pool     weir.PoolConfig
	Kafka    Kafka
}

// Kafka is what the environment says about Kafka. Its method URL adds to a URL what that
// does not say itself, and leaves other URLs alone:
//
//	s, err := open.URL(ctx, settings.Kafka.URL("kafkas://host:9093/orders"))
type Kafka = settings.Kafka

// Options says where settings come from. The zero value reads the environment,
// and the file that WEIR_CONFIG names.
type Options struct {
	// File is a YAML or JSON file. If empty, it is the one that WEIR_CONFIG names, if any.
	File string
	// Lookup reads the environment; nil means os.LookupEnv.
	Lookup func(name string) (string, bool)
}

func (o Options) source() settings.Source {
	return settings.Source{Command: settings.Library, File: o.File, Lookup: o.Lookup}
}

// Load reads the settings. Its errors name the key or variable, its value, and what is
// valid.
func Load(o Options) (Settings, error) {
	c, _, err := settings.LoadConfigs(o.source(), nil)
	return Settings(c), err
}

// Unknown returns a warning for each variable of the process that begins with WEIR_ and is
// none of weir's, as a misspelt one, and names the one that may have been meant. Load passes
// over it; weir's commands log the warning.
func Unknown() []string { return settings.Unknown(os.Environ()) }

// Watch rereads the settings on SIGHUP and when the file changes, and calls apply if
// they differ from before. now is what Load returned. A file that cannot be read or has
// an error is logged and changes nothing. Watch returns when ctx ends; without a file
// it does nothing else.
func Watch(ctx context.Context, o Options, now Settings, log *slog.Logger, apply func(Settings)) {
	path := o.source().Path()
	if path == "" {
		<-ctx.Done()
		return
	}
	settings.Watch(ctx, path, log, func() (bool, error) {
		next, err := Load(o)
		if err != nil || reflect.DeepEqual(next, now) {
			return false, err
		}
		now = next
		apply(next)
		return true, nil
	})
}
