package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirmq/weir/config"
	"github.com/weirmq/weir/internal/client"
)

// envName is the environment twin of a flag: --drain-timeout is
// WEIR_DRAIN_TIMEOUT.
func envName(flag string) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// applyEnv gives each flag that the command line left alone the value of its
// environment twin. An empty variable counts as absent.
func applyEnv(cmd *cobra.Command) error {
	var first error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" || config.Reads(f) || first != nil {
			return
		}
		value := os.Getenv(envName(f.Name))
		if value == "" {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			first = fmt.Errorf("environment variable %s: %w", envName(f.Name), err)
		}
	})
	return first
}

// withEnv wraps a command's body so that it sees the environment's settings.
func withEnv(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := applyEnv(cmd); err != nil {
			return err
		}
		cmd.SilenceUsage = true
		return run(cmd, args)
	}
}

const apiKeyFileFlag = "api-key-file"

func addKeyFlag(cmd *cobra.Command) {
	cmd.Flags().String(apiKeyFileFlag, "", "file that holds the API key (else WEIR_API_KEY, or the URL's :key@)")
}

// maxKeyFileBytes bounds what is read of a key file.
const maxKeyFileBytes = 64 << 10

// connect makes the client for a URL's target. The URL's own key wins, then
// the key file, then WEIR_API_KEY.
func connect(cmd *cobra.Command, target client.Target) (*client.Client, error) {
	key := target.Key
	if key == "" {
		var err error
		if key, err = apiKey(cmd); err != nil {
			return nil, err
		}
	}
	return client.New(target.Base, key), nil
}

// apiKey is the key of the key file or the environment, empty if there is none.
func apiKey(cmd *cobra.Command) (key string, err error) {
	if path, _ := cmd.Flags().GetString(apiKeyFileFlag); path != "" {
		if key, err = readKey(path); err != nil {
			return "", err
		}
	}
	if key == "" {
		key = strings.TrimSpace(os.Getenv("WEIR_API_KEY"))
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return "", errors.New("the API key holds a control character; it has to be one line of text")
	}
	return key, nil
}

func readKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", apiKeyFileFlag, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFileBytes))
	if err != nil {
		return "", fmt.Errorf("--%s: %w", apiKeyFileFlag, err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", fmt.Errorf("--%s: %s is empty", apiKeyFileFlag, path)
	}
	return key, nil
}

// The configuration that publish and work give to a topic they create.
const (
	createdMaxDeliveries = 3
	// A retry can only be recognised inside the window, so it covers an outage
	// of an hour.
	createdIdempotencyWindowMS = 3_600_000
)

type topicFlags struct {
	kind       string
	durability string
}

func (f *topicFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kind, "type", "queue", "type of the topic if it has to be created: queue or log")
	f.addDurability(cmd)
}

func (f *topicFlags) addDurability(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.durability, "durability", "disk", "durability class of the topic if it has to be created: ephemeral, memory, disk or fsync")
}

// config is the configuration for a new topic of that name.
func (f *topicFlags) config(topic string) (client.Config, error) {
	switch f.durability {
	case "ephemeral", "memory", "disk", "fsync":
	default:
		return client.Config{}, fmt.Errorf("--durability %q is unknown; known: ephemeral, memory, disk, fsync", f.durability)
	}
	cfg := client.Config{Type: f.kind, Durability: f.durability, IdempotencyWindowMS: createdIdempotencyWindowMS}
	switch f.kind {
	case "log":
	case "queue":
		cfg.MaxDeliveries = createdMaxDeliveries
		cfg.DeadLetter = topic + ".dlq"
	default:
		return client.Config{}, fmt.Errorf("--type %q is unknown; known: queue, log", f.kind)
	}
	return cfg, nil
}
