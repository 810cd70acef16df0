package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
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
			return &usageError{err}
		}
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

const durabilityFlag = "durability"

func addDurability(f *pflag.FlagSet) {
	f.String(durabilityFlag, "disk", "durability class of a topic that has to be created: ephemeral, memory, disk or fsync")
}

// withDurability adds what --durability says to a URL that does not say it. On
// Redis the class is the server's own affair.
func withDurability(cmd *cobra.Command, raw string) string {
	class := cmd.Flags().Lookup(durabilityFlag)
	u, err := url.Parse(raw)
	if err != nil || !class.Changed || u.Query().Has(durabilityFlag) || u.Scheme != "file" && !isHTTP(raw) {
		return raw
	}
	query := u.Query()
	query.Set(durabilityFlag, class.Value.String())
	u.RawQuery = query.Encode()
	return u.String()
}

func isHTTP(raw string) bool {
	scheme, _, _ := strings.Cut(raw, ":")
	return scheme == "http" || scheme == "https"
}

func addLogFormat(f *pflag.FlagSet, format *string) {
	f.StringVar(format, "log-format", "text", "form of the log on standard error: text or json")
}

// commandLog is the log of a command.
func commandLog(out io.Writer, format string) (*slog.Logger, error) {
	return newLogger(out, func(name string) (string, bool) {
		if name == "WEIR_LOG_FORMAT" {
			return format, true
		}
		return "", false
	})
}
