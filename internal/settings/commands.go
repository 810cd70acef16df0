package settings

import (
	"math"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// NoPriority is the priority of a topic that has none.
const NoPriority = 1 << 40

const (
	letters = List | Show | Redrive | Purge // the commands of weir dlq
	copies  = Backup | Verify | Restore
	streams = Publish | Work | Tail | Sample | Doctor | letters | Overload | BenchLoad | Dash | Bundle | Top | Queue // commands with the URL of a stream
	topics  = Topics | TopicInfo | TopicCreate | TopicSet | TopicRemove | TopicPurge | TopicTruncate
	routers = Routers | RouterCreate | RouterRemove
	hooks   = Webhooks | WebhookInfo | WebhookCreate | WebhookRemove
	clients = streams | Backup | Health | topics | routers | hooks
)

// commands are the settings of single calls of a command, which no file holds.
var commands = rows(0, byFlag|byEnv, []*Setting{
	{name: "config", in: Serve | Publish | Work | Library, kind: name("file"),
		help: "YAML or JSON file of settings; serve and publish read it again on SIGHUP and when it changes"},
	{name: "api-key-file", in: clients, kind: name("file"), help: "file that holds the API key (default WEIR_API_KEY, or the URL's :key@)"},
	{name: "ca", in: clients | Serve, kind: name("file"), help: "PEM file of the authorities that certificates of servers are checked by, instead of the system's, for URLs with TLS"},
	{name: "tls-cert", in: clients, kind: name("file"), help: "PEM file of a certificate to show to servers that ask for one"},
	{name: "tls-key", in: clients, kind: name("file"), help: "PEM file of its key"},
	{name: "api-key", in: clients, places: byEnv, kind: text("key"), help: "API key"},
	{name: "url", in: clients, places: byEnv, kind: text("URL"), help: "URL of a server or stream, for names and for commands that are given no URL"},
	{name: "context", in: clients, kind: name("name"), help: "context to use for names, and if there is no URL; see weir context"},
	{name: "ca", in: ContextSet, places: byFlag, kind: name("file"), help: "PEM file of the authorities that the server's certificate is checked by"},
	{name: "tls-cert", in: ContextSet, places: byFlag, kind: name("file"), help: "PEM file of a certificate to show to the server"},
	{name: "tls-key", in: ContextSet, places: byFlag, kind: name("file"), help: "PEM file of its key"},
	{name: "api-key-file", was: "key-file", in: ContextSet, places: byFlag, kind: name("file"), help: "file that holds the API key"},
	{name: "api-key-env", was: "key-env", in: ContextSet, places: byFlag, kind: envName, help: "name of the environment variable that holds the API key"},
	{name: "kafka-user", env: "KAFKA_USER", field: "KafkaUser", in: streams | Library, places: byEnv, kind: name("name"), help: "user name on Kafka (SASL), for a URL without one"},
	{name: "kafka-password", env: "KAFKA_PASSWORD", field: "KafkaPassword", in: streams | Library, places: byEnv, kind: text("password"), help: "its password"},
	{name: "json", in: Publish | Work | Tail | Doctor | Queue | letters | copies | Replica | Keys | topics | routers | hooks | Contexts | ContextSet | BenchLoad, kind: boolean, deft: "false", help: "print JSON, one object a line"},
	{name: "log-format", in: Serve | Publish | Work, places: anywhere, kind: choice("format", "text", "json"), deft: "text",
		help: "form of the log on standard error: text or json"},
	{name: "metrics", in: Publish | Work | Sample | Backup, kind: pageAddress,
		help: "serve Prometheus metrics at http://ADDR/metrics while the command runs; the host is 127.0.0.1 unless ADDR names one"},
	{name: "durability", in: Publish | Work | TopicCreate, kind: choice("class", "ephemeral", "memory", "disk", "fsync"),
		help: "durability class of a topic that has to be created: ephemeral, memory, disk or fsync (default disk)"},

	{name: "type", in: Publish, kind: choice("type", "queue", "log"), deft: "queue", help: "type of a topic that has to be created: queue, or log on a weir server"},
	{name: "ndjson", in: Publish, kind: boolean, deft: "false", help: "read JSON values, one per line, instead of text"},
	{name: "batch", in: Publish, kind: integer("messages", 1, 10_000).kind(), deft: "500", help: "most messages in one write; a write also ends at 1 MiB"},
	{name: "resume", in: Publish, kind: name("file"), help: "file that remembers how far the command got, to continue there when run again"},
	{name: "at-least-once", in: Publish, kind: boolean, deft: "false", help: "send no idempotency keys: a write whose answer was lost may be stored twice"},
	{name: "deadline", in: Publish, kind: duration(0, most).kind(), deft: "0", help: "how long after it was sent a message is worth anything; workers begin none that is older; 0 is for ever"},
	{name: "delay", in: Publish, kind: duration(0, 366*day).kind(), deft: "0", help: "how long after it was stored no worker may have a message"},
	{name: "invalid", in: Publish, kind: choice("what to do", "fail", "replace", "base64", "skip"), deft: "fail",
		help: "what is done with a line that is not UTF-8, or not JSON: fail, replace, base64 or skip"},
	{name: "give-up", in: Publish, kind: duration(0, most).kind(), deft: "10m", help: "fail after this long without progress; 0 is never"},

	{name: "until-empty", in: Work, kind: duration(0, day).kind(), deft: "0", help: "stop once the stream has had no work for this long; 0 is never"},

	{name: "from", in: Tail, kind: name("seq or ID"), help: "print what comes after this seq or ID; 0 is everything (default the end)"},
	{name: "last", short: "n", in: Tail, kind: integer("messages", 0, most).kind(), deft: "0", help: "start this many messages before the end"},
	{name: "count", in: Tail, kind: integer("messages", 0, most).kind(), deft: "0", help: "stop after this many messages; 0 is never"},
	{name: "no-follow", in: Tail, kind: boolean, deft: "false", help: "stop at the end of the stream instead of waiting for more"},

	{name: "every", in: Sample, kind: duration(time.Millisecond, most).kind(), help: "interval between samples (default 5s with --metrics)"},
	{name: "count", in: Sample, kind: integer("samples", 1, most).kind(), help: "stop after this many samples (default 1, or never with --every)"},
	{name: "enqueue-field", in: Sample, kind: name("field"), help: "field of a Redis entry that holds its publishing time, in Unix ms (default enqueue_ts)"},

	{name: "scopes", in: NewKey, places: byFlag, kind: list, deft: "read", help: "rights of the key, separated by commas: read, write, delete, admin"},
	{name: "prefixes", in: NewKey, places: byFlag, kind: names, help: "beginnings of the names of topics and routers that the key may use, separated by commas (default any name)"},
	{name: "expires", in: NewKey, places: byFlag, kind: duration(0, most).kind(), deft: "0", help: "how long the key is accepted, such as 90d; 0 is for ever"},

	{name: "listen", in: Dash, kind: host, deft: "127.0.0.1:4040", help: "address of the page, host or host:port; port 0 is any free one"},

	{name: "every", in: Top, kind: duration(100*time.Millisecond, time.Hour).kind(), deft: "2s", help: "time between two readings that are printed"},
	{name: "count", in: Top, kind: integer("readings", 1, most).kind(), help: "print this many readings instead of the screen and stop"},

	{name: "interval", in: Doctor, kind: duration(0, time.Minute).kind(), deft: "1s", help: "time between the two readings that show a rising lag; 0 takes one reading"},
	{name: "wait-slo", in: Doctor, kind: duration(0, most).kind(), deft: "30s", help: "how old an unfinished message may be; 0 is any age"},
	{name: "maxlen", also: "JOB_STREAM_MAXLEN", in: Doctor, kind: integer("entries", 0, most).kind(), deft: "0", help: "MAXLEN to which producers trim the stream; 0 is none"},
	{name: "fail-on", in: Doctor, kind: choice("severity", "error", "warning", "info"), deft: "error", help: "lowest severity that ends with exit code 1: error, warning or info"},

	{name: "dead-letter", in: letters, kind: name("name"), help: "where the dead letters are (default the stream's own)"},
	{name: "reason", in: letters, kind: choice("reason", "max_deliveries", "poison", "expired"), help: "only those with this reason: max_deliveries, poison or expired"},
	{name: "error", in: letters, kind: name("text"), help: "only those whose last error contains this text"},
	{name: "older-than", in: letters, kind: duration(0, most).kind(), deft: "0", help: "only those dead for longer than this"},
	{name: "newer-than", in: letters, kind: duration(0, most).kind(), deft: "0", help: "only those dead for less than this"},
	{name: "count", was: "limit", in: List, kind: integer("letters", 0, most).kind(), deft: "0", help: "stop after this many letters; 0 is never"},
	{name: "delay", in: Redrive, kind: duration(time.Millisecond, month).orOff(-1, true), deft: "1s", help: "how long a letter stays dead; doubles with each redrive; 0 is no delay"},
	{name: "max-delay", in: Redrive, kind: duration(time.Millisecond, month).kind(), deft: "1h", help: "longest time a letter stays dead"},
	{name: "rate", in: Redrive, kind: real("rate", "a number of messages a second", 0, 1e6), deft: "0", help: "most messages a second; 0 is no limit"},
	{name: "wait", in: Redrive, kind: boolean, deft: "false", help: "wait for letters that are not due yet"},
	{name: "follow", in: Redrive, kind: boolean, deft: "false", help: "never stop, and send back later dead letters too"},
	{name: "yes", in: Redrive | Purge | TopicSet | TopicRemove | TopicPurge | TopicTruncate | RouterRemove | WebhookRemove, kind: boolean, deft: "false", help: "do not ask"},
	{name: "dry-run", in: Redrive | Purge | Restore | TopicSet | TopicRemove | TopicPurge | TopicTruncate | RouterRemove | WebhookRemove, kind: boolean, deft: "false", help: "only print what would be done"},

	{name: "prefix", in: Topics | Routers | Webhooks, places: byFlag, kind: name("prefix"), help: "only names that begin like this"},
	{name: "type", in: TopicCreate, kind: choice("type", "log", "queue"), deft: "log", help: "log, or queue: its records are handed out as jobs"},
	{name: "durability", in: TopicSet, places: byFlag, kind: choice("class", "ephemeral", "memory", "disk", "fsync"),
		help: "when a write is acknowledged: ephemeral, memory, disk or fsync"},
	{name: "ttl", in: TopicCreate | TopicSet, places: byFlag, kind: duration(0, most).kind(), help: "age at which records are removed; 0 is never"},
	{name: "cap-records", in: TopicCreate | TopicSet, places: byFlag, kind: integer("records", 0, most).kind(), help: "most records; 0 is no limit"},
	{name: "cap-bytes", in: TopicCreate | TopicSet, places: byFlag, kind: size(0, 1<<50).kind(), help: "most bytes of records; 0 is no limit"},
	{name: "discard", in: TopicCreate | TopicSet, places: byFlag, kind: choice("policy", "old", "reject"), help: "what happens at a cap: the oldest records go (old), or writes are refused (reject)"},
	{name: "idempotency-window", in: TopicCreate | TopicSet, places: byFlag, kind: duration(0, most).kind(), help: "how long idempotency keys are remembered; 0 is not at all"},
	{name: "dedupe-node", in: TopicCreate | TopicSet, places: byFlag, kind: boolean, help: "readers do not get their own records"},
	{name: "priority", in: TopicCreate | TopicSet, places: byFlag, kind: integer("int", math.MinInt32, math.MaxInt32).orOff(NoPriority, false), help: "which topic is pushed first"},
	{name: "auto-priority", in: TopicCreate | TopicSet, places: byFlag, kind: boolean, help: "a topic that is used gains priority"},
	{name: "auto-create", in: TopicCreate | TopicSet, places: byFlag, kind: boolean, help: "stored with the topic; see API.md"},
	{name: "lease", in: TopicCreate | TopicSet, places: byFlag, kind: duration(100*time.Millisecond, day).kind(), help: "how long a job belongs to who claims it, unless the claim says otherwise"},
	{name: "claim-jitter", in: TopicCreate | TopicSet, places: byFlag, kind: duration(0, 5*time.Second).kind(), help: "how long claims are gathered to share jobs out evenly; 0 is not at all"},
	{name: "max-deliveries", in: TopicCreate | TopicSet, places: byFlag, kind: integer("deliveries", 0, most).kind(), help: "how often a job is handed out before it becomes a dead letter; 0 is no limit"},
	{name: "dead-letter", in: TopicCreate | TopicSet, places: byFlag, kind: text("topic"), help: "topic for dead letters; empty is none"},
	{name: "leases-durable", in: TopicCreate | TopicSet, places: byFlag, kind: boolean, help: "leases survive a restart of the server"},
	{name: "wait-slo", in: TopicCreate | TopicSet, places: byFlag, kind: duration(0, day).kind(), help: "of a queue: how long a job may wait; what its workers cannot do in time is refused; 0 is for ever"},
	{name: "if-empty", in: TopicRemove, places: byFlag, kind: boolean, deft: "false", help: "only if the topic has no records"},
	{name: "tag", in: TopicPurge, places: byFlag, kind: name("tag"), help: "only records with this tag; a * at its end is any end"},
	{name: "before", in: TopicTruncate, places: byFlag, kind: integer("seq", 1, most).kind(), help: "remove the records with a lower number than this"},
	{name: "keep", in: TopicTruncate, places: byFlag, kind: integer("records", 0, most).kind(), help: "keep so many of the newest numbers"},
	{name: "source", in: Routers | RouterCreate, places: byFlag, kind: name("topic"), help: "topic that is copied from"},
	{name: "dest", in: Routers | RouterCreate, places: byFlag, kind: name("topic"), help: "topic that is copied to"},
	{name: "filter", in: RouterCreate, places: byFlag, kind: name("tag"), help: "copy only records with this tag; a * at its end is any end"},
	{name: "guarantee", in: RouterCreate, places: byFlag, kind: choice("guarantee", "at_least_once", "exactly_once"), help: "of the copies: at_least_once or exactly_once (default at_least_once)"},
	{name: "create-dest", in: RouterCreate, places: byFlag, kind: boolean, help: "create an absent destination (default true)"},
	{name: "preserve-node", in: RouterCreate, places: byFlag, kind: boolean, help: "keep the node of a record on the copy (default true)"},
	{name: "preserve-tag", in: RouterCreate, places: byFlag, kind: boolean, help: "keep the tag of a record on the copy (default true)"},
	{name: "allow-cycle", in: RouterCreate, places: byFlag, kind: boolean, help: "routers may feed each other (default false)"},
	{name: "topic", in: WebhookCreate, places: byFlag, kind: name("queue"), help: "queue whose jobs are delivered"},
	{name: "to", in: WebhookCreate, places: byFlag, kind: name("URL"), help: "URL that they are posted to"},
	{name: "concurrency", in: WebhookCreate, places: byFlag, kind: integer("deliveries", 1, api.MaxWebhookConcurrency).kind(), help: "most deliveries at once (default 4)"},
	{name: "rate", in: WebhookCreate, places: byFlag, kind: integer("deliveries", 0, api.MaxWebhookRate).kind(), help: "most deliveries a second; 0 is no limit (default 0)"},
	{name: "timeout", in: WebhookCreate, places: byFlag, kind: duration(api.MinWebhookTimeoutMS*time.Millisecond, api.MaxWebhookTimeoutMS*time.Millisecond).kind(), help: "how long an answer may take (default 10s)"},
	{name: "secret-file", in: WebhookCreate, places: byFlag, kind: name("file"), help: "file with the secret that deliveries are signed with (default one that the server makes)"},

	{name: "rate", in: Backup | Verify, kind: integer("MiB", 0, 1<<40).kind(), deft: "32", help: "most MiB to read per second; 0 is no limit"},
	{name: "every", in: Backup, places: byFlag, kind: duration(0, 366*day).kind(), deft: "0", help: "make a backup this often in the folder DIR until stopped; 0 makes one"},
	{name: "keep", in: Backup, places: byFlag, kind: name("retention"), deft: "24h:7d",
		help: "with --every: how long all backups are kept and, after a colon, for how long the last of each day is"},
	{name: "profile", in: Bundle, kind: duration(0, time.Minute).kind(), deft: "5s", help: "how long the server's CPU is profiled; 0 is not at all"},
	{name: "at", in: Restore, places: byFlag, kind: name("point"), help: "state to restore from a copy: an LSN, or a time such as 2026-01-31T23:59:00Z (default the newest)"},
	{name: "no-verify", in: Restore, kind: boolean, deft: "false", help: "do not read the records"},
	{name: "live", in: Health, places: byFlag, kind: boolean, deft: "false", help: "ask whether the process serves at all, not whether it is ready"},
	{name: "wait", in: Health, places: byFlag, kind: duration(0, day).kind(), deft: "0", help: "go on asking for this long until the answer is good; 0 asks once"},
	{name: "mark", in: Repair, places: byFlag, kind: boolean, deft: "false", help: "accept the damage, so that the server starts again"},

	{name: "arms", in: Overload, places: byFlag, kind: list,
		help: "guards to compare, separated by commas, each with settings if need be: off,static?lag_pause=500 (default every mode)"},
	{name: "load", in: Overload, places: byFlag, kind: real("load", "a number", 0.01, 1000), deft: "10", help: "load of the plateau, as a multiple of what the workers can do"},
	{name: "service", in: Overload, places: byFlag, kind: duration(time.Millisecond, time.Hour).kind(), deft: "40ms", help: "mean time of a handler"},
	{name: "deadline", in: Overload, places: byFlag, kind: duration(10*time.Millisecond, day).kind(), deft: "1s", help: "when callers give up; also the wait_slo of the arms"},
	{name: "phases", in: Overload, places: byFlag, kind: name("lengths"), deft: "20,30,30", help: "how long the load is normal, high, and normal again, in deadlines"},
	{name: "workers", in: Overload, places: byFlag, kind: integer("int", 1, 10_000).kind(), deft: "20", help: "handlers running at once"},
	{name: "producers", in: Overload, places: byFlag, kind: integer("int", 1, 1000).kind(), deft: "1", help: "producers that share the load, each with a connection of its own"},
	{name: "processes", in: Overload, places: byFlag, kind: integer("int", 0, 100).kind(), deft: "0", help: "processes that the callers are spread over, each with that many producers; 0 is this one"},
	{name: "seed", in: Overload, places: byFlag, kind: integer("int", 1, most).kind(), deft: "1", help: "what the offers are drawn from: the same number gives the same offers"},
	{name: "distribution", in: Overload, places: byFlag, kind: choice("shape", "exponential", "fixed", "two-humped", "heavy-tail"), deft: "exponential",
		help: "of the times of handlers: exponential, fixed, two-humped or heavy-tail"},
	{name: "variant", in: Overload, places: byFlag, kind: choice("name", "none", "halved", "greedy", "slow", "impatient", "paused"), deft: "none",
		help: "what else goes wrong: none, halved, greedy, slow, impatient or paused"},
	{name: "disturbance", in: Overload, places: byFlag, kind: real("deadlines", "a number", 0, 1e6), deft: "0", help: "how long that lasts, in deadlines, around the middle of the plateau; 0 is as long as the variant says"},
	{name: "expire", in: Overload, places: byFlag, kind: boolean, deft: "false", help: "messages carry the deadlines of their callers, so that workers set aside what nobody waits for"},
	{name: "arrivals", in: Overload, places: byFlag, kind: name("file"), help: "recorded times of offers, and their tiers, to use instead of drawn ones"},
	{name: "against", in: Overload, places: byFlag, kind: name("URL"), help: "a live stream: say what each arm would have done with its messages; publish nothing"},
	{name: "length", in: Overload, places: byFlag, kind: duration(time.Second, day).kind(), deft: "30s", help: "how long to follow the stream of against"},
	{name: "together", in: Overload, places: byFlag, kind: boolean, deft: "false", help: "run the arms at the same time instead of one after the other"},
	{name: "json", in: Overload, places: byFlag, kind: name("file"), help: "file that receives everything measured"},
	{name: "picture", in: Overload, places: byFlag, kind: name("file"), help: "SVG file that receives the backlog and the rates over time"},

	{name: "duration", in: BenchLoad, places: byFlag, kind: duration(100*time.Millisecond, 10*time.Minute).kind(), deft: "10s", help: "how long to publish"},
	{name: "publishers", in: BenchLoad, places: byFlag, kind: integer("int", 1, 1000).kind(), deft: "8", help: "publishes at once"},
	{name: "workers", in: BenchLoad, places: byFlag, kind: integer("int", 1, 1000).kind(), deft: "8", help: "handlers running at once"},
	{name: "size", in: BenchLoad, places: byFlag, kind: size(16, 1<<20).kind(), deft: "256", help: "of a message, at least 16"},
	{name: "batch", in: BenchLoad, places: byFlag, kind: integer("messages", 1, 1000).kind(), deft: "1", help: "messages in one publish"},
	{name: "rate", in: BenchLoad, places: byFlag, kind: real("rate", "a number", 0, 1e6), deft: "0", help: "messages a second, at a steady pace; 0 is as many as are taken"},
	{name: "guard", in: BenchLoad, places: byFlag, kind: choice("mode", "static", "proportional", "adaptive", "off"), deft: "adaptive", help: "guard of the publishers: static, proportional, adaptive or off"},

	{name: "redis-host", env: "REDIS_HOST", in: SampleRedis, places: byEnv, kind: name("host"), deft: "127.0.0.1", help: "Redis to sample when there is no URL"},
	{name: "redis-port", env: "REDIS_PORT", in: SampleRedis, places: byEnv, kind: integer("port", 1, 65535).kind(), deft: "6379", help: "its port"},
	{name: "redis-password", env: "REDIS_PASSWORD", in: SampleRedis, places: byEnv, kind: text("password"), help: "its password"},
	{name: "stream-key", env: "STREAM_KEY", also: "JOB_STREAM_KEY", in: SampleRedis, places: byEnv, kind: text("name"), help: "the stream"},
	{name: "group", env: "GROUP", also: "JOB_STREAM_GROUP", in: SampleRedis, places: byEnv, kind: name("name"), deft: "weir", help: "its consumer group"},
}...)
