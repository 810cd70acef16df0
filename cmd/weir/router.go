package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/settings"
)

const routerHelp = `Router lists, creates and deletes the routers of a weir server. A router copies every
record that is written to one topic to another. URL is http[s]://[:key@]host:port/ROUTER;
for ls it ends behind the port.`

func newRouterCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "router",
		Short: "List, create and delete the routers of a server",
		Long:  routerHelp,
		Example: `  weir router create --source orders --dest old-orders --filter 'done*' http://127.0.0.1:4000/archive
  weir router ls --source orders http://127.0.0.1:4000`,
		Args: cobra.ArbitraryArgs, // so that RunE can say what was meant
		RunE: noCommand,
	}
	cmd.AddCommand(newRouterLsCmd(), newRouterCreateCmd(), newRouterRmCmd())
	return cmd
}

// onRouter is call for the URL of a router.
func (o *callOptions) onRouter(cmd *cobra.Command, url string, do func(ctx context.Context, c *client.Client, router string) error) error {
	target, router, err := client.ParseRouterURL(url)
	if err != nil {
		return &usageError{err}
	}
	return o.call(cmd, target, func(ctx context.Context, c *client.Client) error {
		err := do(ctx, c, router)
		if api.IsCode(err, api.CodeRouterNotFound) {
			return absentRouter(router)
		}
		return err
	})
}

func absentRouter(router string) error { return fmt.Errorf("router %q does not exist", router) }

func newRouterLsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls URL",
		Short:   "List the routers of a server by name",
		Example: "  weir router ls --dest old-orders http://127.0.0.1:4000",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt callOptions
			var prefix, source, dest string
			if err := load(cmd, settings.Routers, opt.fields(settings.Fields{"prefix": &prefix, "source": &source, "dest": &dest})); err != nil {
				return err
			}
			return opt.onServer(cmd, args[0], func(ctx context.Context, c *client.Client) error {
				r := opt.json.rows(cmd.OutOrStdout(), "ROUTER\tSOURCE\tDEST\tGUARANTEE\tCOPIED")
				return pages(r, func(cursor string) (string, error) {
					routers, next, err := c.Routers(ctx, prefix, source, dest, cursor)
					for _, router := range routers {
						err = errors.Join(err, r.row(listedRouter(router)))
					}
					return next, err
				})
			})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Routers)
	return cmd
}

// listedRouter is a router as it is listed.
type listedRouter client.Router

func (r listedRouter) String() string {
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%d", oneCell(r.Router), oneCell(r.Source), oneCell(r.Dest), oneCell(r.Guarantee), r.ForwardedTotal)
}

// routerFields are the fields of a router by their flags.
var routerFields = map[string]string{
	"source": "source", "dest": "dest", "filter": "filter", "guarantee": "guarantee", "create-dest": "create_dest",
	"preserve-node": "preserve_node", "preserve-tag": "preserve_tag", "allow-cycle": "allow_cycle",
}

func newRouterCreateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "create URL",
		Short:   "Create a router",
		Long:    "Create makes a router that is not there yet. It copies what is written to --source from\nthen on to --dest; topics that are absent are created. It fails if there is a router of\nthat name.",
		Example: "  weir router create --source orders --dest old-orders --filter 'done*' http://127.0.0.1:4000/archive",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt callOptions
			given := givenFields{}
			if err := load(cmd, settings.RouterCreate, opt.fields(given.fields(routerFields, settings.Fields{}))); err != nil {
				return err
			}
			fields := given.body(routerFields)
			for _, name := range []string{"source", "dest"} {
				if fields[name] == nil {
					return &usageError{fmt.Errorf("name the topics: --source TOPIC and --dest TOPIC; --%s is missing", name)}
				}
			}
			return opt.onRouter(cmd, args[0], func(ctx context.Context, c *client.Client, router string) error {
				_, err := c.Router(ctx, router)
				if err == nil {
					return fmt.Errorf("router %q exists; weir router rm deletes it", router)
				}
				if !api.IsCode(err, api.CodeRouterNotFound) {
					return err
				}
				if _, err := c.PutRouter(ctx, router, fields); err != nil {
					return err
				}
				return opt.json.print(cmd.OutOrStdout(), createdRouter{router, fields["source"].(string), fields["dest"].(string)})
			})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.RouterCreate)
	return cmd
}

// createdRouter is what create prints.
type createdRouter struct {
	Router string `json:"router"`
	Source string `json:"source"`
	Dest   string `json:"dest"`
}

func (r createdRouter) String() string {
	return fmt.Sprintf("created %s from %s to %s", r.Router, r.Source, r.Dest)
}

func newRouterRmCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rm URL",
		Short:   "Delete a router",
		Long:    "Rm deletes a router; its copies stay. Created again, it begins with what is written then:\nit asks first on a terminal, and needs --yes elsewhere.",
		Example: "  weir router rm --yes http://127.0.0.1:4000/archive",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt removal
			if err := load(cmd, settings.RouterRemove, opt.fields(settings.Fields{})); err != nil {
				return err
			}
			if err := checkFinal(cmd, opt.yes, opt.dryRun); err != nil {
				return err
			}
			return opt.onRouter(cmd, args[0], func(ctx context.Context, c *client.Client, router string) error {
				r, err := c.Router(ctx, router)
				if err != nil {
					return err
				}
				result := removedRouter{router, oneLine(r.Source), oneLine(r.Dest), opt.dryRun}
				if opt.dryRun {
					return opt.json.print(cmd.OutOrStdout(), result)
				}
				if !opt.sure(ctx, cmd, fmt.Sprintf("Delete router %s, from %s to %s?", router, result.Source, result.Dest), "nothing was deleted") {
					return ctx.Err()
				}
				deleted, err := c.DeleteRouter(ctx, router)
				if err != nil {
					return err
				}
				if !deleted {
					return absentRouter(router)
				}
				return opt.json.print(cmd.OutOrStdout(), result)
			})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.RouterRemove)
	return cmd
}

// removedRouter is the result of rm, or of its dry run.
type removedRouter struct {
	Router string `json:"router"`
	Source string `json:"source"`
	Dest   string `json:"dest"`
	DryRun bool   `json:"dry_run"`
}

func (r removedRouter) String() string {
	verb := "deleted"
	if r.DryRun {
		verb = "would be deleted"
	}
	return fmt.Sprintf("%s %s, from %s to %s", r.Router, verb, r.Source, r.Dest)
}
