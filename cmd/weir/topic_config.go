package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/settings"
)

// configFields are the fields of a topic's configuration by their flags. Those of a time have
// milliseconds.
var configFields = map[string]string{
	"durability": "durability", "ttl": "ttl_ms", "cap-records": "cap_records", "cap-bytes": "cap_bytes", "discard": "discard",
	"idempotency-window": "idempotency_window_ms", "dedupe-node": "dedupe_node", "priority": "priority", "auto-priority": "auto_priority",
	"auto-create": "auto_create", "lease": "lease_ms", "claim-jitter": "claim_jitter_ms", "max-deliveries": "max_deliveries",
	"dead-letter": "dead_letter", "leases-durable": "leases_durable", "wait-slo": "wait_slo_ms",
}

// queueFlags are those that mean nothing to a log.
var queueFlags = []string{"lease", "claim-jitter", "max-deliveries", "dead-letter", "leases-durable", "wait-slo"}

// givenFields are values of flags by the flag, nil for those that were not given.
type givenFields map[string]*any

// fields adds the flags of names to the settings of a command.
func (g givenFields) fields(names map[string]string, f settings.Fields) settings.Fields {
	for flag := range names {
		g[flag] = new(any)
		f[flag] = g[flag]
	}
	return f
}

// queueOnly returns a flag that was given and means nothing to a log, or "".
func (g givenFields) queueOnly() string {
	for _, flag := range queueFlags {
		if value := g[flag]; value != nil && *value != nil {
			return flag
		}
	}
	return ""
}

// body returns what was given, by the names of /v0.
func (g givenFields) body(names map[string]string) map[string]any {
	body := map[string]any{}
	for flag, value := range g {
		switch v := (*value).(type) {
		case nil:
		case time.Duration:
			body[names[flag]] = (v + time.Millisecond - 1).Milliseconds()
		case int64:
			body[names[flag]] = v
			if flag == "priority" && v == settings.NoPriority {
				body[names[flag]] = nil
			}
		case string:
			body[names[flag]] = v
			if v == "" {
				body[names[flag]] = nil
			}
		default:
			body[names[flag]] = v
		}
	}
	return body
}

func newTopicCreateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create URL",
		Short: "Create a topic",
		Long:  "Create makes a topic that is not there yet. What no flag says is the server's default\n(docs/API.md). It fails if there is a topic of that name.",
		Example: `  weir topic create --ttl 7d --cap-bytes 1GiB http://127.0.0.1:4000/events
  weir topic create --type queue --durability fsync --max-deliveries 5 --dead-letter orders.dlq http://127.0.0.1:4000/orders`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt callOptions
			var typ string
			given := givenFields{}
			if err := load(cmd, settings.TopicCreate, opt.fields(given.fields(configFields, settings.Fields{"type": &typ}))); err != nil {
				return err
			}
			if flag := given.queueOnly(); flag != "" && typ == "log" {
				return &usageError{fmt.Errorf("--%s is for queues and the topic would be a log: add --type queue", flag)}
			}
			return opt.onTopic(cmd, args[0], func(ctx context.Context, c *client.Client, topic string) error {
				_, err := c.TopicInfo(ctx, topic)
				if err == nil {
					return fmt.Errorf("topic %q exists; weir topic set changes it", topic)
				}
				if !api.IsCode(err, api.CodeTopicNotFound) {
					return err
				}
				fields := given.body(configFields)
				fields["type"] = typ
				created, config, err := c.Configure(ctx, topic, fields)
				if err != nil {
					return err
				}
				return opt.json.print(cmd.OutOrStdout(), configured{Topic: topic, Created: created, Config: config})
			})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.TopicCreate)
	return cmd
}

const topicSetHelp = `Set changes the fields of a topic's configuration that flags name, and leaves the others.
Of two that run at once on one topic, the later one may undo the other.

A smaller --cap-records, --cap-bytes or --ttl removes records. For that it asks on a
terminal, and needs --yes elsewhere; --dry-run only says what would change.`

func newTopicSetCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set URL",
		Short: "Change the configuration of a topic",
		Long:  topicSetHelp,
		Example: `  weir topic set --wait-slo 5s http://127.0.0.1:4000/orders
  weir topic set --cap-bytes 256MiB --dry-run http://127.0.0.1:4000/events`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt callOptions
			var yes, dryRun bool
			given := givenFields{}
			if err := load(cmd, settings.TopicSet, opt.fields(given.fields(configFields, settings.Fields{"yes": &yes, "dry-run": &dryRun}))); err != nil {
				return err
			}
			if len(given.body(configFields)) == 0 {
				return &usageError{errors.New("name what to change, as in --ttl 7d")}
			}
			return opt.onTopic(cmd, args[0], func(ctx context.Context, c *client.Client, topic string) error {
				return setTopic(ctx, cmd, c, topic, given, &opt, yes, dryRun)
			})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.TopicSet)
	return cmd
}

func setTopic(ctx context.Context, cmd *cobra.Command, c *client.Client, topic string, given givenFields, opt *callOptions, yes, dryRun bool) error {
	info, err := c.TopicInfo(ctx, topic)
	if err != nil {
		return err
	}
	if flag := given.queueOnly(); flag != "" && info.Type == "log" {
		return &usageError{fmt.Errorf("--%s is for queues and %q is a log", flag, topic)}
	}
	change, err := changed(info.Config, given.body(configFields))
	if err != nil {
		return err
	}
	result := configured{Topic: topic, DryRun: dryRun, Changed: change.named, Config: info.Config}
	if dryRun || len(change.named) == 0 {
		return opt.json.print(cmd.OutOrStdout(), result)
	}
	if change.tighter && info.Count > 0 && !yes {
		if !isTerminal(cmd.InOrStdin()) {
			return &usageError{fmt.Errorf("%s may remove records of %q for good and there is no terminal to ask on: add --yes, or --dry-run to look first", change, topic)}
		}
		if !confirm(ctx, cmd, fmt.Sprintf("%s: of %s, those beyond go for good. Change it? [y/N] ", change, countOf(info.Count, "record")), "nothing was changed") {
			return ctx.Err()
		}
	}
	if _, result.Config, err = c.Configure(ctx, topic, change.whole); err != nil {
		return err
	}
	return opt.json.print(cmd.OutOrStdout(), result)
}

// changes are the fields of a configuration that become others.
type changes struct {
	whole   map[string]any          // the configuration as it will be
	named   map[string][2]jsonValue // before and after
	tighter bool                    // a limit on what is kept is new, or lower
}

// jsonValue is a value as it stands in JSON.
type jsonValue = json.RawMessage

// changed lays fields over a configuration of the server's. What it has that this program does
// not know stays.
func changed(config json.RawMessage, fields map[string]any) (changes, error) {
	c := changes{whole: map[string]any{}, named: map[string][2]jsonValue{}}
	var before map[string]jsonValue
	if err := json.Unmarshal(config, &before); err != nil {
		return c, fmt.Errorf("the configuration of the topic cannot be read: %w", err)
	}
	for name, value := range before {
		c.whole[name] = value
	}
	delete(c.whole, "durable") // durability says it
	delete(c.whole, "paused")  // a PUT without it leaves it
	for name, value := range fields {
		after, err := json.Marshal(value)
		if err != nil {
			return c, err
		}
		old := before[name]
		if old == nil {
			old = jsonValue("0") // wait_slo_ms, which is shown if it is set
		}
		if bytes.Equal(old, after) {
			continue
		}
		c.whole[name], c.named[name] = value, [2]jsonValue{old, after}
		switch name {
		case "ttl_ms", "cap_records", "cap_bytes":
			c.tighter = c.tighter || lower(old, after)
		}
	}
	return c, nil
}

// lower reports whether a limit, of which 0 is none, gets stricter.
func lower(old, after jsonValue) bool {
	var a, b uint64
	if json.Unmarshal(old, &a) != nil || json.Unmarshal(after, &b) != nil {
		return true // not known
	}
	return b > 0 && (a == 0 || b < a)
}

// String lists the changes.
func (c changes) String() string { return listChanges(c.named) }

func listChanges(named map[string][2]jsonValue) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(named)) {
		all = append(all, fmt.Sprintf("%s %s → %s", name, plain(named[name][0]), plain(named[name][1])))
	}
	return oneLine(strings.Join(all, ", "))
}

// configured is what create and set print.
type configured struct {
	Topic   string                  `json:"topic"`
	Created bool                    `json:"created"`
	DryRun  bool                    `json:"dry_run"`
	Changed map[string][2]jsonValue `json:"changed,omitempty"` // before and after, by field
	Config  jsonValue               `json:"config"`
}

func (c configured) String() string {
	switch {
	case c.Created:
		return "created " + oneLine(c.Topic)
	case len(c.Changed) == 0:
		return fmt.Sprintf("%s: nothing to change", oneLine(c.Topic))
	case c.DryRun:
		return fmt.Sprintf("%s would be changed: %s", oneLine(c.Topic), listChanges(c.Changed))
	}
	return fmt.Sprintf("%s changed: %s", oneLine(c.Topic), listChanges(c.Changed))
}
