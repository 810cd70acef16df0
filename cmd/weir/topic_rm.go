package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/settings"
)

// removal are the settings of a command that removes something for good.
type removal struct {
	callOptions
	yes, dryRun bool
}

func (o *removal) fields(f settings.Fields) settings.Fields {
	f["yes"], f["dry-run"] = &o.yes, &o.dryRun
	return o.callOptions.fields(f)
}

// sure asks unless it need not.
func (o *removal) sure(ctx context.Context, cmd *cobra.Command, question string, otherwise string) bool {
	return o.yes || confirm(ctx, cmd, question+" [y/N] ", otherwise)
}

func newTopicRmCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rm URL",
		Short:   "Delete a topic with everything in it",
		Long:    "Rm deletes a topic with its records, jobs, leases and keys, and the routers that read from\nit or write to it. If it is created again, its numbering starts at 1.",
		Example: "  weir topic rm --if-empty --yes http://127.0.0.1:4000/orders",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt removal
			var ifEmpty bool
			if err := load(cmd, settings.TopicRemove, opt.fields(settings.Fields{"if-empty": &ifEmpty})); err != nil {
				return err
			}
			if err := checkFinal(cmd, opt.yes, opt.dryRun); err != nil {
				return err
			}
			return opt.onTopic(cmd, args[0], func(ctx context.Context, c *client.Client, topic string) error {
				return removeTopic(ctx, cmd, c, topic, ifEmpty, &opt)
			})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.TopicRemove)
	return cmd
}

func removeTopic(ctx context.Context, cmd *cobra.Command, c *client.Client, topic string, ifEmpty bool, opt *removal) error {
	info, err := c.TopicInfo(ctx, topic)
	if err != nil {
		return err
	}
	if ifEmpty && info.Count > 0 {
		return fmt.Errorf("topic %q has %s; without --if-empty all of it goes", topic, countOf(info.Count, "record"))
	}
	if opt.dryRun {
		routers, err := routersOf(ctx, c, topic)
		if err != nil {
			return err
		}
		return opt.json.print(cmd.OutOrStdout(), removedTopic{topic, true, info.Count, routers})
	}
	if !opt.sure(ctx, cmd, fmt.Sprintf("Delete topic %s with %s for good?", topic, countOf(info.Count, "record")), "nothing was deleted") {
		return ctx.Err()
	}
	deleted, routers, err := c.DeleteTopic(ctx, topic, ifEmpty)
	if err != nil {
		return err
	}
	if !deleted {
		return absentTopic(topic)
	}
	return opt.json.print(cmd.OutOrStdout(), removedTopic{topic, false, info.Count, routers})
}

// routersOf lists the routers from or to a topic.
func routersOf(ctx context.Context, c *client.Client, topic string) ([]string, error) {
	names := []string{}
	for _, ends := range [][2]string{{topic, ""}, {"", topic}} {
		for cursor := ""; ; {
			routers, next, err := c.Routers(ctx, "", ends[0], ends[1], cursor)
			if err != nil {
				return nil, err
			}
			for _, r := range routers {
				names = append(names, r.Router)
			}
			if cursor = next; cursor == "" {
				break
			}
		}
	}
	return names, nil
}

// removedTopic is the result of rm, or of its dry run.
type removedTopic struct {
	Topic   string   `json:"topic"`
	DryRun  bool     `json:"dry_run"`
	Records uint64   `json:"records"` // in it shortly before
	Routers []string `json:"routers_removed"`
}

func (r removedTopic) String() string {
	verb := "deleted"
	if r.DryRun {
		verb = "would be deleted"
	}
	text := fmt.Sprintf("%s %s with %s", oneLine(r.Topic), verb, countOf(r.Records, "record"))
	if len(r.Routers) > 0 {
		text += " and the routers " + oneLine(strings.Join(r.Routers, ", "))
	}
	return text
}

const topicPurgeHelp = `Purge removes all records that a topic has now, or those with a --tag, and leaves the
topic with its configuration and numbering. On a queue these are its jobs, those that
somebody works on included. Readers are not told.

--dry-run with --tag reads the topic to count.`

func newTopicPurgeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "purge URL",
		Short:   "Remove the records of a topic",
		Long:    topicPurgeHelp,
		Example: "  weir topic purge --tag 'tenant-7*' --dry-run http://127.0.0.1:4000/events",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt removal
			var tag string
			if err := load(cmd, settings.TopicPurge, opt.fields(settings.Fields{"tag": &tag})); err != nil {
				return err
			}
			return opt.remove(cmd, args[0], func(head uint64) api.DeleteRequest {
				all := api.DeleteRequest{HasBefore: true, BeforeSeq: head + 1}
				if tag != "" {
					all.Match = &api.Predicate{Value: tag}
					all.Match.Value, all.Match.Glob = strings.CutSuffix(tag, "*")
				}
				return all
			})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.TopicPurge)
	return cmd
}

const topicTruncateHelp = `Truncate removes the oldest records of a topic: those with a lower number than --before, or
all but the newest --keep numbers. On a queue these are its jobs, those that somebody
works on included. Readers are not told.

--dry-run reads what would go, to count it, if some of it is gone already.`

func newTopicTruncateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "truncate URL",
		Short: "Remove the oldest records of a topic",
		Long:  topicTruncateHelp,
		Example: `  weir topic truncate --keep 100000 --yes http://127.0.0.1:4000/events
  weir topic truncate --before 5000 --dry-run http://127.0.0.1:4000/events`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt removal
			var before, keep uint64
			if err := load(cmd, settings.TopicTruncate, opt.fields(settings.Fields{"before": &before, "keep": &keep})); err != nil {
				return err
			}
			if cmd.Flags().Changed("before") == cmd.Flags().Changed("keep") {
				return &usageError{errors.New("say how far: --before SEQ or --keep RECORDS, one of them")}
			}
			return opt.remove(cmd, args[0], func(head uint64) api.DeleteRequest {
				if before == 0 {
					before = head + 1 - min(keep, head)
				}
				return api.DeleteRequest{HasBefore: true, BeforeSeq: min(before, head+1)}
			})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.TopicTruncate)
	return cmd
}

// remove removes records of the topic of a URL. which says which, up to the number of the
// last one that the topic has now.
func (o *removal) remove(cmd *cobra.Command, url string, which func(head uint64) api.DeleteRequest) error {
	if err := checkFinal(cmd, o.yes, o.dryRun); err != nil {
		return err
	}
	return o.onTopic(cmd, url, func(ctx context.Context, c *client.Client, topic string) error {
		info, err := c.TopicInfo(ctx, topic)
		if err != nil {
			return err
		}
		req := which(info.HeadSeq)
		result := removedRecords{Topic: topic, DryRun: o.dryRun, BeforeSeq: req.BeforeSeq}
		if o.dryRun {
			if result.Removed, err = countRecords(ctx, c, &info, &req); err != nil {
				return err
			}
			return o.json.print(cmd.OutOrStdout(), result)
		}
		what := fmt.Sprintf("the records of %s before %d", topic, req.BeforeSeq)
		if req.BeforeSeq > info.HeadSeq {
			what = fmt.Sprintf("all of %s, %s,", topic, countOf(info.Count, "record"))
		}
		if req.Match != nil {
			what += " that have the tag"
		}
		if !o.sure(ctx, cmd, "Remove "+what+" for good?", "nothing was removed") {
			return ctx.Err()
		}
		if result.Removed, err = c.Delete(ctx, topic, &req); err != nil {
			return err
		}
		return o.json.print(cmd.OutOrStdout(), result)
	})
}

// countRecords counts what a delete would take, and reads the topic only if its numbers do not say it.
func countRecords(ctx context.Context, c *client.Client, info *client.TopicInfo, req *api.DeleteRequest) (n uint64, err error) {
	if req.Match == nil {
		switch {
		case req.BeforeSeq > info.HeadSeq:
			return info.Count, nil
		case req.BeforeSeq <= info.EarliestSeq:
			return 0, nil
		case info.Count == info.HeadSeq+1-info.EarliestSeq:
			return req.BeforeSeq - info.EarliestSeq, nil
		}
	}
	for from := uint64(0); ; {
		records, res, err := c.Diff(ctx, info.Topic, &api.DiffRequest{FromSeq: from, Limit: tailLimit, IncludeTags: true, OmitData: true})
		if err != nil {
			return n, err
		}
		for i := range records {
			if r := &records[i]; r.Seq < req.BeforeSeq && (req.Match == nil || req.Match.Match(r.HasTag, r.Tag)) {
				n++
			}
		}
		if from = res.NextFromSeq; res.CaughtUp() || from+1 >= req.BeforeSeq {
			return n, nil
		}
	}
}

// removedRecords is the result of purge and truncate, or of their dry runs.
type removedRecords struct {
	Topic     string `json:"topic"`
	DryRun    bool   `json:"dry_run"`
	BeforeSeq uint64 `json:"before_seq"`
	Removed   uint64 `json:"removed"`
}

func (r removedRecords) String() string {
	verb := "removed"
	if r.DryRun {
		verb = "would be removed"
	}
	return fmt.Sprintf("%s %s from %s", countOf(r.Removed, "record"), verb, oneLine(r.Topic))
}
