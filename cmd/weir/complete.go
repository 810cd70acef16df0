package main

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/keyfile"
	"github.com/weirmq/weir/internal/settings"
)

const (
	// completeTimeout is how long a server may take to name what a shell offers.
	completeTimeout = time.Second
	// completeNames is how many names are offered at most.
	completeNames = 500
)

// noWords is a completion without values, which leaves out files, too.
var noWords = cobra.NoFileCompletions

// complete has the shell offer values for the arguments and flags of a command and those below it.
// Whatever goes wrong, fewer are offered and nothing is said.
func complete(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		var values cobra.CompletionFunc
		switch words := settings.Choices(f); {
		case f.Name == "context":
			values = completeContexts
		case words != nil:
			values = cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
		case f.Value.Type() == "file" || f.Value.Type() == "directory" || f.NoOptDefVal != "":
			return
		default:
			values = noWords
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, values) // fails if there is one already
	})
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = completion(cmd)
	}
	for _, c := range cmd.Commands() {
		if c.Name() != "completion" && c.Name() != "help" {
			complete(c)
		}
	}
}

// completion is what completes the arguments of a command, by its usage line.
func completion(cmd *cobra.Command) cobra.CompletionFunc {
	words := slices.DeleteFunc(strings.Fields(cmd.Use)[1:], func(word string) bool { return word == "--" || word == "[flags]" })
	if len(words) == 0 {
		return noWords
	}
	word := strings.Trim(words[0], "[]…")
	switch path := strings.TrimPrefix(cmd.CommandPath(), "weir "); {
	case path == "context use" || path == "context rm":
		return firstOnly(completeContexts)
	case path == "key revoke":
		return firstOnly(completeKeys)
	case word != "URL":
		return argumentsOf(words, noWords)
	case slices.Contains([]string{"topic ls", "topic create", "router ls", "router create", "webhook ls", "webhook info", "webhook create", "webhook rm", "backup", "health", "debug bundle", "bench load"}, path):
		return argumentsOf(words, noWords) // of a whole server, a name that is new, or one of no topic
	}
	return argumentsOf(words, completeTopics)
}

// argumentsOf completes URLs as said, files and directories as the shell does, and nothing else.
func argumentsOf(words []string, urls cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		word := words[min(len(args), len(words)-1)]
		if len(args) >= len(words) && !strings.Contains(word, "…") {
			return noWords(cmd, args, begun)
		}
		switch {
		case strings.Contains(word, "DIR") || strings.Contains(word, "FILE"), strings.Contains(word, "CMD"), strings.Contains(word, "ARG"):
			return nil, cobra.ShellCompDirectiveDefault
		case strings.Contains(word, "URL"):
			return urls(cmd, args, begun)
		}
		return noWords(cmd, args, begun)
	}
}

// firstOnly completes the first argument alone.
func firstOnly(first cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return noWords(cmd, args, begun)
		}
		return first(cmd, args, begun)
	}
}

func completeContexts(_ *cobra.Command, _ []string, begun string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	all, err := readContexts()
	for _, c := range all.All {
		if err == nil && contextName.MatchString(c.Name) && strings.HasPrefix(c.Name, begun) {
			names = append(names, c.Name)
		}
	}
	return offered(names)
}

// completeKeys offers the names of the keys in the file of --keys-file.
func completeKeys(cmd *cobra.Command, _ []string, begun string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	var path string
	if _, err := settings.Load(source(cmd, settings.Keys), settings.Fields{"keys-file": &path, "json": new(output)}); err != nil || path == "" {
		return offered(nil)
	}
	keys, err := keyfile.Read(path)
	if err != nil {
		return offered(nil)
	}
	for _, k := range keys {
		if strings.HasPrefix(k.Name, begun) {
			names = append(names, k.Name)
		}
	}
	return offered(names)
}

// offered are names for the shell, of which it makes no names of files.
func offered(names []cobra.Completion) ([]cobra.Completion, cobra.ShellCompDirective) {
	return names[:min(len(names), completeNames)], cobra.ShellCompDirectiveNoFileComp
}

// completeTopics offers the topics of the server whose URL was begun, or that names lead to.
func completeTopics(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if cmd.Context() == nil {
		cmd.SetContext(context.Background())
	}
	front, prefix, target, err := askedServer(cmd, begun)
	if err != nil || target.Base == "" {
		return offered(nil)
	}
	var keys keyOptions
	fields := keys.fields(settings.Fields{"json": new(output)})
	if _, err = settings.Load(source(cmd, settings.TopicInfo), fields); err == nil {
		err = fillFromContext(cmd, fields)
	}
	if err != nil {
		return offered(nil)
	}
	c, err := keys.connect(target)
	if err != nil {
		return offered(nil)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	topics, _, err := c.Topics(ctx, prefix, "")
	if err != nil {
		return offered(nil)
	}
	var names []cobra.Completion
	for _, t := range topics {
		if api.CheckTopicName(t.Topic) == nil && strings.HasPrefix(t.Topic, prefix) {
			names = append(names, front+t.Topic)
		}
	}
	return offered(names)
}

// askedServer returns the server to ask for topics, the beginning of their names, and what
// is in front of them in the text that was begun. Without a server the target is empty: a
// URL whose host is not complete names none.
func askedServer(cmd *cobra.Command, begun string) (front, prefix string, target client.Target, err error) {
	if strings.Contains(begun, ":") {
		slash := strings.LastIndexByte(begun, '/')
		u, err := url.Parse(begun)
		if err != nil || !isHTTP(begun) || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || slash < len(u.Scheme)+3 {
			return "", "", target, err
		}
		target, err = client.ParseServerURL(begun[:slash])
		return begun[:slash+1], begun[slash+1:], target, err
	}
	b, err := base(cmd)
	if err != nil || b == nil || !isHTTP(b.url) || strings.ContainsAny(begun, "/?#") {
		return "", "", target, err
	}
	withBase(cmd, b)
	target, err = client.ParseServerURL(b.url)
	return "", begun, target, err
}
