package settings

import (
	"slices"
	"time"
)

// table is every setting there is. Flags, help, errors and docs/SETTINGS.md follow it.
var table = slices.Concat(producer, pool, server, commands)

const (
	day   = 24 * time.Hour
	month = 30 * day
)

// producer are the settings of weir.ProducerConfig.
var producer = rows(Publish|Library, anywhere, []*Setting{
	{name: "guard", reloads: true, field: "Guard", kind: choice("mode", "static", "proportional", "adaptive", "off", "shadow"), deft: "adaptive",
		help: "what a publish does when workers fall behind: static, proportional, adaptive, off or shadow; static if a setting is given that only fixed limits have"},
	{name: "shadow-of", reloads: true, field: "ShadowOf", kind: choice("mode", "static", "proportional", "adaptive", "off"), deft: "adaptive",
		help: "the mode that guard shadow only counts and logs; static as for guard"},
	{name: "lag-warn", in: Publish | Library | Dash | Top, reloads: true, field: "LagWarn", kind: integer("messages", 1, 1<<40).orOff(-1, false), deft: "50",
		help: "lag above which a publish sleeps once, or off"},
	{name: "lag-warn-sleep", reloads: true, field: "LagWarnSleep", kind: duration(time.Millisecond, time.Hour).kind(), deft: "500ms",
		help: "how long a publish sleeps above lag_warn"},
	{name: "lag-pause", in: Publish | Library | Dash | Top, reloads: true, field: "LagPause", kind: integer("messages", 1, 1<<40).orOff(-1, false), deft: "200",
		help: "lag above which a publish waits, or off"},
	{name: "lag-poll", reloads: true, field: "LagPoll", kind: duration(time.Millisecond, time.Minute).kind(), deft: "100ms",
		help: "how often a waiting publish looks at the lag"},
	{name: "lag-ttl", reloads: true, in: Publish | Work | Library, field: "LagTTL", kind: duration(time.Second, day).kind(), deft: "10s",
		help: "how long the load that workers report stays valid"},
	{name: "lag-signal", reloads: true, field: "LagSignal", kind: choice("signal", "pending", "backlog"), deft: "pending",
		help: "what lag_warn and lag_pause are compared with: pending or backlog"},
	{name: "lag-unknown", reloads: true, field: "LagUnknown", kind: choice("policy", "open", "hold", "decay"), deft: "open",
		help: "what a publish does while the lag is unknown: open, hold or decay"},
	{name: "lag-cache", reloads: true, field: "LagCache", kind: duration(time.Nanosecond, time.Minute).orOff(-1, true), deft: "100ms",
		help: "how old a reading of the lag may be; 0 reads before every publish"},

	{name: "queue-max-depth", reloads: true, env: "QUEUE_MAX_DEPTH", field: "MaxDepth", kind: integer("messages", 1, 1<<40).kind(), deft: "10000",
		help: "how deep the queue may get"},
	{name: "queue-backpressure-threshold", reloads: true, env: "QUEUE_BACKPRESSURE_THRESHOLD", field: "BackpressureThreshold", kind: real("share", "a share", 0.01, 1), deft: "0.8",
		help: "share of queue_max_depth from which a publish waits"},
	{name: "queue-backpressure-max-retries", reloads: true, env: "QUEUE_BACKPRESSURE_MAX_RETRIES", field: "BackpressureRetries", kind: integer("int", 1, 20).orOff(-1, true), deft: "3",
		help: "how often a publish looks at the depth before it is refused; 0 refuses immediately"},
	{name: "queue-backpressure-base-delay", reloads: true, env: "QUEUE_BACKPRESSURE_BASE_DELAY", field: "BackpressureBaseDelay", kind: seconds(time.Millisecond, time.Minute), deft: "0.1",
		help: "seconds between looks at the depth; doubles with each"},
	{name: "queue-load-shedding-enabled", reloads: true, env: "QUEUE_LOAD_SHEDDING_ENABLED", field: "DisableLoadShedding", kind: boolean, deft: "true",
		help: "refuse publishes above queue_load_shedding_max_requests"},
	{name: "queue-load-shedding-max-requests", reloads: true, env: "QUEUE_LOAD_SHEDDING_MAX_REQUESTS", field: "LoadSheddingMaxRequests", kind: integer("requests", 1, 1<<30).kind(),
		help: "most publishes in one shed_window (default 1000; none with guard adaptive)"},
	{name: "shed-window", reloads: true, field: "ShedWindow", kind: duration(time.Millisecond, time.Hour).kind(), deft: "1s",
		help: "length of the window for queue_load_shedding_max_requests"},
	{name: "shed-scope", reloads: true, field: "ShedScope", kind: choice("scope", "process", "stream"), deft: "process",
		help: "whose publishes shed_window counts: those of this process (process), or of everyone who publishes to the stream (stream)"},
	{name: "shed-wait", reloads: true, field: "ShedWait", kind: boolean, deft: "false",
		help: "wait until shed_window ends instead of refusing; weir publish always waits"},
	{name: "shed-concurrency", reloads: true, field: "ShedConcurrency", kind: integer("publishes", 0, 1<<20).orOff(0, true), deft: "0",
		help: "most publishes in progress at once; 0 is no limit"},
	{name: "wait-slo", reloads: true, field: "WaitSLO", kind: duration(time.Millisecond, day).kind(), deft: "30s",
		help: "how long a message may wait for a worker; guard adaptive keeps the wait below it"},
	{name: "budget", field: "Budget", kind: name("name"),
		help: "name of a budget that streams share: for the guard they are one, with budget_max_depth as their limit"},
	{name: "budget-max-depth", reloads: true, field: "BudgetMaxDepth", kind: integer("messages", 1, 1<<40).kind(), deft: "10000",
		help: "how many messages all streams of the budget may hold together"},
	{name: "kafka-buffer-memory", env: "KAFKA_BUFFER_MEMORY", field: "KafkaBufferMemory", in: Publish | Work | Library, places: byFile | byEnv, kind: size(1, 1<<50).kind(), deft: "32MiB",
		help: "how much may wait to be sent to Kafka; what does not fit is refused as buffer_full, or waits"},
	{name: "kafka-max-in-flight-requests", env: "KAFKA_MAX_IN_FLIGHT_REQUESTS", field: "KafkaMaxInFlight", in: Publish | Work | Library, places: byFile | byEnv, kind: integer("requests", 1, 1<<30).kind(), deft: "5",
		help: "requests in flight on one connection to Kafka; a URL of Kafka takes no other number than 5"},
}...)

// pool are the settings of weir.PoolConfig.
var pool = rows(Work|Library, anywhere, []*Setting{
	{name: "workers", field: "Workers", kind: integer("int", 1, 10_000).orAuto(-1),
		help: "handlers running at once, or auto: as many as do more than fewer would, at most max_workers (default the number of CPUs)"},
	{name: "max-workers", field: "MaxWorkers", kind: integer("int", 1, 10_000).kind(), deft: "100",
		help: "most handlers running at once with workers auto"},
	{name: "batch", field: "Batch", kind: integer("messages", 1, 1000).kind(), deft: "10",
		help: "most messages in one claim"},
	{name: "block", field: "Block", kind: duration(10*time.Millisecond, 30*time.Second).kind(), deft: "2s",
		help: "longest wait of one claim"},
	{name: "reclaim-after", field: "ReclaimAfter", kind: duration(100*time.Millisecond, day).kind(), deft: "30s",
		help: "how long a worker may be silent before others may take its messages"},
	{name: "max-deliveries", field: "MaxDeliveries", kind: integer("int", 1, 1<<30).orOff(-1, true), deft: "3",
		help: "deliveries before a message becomes a dead letter; 0 is no limit"},
	{name: "dead-letter", field: "DeadLetter", kind: name("name"),
		help: "stream for dead letters (default the stream's own)"},
	{name: "consumer", field: "Consumer", kind: name("name"),
		help: "name of the pool, unique in its group (default host, process and a random number)"},
	{name: "expired", field: "Expired", kind: choice("mode", "dead_letter", "drop"), deft: "dead_letter",
		help: "what becomes of a message whose deadline passed before its handler could begin: dead_letter, or drop"},
	{name: "handler-timeout", field: "HandlerTimeout", kind: duration(time.Nanosecond, day).orOff(-1, true), deft: "10m",
		help: "how long a handler may run; 0 is no limit"},
	{name: "drain-timeout", field: "DrainTimeout", kind: duration(time.Millisecond, day).kind(), deft: "30s",
		help: "how long handlers may continue after the signal to stop"},
	{name: "ack-linger", field: "AckLinger", kind: duration(time.Nanosecond, time.Second).orOff(1, true), deft: "5ms",
		help: "how long a finished message waits so that several are acknowledged together"},
	{name: "retry-base", field: "RetryBase", kind: duration(time.Millisecond, day).kind(), deft: "1s",
		help: "delay before the first retry of a message; doubles with each"},
	{name: "retry-max", field: "RetryMax", kind: duration(time.Millisecond, day).kind(), deft: "5m",
		help: "longest delay before a retry"},
	{name: "trim", field: "Trim", kind: choice("mode", "auto", "on", "off"), deft: "auto",
		help: "remove from a Redis stream what every group has acknowledged: auto (if weir made the stream; on if trim_every is given), on or off"},
	{name: "trim-every", field: "TrimEvery", kind: duration(time.Nanosecond, day).orOff(-1, true), deft: "10s",
		help: "how often to trim; 0 is never"},
}...)

// server are the settings of weir serve.
var server = rows(Serve, anywhere, []*Setting{
	{name: "host", kind: host, deft: "127.0.0.1", help: "address to listen on, or host:port"},
	{name: "port", kind: integer("port", 0, 65535).kind(), deft: "4000", help: "port to listen on, unless host names one; 0 is any free one",
		moot: func(v *Values) bool { return HasPort(v.text("host")) }},
	{name: "tls-cert", kind: name("file"), help: "PEM file of the certificate to serve HTTPS with, and of those between it and its authority; read again when it changes"},
	{name: "tls-key", kind: name("file"), help: "PEM file of its key"},
	{name: "tls-client-ca", kind: name("file"), help: "PEM file of the authorities that a client's certificate has to come from; without it none is asked for"},
	{name: "port-file", kind: text("file"), help: "file that receives the bound host:port"},
	{name: "data-dir", in: Serve | Restore, kind: name("directory"), deft: "./weir-data", help: "data directory, used by one server at a time"},
	{name: "log-level", kind: choice("level", "debug", "info", "warn", "error"), deft: "info", reloads: true,
		help: "lowest level that is logged: debug, info, warn or error"},
	{name: "disk-flush-ms", kind: integer("ms", 1, 3_600_000).kind(), deft: "1000", help: "longest time a disk write stays unsynced"},
	{name: "stall-after", kind: duration(time.Second, day).orOff(0, true), deft: "30s",
		help: "how long the log may make no progress while work is waiting before the process exits with code 75; 0 is no limit"},
	{name: "disk-reserve", kind: size(0, 1<<50).orOff(-1, true),
		help: "free space below which writes are refused, such as 512MiB; 0 is none (default the smaller of 192MiB and a tenth of the disk)"},
	{name: "replica", kind: text("URL"), help: "where a copy of the data directory is kept that outlives this machine, such as file:///mnt/copy"},
	{name: "replica-sync", kind: boolean, deft: "false", help: "acknowledge what has to be synced only when the copy has it, too"},
	{name: "replica-every", kind: duration(10*time.Millisecond, time.Minute).kind(), deft: "1s", help: "how often a copy without replica_sync follows"},
	{name: "replica-base", kind: duration(time.Second, day).kind(), deft: "15m", help: "how often the copy gets a new base while something is written; each 256 MiB it gets one anyway"},
	{name: "replica-keep", kind: duration(time.Second, 12*month).kind(), deft: "24h", help: "how far back the copy can be restored to"},
	{name: "replica-lag-max", kind: size(1, 1<<50).kind(), deft: "1GiB", help: "how much is kept on this disk for a copy that is behind; beyond it the copy waits for a new base"},
	{name: "failover", kind: boolean, deft: "false", help: "let a standby take over when this server fails: it answers nothing while it cannot prove to the copy that it leads"},
	{name: "standby", kind: boolean, deft: "false", help: "begin as a standby of the server that leads the copy, and take over when it fails; then as with failover"},
	{name: "failover-after", kind: duration(300*time.Millisecond, time.Hour).kind(), deft: "15s", help: "how long a standby waits for a sign of life; give all servers of a copy the same. A leader gives three in that time, and stops answering after two thirds of it without one"},
	{name: "ingest-queue", kind: integer("int", 1, 1<<20).kind(), deft: "4096", help: "writes that may wait for the log"},
	{name: "allowed-hosts", in: Serve | Dash, kind: list, help: "host names accepted besides loopback, separated by commas"},
	{name: "cors-origins", kind: list, help: "origins of web pages that may use /v0, such as https://app.example, separated by commas; * is all, with keys"},
	{name: "probe-auth", kind: boolean, deft: "false", help: "require a key for health, ready and the OpenAPI document too"},
	{name: "allow-insecure-no-auth", in: Serve | Dash, kind: boolean, deft: "false", help: "allow listening beyond loopback without keys"},
	{name: "api-keys", in: Serve | Dash, places: byEnv, kind: text("keys"), help: "API keys and their rights; see Keys in API.md"},
	{name: "keys-file", in: Serve | NewKey | Keys, kind: name("file"), help: "file of API keys, as weir key writes it, besides WEIR_API_KEYS; serve reads it again when it changes"},
	{name: "upstream", kind: text("url"), help: "be a relay: serve the streams of the weir server at this address, and pass everything else on to it"},
	{name: "upstream-key", places: byEnv, kind: text("key"), help: "the relay's own key to its upstream; it has to read every topic that is watched"},
	{name: "relay-key", places: byEnv, kind: text("secret"), help: "what signs watch sessions; relays with the same one take each other's (default a random one)"},
	{name: "relay-buffer", kind: size(1, 1<<40).kind(), deft: "4MiB", help: "recent records that a relay keeps of each topic that is watched"},
	{name: "test-min-heartbeat-ms", places: byEnv, kind: integer("ms", 1, 1000).kind(), deft: "1000", help: "shortest heartbeat of a stream; for tests"},

	{name: "max-topics", kind: limit, deft: "100000", help: "most topics; 0 is no limit"},
	{name: "max-routers", kind: limit, deft: "10000", help: "most routers; 0 is no limit"},
	{name: "max-watch-sessions", kind: limit, deft: "10000", help: "most watch sessions; 0 is no limit"},
	{name: "max-sse-connections", kind: limit, deft: "10000", help: "most event streams and WebSockets at once; 0 is no limit"},
	{name: "max-sse-connections-per-key", kind: limit, deft: "1000", help: "most event streams and WebSockets of one key at once; 0 is no limit"},
	{name: "max-inflight-per-key", kind: limit, deft: "1000", help: "most requests of one key at once; 0 is no limit"},
	{name: "max-inflight-bytes", kind: size(0, 1<<50).kind(), deft: "256MiB", help: "most bytes of request bodies at once; 0 is no limit"},
	{name: "max-total-bytes", kind: size(0, 1<<50).kind(), deft: "0", help: "most live bytes of all topics; 0 is no limit"},
	{name: "max-idempotency-keys", kind: limit, deft: "5000000", help: "most idempotency keys remembered; 0 is no limit"},
	{name: "max-body-bytes", kind: size(1, 1<<30).kind(), deft: "64MiB", help: "largest request body, decompressed"},
	{name: "max-batch-records", kind: limit1, deft: "10000", help: "most records in one write"},
	{name: "max-record-bytes", kind: size(1, 1<<30).kind(), deft: "1MiB", help: "largest record, data and meta together"},
	{name: "max-meta-bytes", kind: size(1, 1<<30).kind(), deft: "16KiB", help: "largest meta of a record"},
	{name: "max-tag-bytes", kind: size(1, 1<<30).kind(), deft: "256", help: "longest tag"},
	{name: "max-node-bytes", kind: size(1, 1<<30).kind(), deft: "128", help: "longest node name"},
	{name: "max-watch-topics", kind: limit1, deft: "256", help: "most topics of one watch"},
	{name: "max-limit", kind: limit1, deft: "1000", help: "most records in one diff"},
	{name: "max-claim", kind: limit1, deft: "1000", help: "most jobs in one claim, ack, nack or extend"},
}...)

var (
	limit  = integer("int", 0, 1<<50).kind()
	limit1 = integer("int", 1, 1<<30).kind()
)
