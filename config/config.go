// Package config reads the settings of producers and pools from a file and the
// environment, as weir's commands do.
//
// One setting has one name in two spellings: the key lag_warn of the file and the
// environment variable WEIR_LAG_WARN, which beats the file. The settings of the queue
// tier are called QUEUE_MAX_DEPTH and so on in the environment, without WEIR_.
// docs/SETTINGS.md lists them all.
//
// Durations are written as in Go (500ms). Where a setting can be switched
// off, "off" does it. An empty variable counts as absent.
package config

import (
	"context"
	"log/slog"
	"reflect"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/settings"
)

// Settings is what was read. A field that nobody has set is zero, which stands for its
// default.
type Settings struct {
	Producer weir.ProducerConfig
	Pool     weir.PoolConfig
}

// Options says where settings come from. The zero value reads the environment,
// and the file that WEIR_CONFIG names.
type Options struct {
	// File is a YAML or JSON file; empty: what WEIR_CONFIG names, if anything.
	File string
	// Lookup reads the environment; nil: os.LookupEnv.
	Lookup func(name string) (string, bool)
}

func (o Options) source() settings.Source {
	return settings.Source{Command: settings.Library, File: o.File, Lookup: o.Lookup}
}

// Load reads the settings. Its errors name the key or the variable, what it says and
// what is valid.
func Load(o Options) (Settings, error) {
	c, _, err := settings.LoadConfigs(o.source(), nil)
	return Settings(c), err
}

// Watch reads the settings again on SIGHUP and when the file changes, and calls
// apply if they differ from before. now is what Load returned. A file
// that cannot be read or has an error is logged and changes nothing. Watch returns
// when ctx has ended; without a file that is all it does.
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
