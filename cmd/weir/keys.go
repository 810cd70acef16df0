package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/keyfile"
	"github.com/weirmq/weir/internal/server"
	"github.com/weirmq/weir/internal/settings"
)

const keyHelp = `Key makes and removes the API keys of a file. weir serve --keys-file reads that file and
reads it again when it changes: a new key counts within a second or two, and the streams
of a removed one end then. The file holds digests: a key's text is printed once, when it
is made.`

func newKeyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make, list and revoke the API keys of a file",
		Long:  keyHelp,
		Example: `  weir key new orders-worker --keys-file keys.json --scopes read,write --prefixes orders --expires 90d
  weir key revoke orders-worker --keys-file keys.json`,
		Args: cobra.ArbitraryArgs, // so that RunE can say what was meant
		RunE: noCommand,
	}
	cmd.AddCommand(newKeyNewCmd(), newKeyLsCmd(), newKeyRevokeCmd())
	return cmd
}

// keyFile is the file of keys that a command works on.
type keyFile string

// check refuses a command line without one.
func (f keyFile) check() error {
	if f == "" {
		return &usageError{errors.New("name the file of keys: --keys-file FILE, or WEIR_KEYS_FILE")}
	}
	return nil
}

func newKeyNewCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "new NAME",
		Short:   "Make a key and print it",
		Long:    "New adds a key of 256 random bits to the file, which it creates if it is not there, and\nprints the key's text. It is not kept: whoever loses it makes another.",
		Example: "  weir key new orders-worker --keys-file keys.json --scopes read,write --prefixes orders --expires 90d",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var path keyFile
			var scopes, prefixes []string
			var expires time.Duration
			if err := load(cmd, settings.NewKey, settings.Fields{
				"keys-file": (*string)(&path), "scopes": &scopes, "prefixes": &prefixes, "expires": &expires,
			}); err != nil {
				return err
			}
			if err := path.check(); err != nil {
				return err
			}
			if err := keyfile.CheckName(args[0]); err != nil {
				return &usageError{err}
			}
			text, key := keyfile.New(args[0], time.Now())
			key.Scopes, key.Prefixes = scopes, prefixes
			if expires > 0 {
				key.Expires = key.Created.Add(expires)
			}
			if err := server.CheckKey(&key); err != nil {
				return &usageError{err}
			}
			if err := path.add(key); err != nil {
				return err
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), text); err != nil {
				return errors.Join(fmt.Errorf("the key cannot be printed, so it is not kept: %w", err), path.revoke(key.Name))
			}
			return nil
		},
	}
	settings.AddFlags(cmd.Flags(), settings.NewKey)
	return cmd
}

// add adds a key to the file.
func (f keyFile) add(key keyfile.Key) error {
	return alone(string(f), func(path string) error {
		keys, err := keyfile.Read(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, k := range keys {
			if k.Name == key.Name {
				return &usageError{fmt.Errorf("there is a key %q; choose another name, or revoke that one first", key.Name)}
			}
		}
		return keyfile.Write(path, append(keys, key))
	})
}

// revoke removes a key from the file.
func (f keyFile) revoke(name string) error {
	return alone(string(f), func(path string) error {
		keys, err := keyfile.Read(path)
		if err != nil {
			return err
		}
		left, found := keyfile.Remove(keys, name)
		if !found {
			return &usageError{fmt.Errorf("there is no key %q in %s; weir key ls lists them", name, f)}
		}
		return keyfile.Write(path, left)
	})
}

// loadKeys returns the file of keys that a command names, and how it prints.
func loadKeys(cmd *cobra.Command) (path keyFile, json output, err error) {
	err = load(cmd, settings.Keys, settings.Fields{"keys-file": (*string)(&path), "json": &json})
	if err == nil {
		err = path.check()
	}
	return path, json, err
}

func newKeyLsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the keys of a file",
		Long:    "Ls prints the name, rights and end of each key, never the key.",
		Example: "  weir key ls --keys-file keys.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, json, err := loadKeys(cmd)
			if err != nil {
				return err
			}
			keys, err := keyfile.Read(string(path))
			if err != nil {
				return err
			}
			r := json.rows(cmd.OutOrStdout(), "NAME\tSCOPES\tPREFIXES\tEXPIRES")
			for _, k := range keys {
				err = errors.Join(err, r.row(listedKey{k.Name, k.Scopes, k.Prefixes, k.Created, k.Expires}))
			}
			r.begin()
			return errors.Join(err, r.flush())
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Keys)
	return cmd
}

// listedKey is a key as it is listed.
type listedKey struct {
	Name     string    `json:"name"`
	Scopes   []string  `json:"scopes"`
	Prefixes []string  `json:"prefixes,omitempty"`
	Created  time.Time `json:"created,omitzero"`
	Expires  time.Time `json:"expires,omitzero"`
}

func (k listedKey) String() string {
	end := "never"
	if !k.Expires.IsZero() {
		end = k.Expires.Format(time.RFC3339)
		if !time.Now().Before(k.Expires) {
			end += " (expired)"
		}
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s", k.Name, oneCell(strings.Join(k.Scopes, ",")), oneCell(cmp.Or(strings.Join(k.Prefixes, ","), "any name")), end)
}

func newKeyRevokeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "revoke NAME",
		Short:   "Remove a key",
		Long:    "Revoke removes a key from the file. Servers that read it refuse the key from then on and\nend its streams.",
		Example: "  weir key revoke orders-worker --keys-file keys.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, json, err := loadKeys(cmd)
			if err != nil {
				return err
			}
			if err := path.revoke(args[0]); err != nil {
				return err
			}
			return json.print(cmd.OutOrStdout(), revokedKey{args[0]})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Keys)
	return cmd
}

// revokedKey is what revoke prints.
type revokedKey struct {
	Revoked string `json:"revoked"`
}

func (k revokedKey) String() string { return "revoked " + k.Revoked }
