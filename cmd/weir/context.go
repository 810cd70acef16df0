package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/atomicfile"
	"github.com/weirmq/weir/internal/settings"
)

const contextHelp = `Context keeps names for servers, so that weir tail orders stands for the URL of orders on
one of them, with its certificates and key. The one in use counts where a command is given
a name, or no URL; --context NAME takes another for one call.

What counts is, in this order: a URL as the argument, --context, WEIR_URL, WEIR_CONTEXT,
the context in use. Contexts are in weir/contexts.json in the user's directory of
settings. It holds no secret: a key is named by its file or its environment variable.`

func newContextCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Keep names for servers",
		Long:  contextHelp,
		Example: `  weir context set prod https://weir.example.com:4000 --ca ca.pem --api-key-file prod.key
  weir context use prod
  weir tail orders`,
		Args: cobra.ArbitraryArgs, // so that RunE can say what was meant
		RunE: noCommand,
	}
	cmd.AddCommand(newContextLsCmd(), newContextSetCmd(),
		newContextChangeCmd("use", "Make a context the one in use", func(c *contexts, name string) { c.Current = name }),
		newContextChangeCmd("rm", "Forget a context", func(c *contexts, name string) {
			c.All = slices.DeleteFunc(c.All, func(s savedContext) bool { return s.Name == name })
			if c.Current == name {
				c.Current = ""
			}
		}))
	return cmd
}

// savedContext is a server by name, and what it takes to call it. Paths are absolute.
type savedContext struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	CA      string `json:"ca,omitempty"`
	TLSCert string `json:"tls_cert,omitempty"`
	TLSKey  string `json:"tls_key,omitempty"`
	KeyFile string `json:"key_file,omitempty"`
	KeyEnv  string `json:"key_env,omitempty"` // name of the environment variable that has the key
}

// contexts is the file of contexts.
type contexts struct {
	Current string         `json:"current,omitempty"`
	All     []savedContext `json:"contexts"`
}

// maxContextBytes limits the size of the file.
const maxContextBytes = 1 << 20

var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func contextsPath() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "weir", "contexts.json"), err
}

// readContexts reads the file; without one there are no contexts.
func readContexts() (c contexts, err error) {
	path, err := contextsPath()
	if err != nil {
		return c, nil // without a home there are none
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case err == nil && info.Size() > maxContextBytes:
		err = fmt.Errorf("larger than %d bytes", maxContextBytes)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return c, &usageError{fmt.Errorf("contexts in %s: %w; repair or remove the file", path, err)}
	}
	return c, nil
}

// changeContexts reads the file, has it changed, and replaces it in one step.
func changeContexts(change func(c *contexts) error) (all contexts, err error) {
	path, err := contextsPath()
	if err != nil {
		return all, err
	}
	err = alone(path, func(path string) error {
		if all, err = readContexts(); err != nil {
			return err
		}
		if err := change(&all); err != nil {
			return err
		}
		text, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			return err
		}
		return atomicfile.Write(path, append(text, '\n'))
	})
	return all, err
}

// makeFolder makes the folder of the file.
func makeFolder() error {
	path, err := contextsPath()
	if err != nil {
		return err
	}
	return os.MkdirAll(filepath.Dir(path), 0o700)
}

// find returns the context of a name.
func (c *contexts) find(name string) (*savedContext, error) {
	var names []string
	for i := range c.All {
		if c.All[i].Name == name {
			return &c.All[i], nil
		}
		names = append(names, c.All[i].Name)
	}
	return nil, fmt.Errorf("there is no context %q%s; weir context ls lists them", name, settings.Meant("", name, names))
}

func newContextLsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the contexts",
		Example: "  weir context ls --json | jq -r 'select(.current).url'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var json output
			if err := load(cmd, settings.Contexts, settings.Fields{"json": &json}); err != nil {
				return err
			}
			all, err := readContexts()
			if err != nil {
				return err
			}
			r := json.rows(cmd.OutOrStdout(), "NAME\tIN USE\tURL\tKEY")
			for _, c := range all.All {
				err = errors.Join(err, r.row(listedContext{c, c.Name == all.Current}))
			}
			r.begin()
			return errors.Join(err, r.flush())
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Contexts)
	return cmd
}

// listedContext is a context as it is listed.
type listedContext struct {
	savedContext
	Current bool `json:"current"`
}

func (c listedContext) String() string {
	key, current := "–", ""
	switch {
	case c.KeyFile != "":
		key = c.KeyFile
	case c.KeyEnv != "":
		key = "$" + c.KeyEnv
	}
	if c.Current {
		current = "*"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s", oneCell(c.Name), current, oneCell(c.URL), oneCell(key))
}

func newContextSetCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME ADDRESS",
		Short: "Make a context, or replace it",
		Long: `Set keeps an address under a name: http[s]://host:port, redis[s]://host:port/0,
kafka[s]://host:port or file:///DIR, with the parameters that its URLs take. A name that a
command is given becomes the topic or stream. The first context is in use at once.`,
		Example: `  weir context set prod https://weir.example.com:4000 --ca ca.pem --api-key-file prod.key
  weir context set jobs 'redis://127.0.0.1:6379/0?group=billing'`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := savedContext{Name: args[0], URL: args[1]}
			var json output
			if err := load(cmd, settings.ContextSet, settings.Fields{
				"json": &json, "ca": &c.CA, "tls-cert": &c.TLSCert, "tls-key": &c.TLSKey, "api-key-file": &c.KeyFile, "api-key-env": &c.KeyEnv,
			}); err != nil {
				return err
			}
			if err := c.check(); err != nil {
				return &usageError{err}
			}
			for _, path := range []*string{&c.CA, &c.TLSCert, &c.TLSKey, &c.KeyFile} {
				var err error
				if *path == "" {
					continue
				}
				if *path, err = filepath.Abs(*path); err != nil {
					return err
				}
			}
			if err := makeFolder(); err != nil {
				return err
			}
			all, err := changeContexts(func(all *contexts) error {
				if old, err := all.find(c.Name); err == nil {
					*old = c
				} else {
					all.All = append(all.All, c)
				}
				if len(all.All) == 1 {
					all.Current = c.Name
				}
				return nil
			})
			if err != nil {
				return err
			}
			return json.print(cmd.OutOrStdout(), changedContext{c.Name, "set", all.Current})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.ContextSet)
	return cmd
}

// check refuses what could not be used, and secrets.
func (c *savedContext) check() error {
	if !contextName.MatchString(c.Name) {
		return fmt.Errorf("%.80q is not the name of a context, which has 1 to 64 of the characters A-Z a-z 0-9 . _ -, the first a letter or digit", c.Name)
	}
	if c.KeyFile != "" && c.KeyEnv != "" {
		return errors.New("--api-key-file and --api-key-env exclude each other")
	}
	if err := checkBase(c.URL); err != nil {
		return err
	}
	if u, err := url.Parse(c.URL); err == nil && u.User != nil {
		return errors.New("the address holds a user or a key, which are not kept here; use --api-key-file, --api-key-env, or WEIR_URL")
	}
	return nil
}

// newContextChangeCmd makes a command that changes something about one context.
func newContextChangeCmd(verb, short string, change func(c *contexts, name string)) *cobra.Command {
	cmd := &cobra.Command{
		Use:     verb + " NAME",
		Short:   short,
		Example: "  weir context " + verb + " prod",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var json output
			if err := load(cmd, settings.Contexts, settings.Fields{"json": &json}); err != nil {
				return err
			}
			all, err := changeContexts(func(all *contexts) error {
				if _, err := all.find(args[0]); err != nil {
					return &usageError{err}
				}
				change(all, args[0])
				return nil
			})
			if err != nil {
				return err
			}
			return json.print(cmd.OutOrStdout(), changedContext{args[0], verb, all.Current})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Contexts)
	return cmd
}

// changedContext is what set, use and rm print.
type changedContext struct {
	Context string `json:"context"`
	Done    string `json:"done"` // set, use or rm
	Current string `json:"current"`
}

func (c changedContext) String() string {
	switch {
	case c.Done == "rm":
		return "forgot " + c.Context
	case c.Current == c.Context:
		return c.Context + " is in use"
	}
	return "kept " + c.Context + "; weir context use " + c.Context + " makes it the one in use"
}
