package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/settings"
)

const webhookHelp = `Webhook lists, creates and deletes the webhooks of a weir server. A webhook posts the jobs
of a queue to a URL, signed. URL is http[s]://[:key@]host:port/WEBHOOK; for ls it ends
behind the port. The key has to be an admin's.`

func newWebhookCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "List, create and delete the webhooks of a server",
		Long:  webhookHelp,
		Example: `  weir webhook create --topic orders --to https://example.com/jobs http://127.0.0.1:4000/ship
  weir webhook ls http://127.0.0.1:4000`,
		Args: cobra.ArbitraryArgs, // so that RunE can say what was meant
		RunE: noCommand,
	}
	cmd.AddCommand(newWebhookLsCmd(), newWebhookInfoCmd(), newWebhookCreateCmd(), newWebhookRmCmd())
	return cmd
}

// onWebhook is call for the URL of a webhook.
func (o *callOptions) onWebhook(cmd *cobra.Command, url string, do func(ctx context.Context, c *client.Client, webhook string) error) error {
	target, webhook, err := client.ParseWebhookURL(url)
	if err != nil {
		return &usageError{err}
	}
	return o.call(cmd, target, func(ctx context.Context, c *client.Client) error {
		err := do(ctx, c, webhook)
		if api.IsCode(err, api.CodeNotFound) {
			return absentWebhook(webhook)
		}
		return err
	})
}

func absentWebhook(webhook string) error { return fmt.Errorf("webhook %q does not exist", webhook) }

func newWebhookLsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls URL",
		Short:   "List the webhooks of a server by name",
		Example: "  weir webhook ls --prefix ship http://127.0.0.1:4000",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt callOptions
			var prefix string
			if err := load(cmd, settings.Webhooks, opt.fields(settings.Fields{"prefix": &prefix})); err != nil {
				return err
			}
			return opt.onServer(cmd, args[0], func(ctx context.Context, c *client.Client) error {
				r := opt.json.rows(cmd.OutOrStdout(), "WEBHOOK\tTOPIC\tURL\tSTATE\tDELIVERED\tFAILED")
				return pages(r, func(cursor string) (string, error) {
					webhooks, next, err := c.Webhooks(ctx, prefix, cursor)
					for _, w := range webhooks {
						err = errors.Join(err, r.row(listedWebhook(w)))
					}
					return next, err
				})
			})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Webhooks)
	return cmd
}

// listedWebhook is a webhook as it is listed.
type listedWebhook client.Webhook

func (w listedWebhook) String() string {
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%d", oneCell(w.Webhook), oneCell(w.Topic), oneCell(w.URL), oneCell(w.State), w.Deliveries, w.Failures)
}

func newWebhookInfoCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "info URL",
		Short:   "Print what a webhook is and what its deliveries come to",
		Example: "  weir webhook info http://127.0.0.1:4000/ship",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt callOptions
			if err := load(cmd, settings.WebhookInfo, opt.fields(settings.Fields{})); err != nil {
				return err
			}
			return opt.onWebhook(cmd, args[0], func(ctx context.Context, c *client.Client, webhook string) error {
				w, err := c.Webhook(ctx, webhook)
				if err != nil {
					return err
				}
				return opt.json.print(cmd.OutOrStdout(), webhookInfo(w))
			})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.WebhookInfo)
	return cmd
}

// webhookInfo is what info prints.
type webhookInfo client.Webhook

func (w webhookInfo) String() string {
	rate := "no limit"
	if w.Rate > 0 {
		rate = fmt.Sprintf("%d/s", w.Rate)
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, line := range [][2]string{
		{"webhook", w.Webhook}, {"topic", w.Topic}, {"url", w.URL}, {"state", w.State}, {"concurrency", fmt.Sprint(w.Concurrency)}, {"rate", rate},
		{"timeout", fmt.Sprintf("%d ms", w.TimeoutMS)}, {"headers", strings.Join(w.Headers, ", ")}, {"in flight", fmt.Sprint(w.InFlight)},
		{"delivered", fmt.Sprint(w.Deliveries)}, {"failed", fmt.Sprint(w.Failures)}, {"last error", w.LastError},
	} {
		if line[1] != "" {
			fmt.Fprintf(t, "%s\t%s\n", line[0], oneCell(line[1]))
		}
	}
	_ = t.Flush() // into memory
	return strings.TrimSuffix(b.String(), "\n")
}

// webhookFields are the fields of a webhook by their flags.
var webhookFields = map[string]string{"topic": "topic", "to": "url", "concurrency": "concurrency", "rate": "rate", "timeout": "timeout_ms"}

func newWebhookCreateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create URL",
		Short: "Create a webhook",
		Long: `Create makes a webhook that is not there yet, for a queue that is. It prints the secret that
deliveries are signed with, this once; --secret-file brings one of your own. What receivers
check and answer is in docs/WEBHOOKS.md.`,
		Example: "  weir webhook create --topic orders --to https://example.com/jobs --concurrency 8 --rate 50 http://127.0.0.1:4000/ship",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt callOptions
			var secretFile string
			given := givenFields{}
			if err := load(cmd, settings.WebhookCreate, opt.fields(given.fields(webhookFields, settings.Fields{"secret-file": &secretFile}))); err != nil {
				return err
			}
			fields := given.body(webhookFields)
			for _, flag := range []string{"topic", "to"} {
				if fields[webhookFields[flag]] == nil {
					return &usageError{fmt.Errorf("say what is delivered, and where: --topic QUEUE and --to URL; --%s is missing", flag)}
				}
			}
			if secretFile != "" {
				text, err := os.ReadFile(secretFile)
				if err != nil {
					return &usageError{fmt.Errorf("--secret-file: %w", err)}
				}
				fields["secret"] = strings.TrimSpace(string(text))
			}
			return opt.onWebhook(cmd, args[0], func(ctx context.Context, c *client.Client, webhook string) error {
				_, err := c.Webhook(ctx, webhook)
				if err == nil {
					return fmt.Errorf("webhook %q exists; weir webhook rm deletes it", webhook)
				}
				if !api.IsCode(err, api.CodeNotFound) {
					return err
				}
				secret, err := c.PutWebhook(ctx, webhook, fields)
				if err != nil {
					return err
				}
				return opt.json.print(cmd.OutOrStdout(), createdWebhook{webhook, fields["topic"].(string), fields["url"].(string), secret})
			})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.WebhookCreate)
	return cmd
}

// createdWebhook is what create prints.
type createdWebhook struct {
	Webhook string `json:"webhook"`
	Topic   string `json:"topic"`
	URL     string `json:"url"`
	Secret  string `json:"secret,omitempty"` // empty: it was given
}

func (w createdWebhook) String() string {
	text := fmt.Sprintf("created %s from %s to %s", w.Webhook, w.Topic, w.URL)
	if w.Secret != "" {
		text += "\nsecret " + w.Secret
	}
	return text
}

func newWebhookRmCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rm URL",
		Short:   "Delete a webhook",
		Long:    "Rm deletes a webhook and its secret; the jobs of its queue stay. It asks first on a\nterminal, and needs --yes elsewhere.",
		Example: "  weir webhook rm --yes http://127.0.0.1:4000/ship",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt removal
			if err := load(cmd, settings.WebhookRemove, opt.fields(settings.Fields{})); err != nil {
				return err
			}
			if err := checkFinal(cmd, opt.yes, opt.dryRun); err != nil {
				return err
			}
			return opt.onWebhook(cmd, args[0], func(ctx context.Context, c *client.Client, webhook string) error {
				w, err := c.Webhook(ctx, webhook)
				if err != nil {
					return err
				}
				result := removedWebhook{webhook, oneLine(w.Topic), oneLine(w.URL), opt.dryRun}
				if opt.dryRun {
					return opt.json.print(cmd.OutOrStdout(), result)
				}
				if !opt.sure(ctx, cmd, fmt.Sprintf("Delete webhook %s, from %s to %s?", webhook, result.Topic, result.URL), "nothing was deleted") {
					return ctx.Err()
				}
				deleted, err := c.DeleteWebhook(ctx, webhook)
				if err != nil {
					return err
				}
				if !deleted {
					return absentWebhook(webhook)
				}
				return opt.json.print(cmd.OutOrStdout(), result)
			})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.WebhookRemove)
	return cmd
}

// removedWebhook is the result of rm, or of its dry run.
type removedWebhook struct {
	Webhook string `json:"webhook"`
	Topic   string `json:"topic"`
	URL     string `json:"url"`
	DryRun  bool   `json:"dry_run"`
}

func (w removedWebhook) String() string {
	verb := "deleted"
	if w.DryRun {
		verb = "would be deleted"
	}
	return fmt.Sprintf("%s %s, from %s to %s", w.Webhook, verb, w.Topic, w.URL)
}
