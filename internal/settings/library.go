package settings

import "github.com/weirmq/weir"

// Configs are the settings of the library's producers and pools. A field that nobody has
// set is zero, which stands for its default.
type Configs struct {
	Producer weir.ProducerConfig
	Pool     weir.PoolConfig
	Kafka    Kafka
}

// LoadConfigs is Load for commands and programs with settings of the library's. fields
// are those of the command's own.
func LoadConfigs(src Source, fields Fields) (Configs, *Values, error) {
	var c Configs
	all := c.fields(src.Command)
	for name, field := range fields {
		all[name] = field
	}
	v, err := Load(src, all)
	if err != nil {
		return Configs{}, v, err
	}
	for _, err := range []error{c.Producer.WithDefaults().Validate(), c.Pool.WithDefaults().Validate()} {
		if err != nil {
			return Configs{}, v, v.Explain(err)
		}
	}
	return c, v, nil
}

// fields are the fields of the settings that the command has.
func (c *Configs) fields(command Command) Fields {
	p, w, k := &c.Producer, &c.Pool, &c.Kafka
	all := Fields{
		"guard": &p.Guard, "shadow-of": &p.ShadowOf,
		"lag-warn": &p.LagWarn, "lag-warn-sleep": &p.LagWarnSleep, "lag-pause": &p.LagPause, "lag-poll": &p.LagPoll,
		"lag-ttl": Both(&p.LagTTL, &w.LagTTL), "lag-signal": &p.LagSignal, "lag-unknown": &p.LagUnknown, "lag-cache": &p.LagCache,

		"queue-max-depth": &p.MaxDepth, "queue-backpressure-threshold": &p.BackpressureThreshold,
		"queue-backpressure-max-retries": &p.BackpressureRetries, "queue-backpressure-base-delay": &p.BackpressureBaseDelay,
		"queue-load-shedding-enabled": Not(&p.DisableLoadShedding), "queue-load-shedding-max-requests": &p.LoadSheddingMaxRequests,
		"shed-window": &p.ShedWindow, "shed-scope": &p.ShedScope, "shed-wait": &p.ShedWait, "shed-concurrency": &p.ShedConcurrency,
		"wait-slo": &p.WaitSLO, "budget": &p.Budget, "budget-max-depth": &p.BudgetMaxDepth,

		"workers": &w.Workers, "max-workers": &w.MaxWorkers, "batch": &w.Batch, "block": &w.Block, "reclaim-after": &w.ReclaimAfter,
		"max-deliveries": &w.MaxDeliveries, "dead-letter": &w.DeadLetter, "consumer": &w.Consumer, "expired": &w.Expired,
		"handler-timeout": &w.HandlerTimeout, "drain-timeout": &w.DrainTimeout, "ack-linger": &w.AckLinger,
		"retry-base": &w.RetryBase, "retry-max": &w.RetryMax, "trim": &w.Trim, "trim-every": &w.TrimEvery,

		"kafka-user": &k.User, "kafka-password": &k.Password, "kafka-buffer-memory": &k.BufferMemory, "kafka-max-in-flight-requests": &k.MaxInFlight,
	}
	mine := Fields{}
	for _, s := range of(command) {
		if field, ok := all[s.name]; ok && s.ofLibrary() {
			mine[s.name] = field
		}
	}
	return mine
}
