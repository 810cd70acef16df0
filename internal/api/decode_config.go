package api

// Bits of the fields of a config.
const (
	configType = 1 << iota
	configTTL
	configCapRecords
	configCapBytes
	configDiscard
	configDurable
	configDurability
	configPriority
	configAutoPriority
	configAutoCreate
	configWindow
	configDedupe
	configLease
	configJitter
	configMaxDeliveries
	configDeadLetter
	configLeasesDurable
	configWaitSLO
	configPaused
)

var configFields = []string{"type", "ttl_ms", "cap_records", "cap_bytes", "discard", "durable", "durability", "priority", "auto_priority",
	"auto_create", "idempotency_window_ms", "dedupe_node", "lease_ms", "claim_jitter_ms", "max_deliveries", "dead_letter",
	"leases_durable", "wait_slo_ms", "paused"}

const maxUint64 = 1<<64 - 1

// DecodeConfig reads the body of PUT topic, laid over the defaults and clamped. A body
// of zero bytes counts as {}. It makes the checks of contract 2; CheckConfig checks the
// values.
func DecodeConfig(body []byte, warn *Warnings) (Config, error) {
	if len(body) == 0 {
		return DefaultConfig(), nil
	}
	s := scanner{b: body, index: -1, warnings: warn}
	s.peek()
	c, ok := s.config()
	if !ok {
		s.notObject()
	}
	return c, s.finish()
}

// config reads a config object; false if the value is no object.
func (s *scanner) config() (Config, bool) {
	c := DefaultConfig()
	var seen uint32
	var durable, hasDurability bool
	if !s.object(configFields, func(name []byte) bool {
		switch string(name) {
		case "type":
			if s.once(&seen, configType, "type") {
				c.Type = TopicType(s.enum("type", topicTypes[:]))
			}
		case "ttl_ms":
			if s.once(&seen, configTTL, "ttl_ms") {
				c.TTLMS = s.uint("ttl_ms", maxUint64)
			}
		case "cap_records":
			if s.once(&seen, configCapRecords, "cap_records") {
				c.CapRecords = s.uint("cap_records", maxUint64)
			}
		case "cap_bytes":
			if s.once(&seen, configCapBytes, "cap_bytes") {
				c.CapBytes = s.uint("cap_bytes", maxUint64)
			}
		case "discard":
			if s.once(&seen, configDiscard, "discard") {
				c.Discard = Discard(s.enum("discard", discards[:]))
			}
		case "durable":
			if s.once(&seen, configDurable, "durable") {
				durable = s.bool("durable")
			}
		case "durability":
			if s.once(&seen, configDurability, "durability") && !s.null() {
				c.Durability = Durability(s.enum("durability", durabilityNames[:]))
				hasDurability = true
			}
		case "priority":
			if s.once(&seen, configPriority, "priority") && !s.null() {
				c.Priority, c.HasPriority = s.int32("priority"), true
			}
		case "auto_priority":
			if s.once(&seen, configAutoPriority, "auto_priority") {
				c.AutoPriority = s.bool("auto_priority")
			}
		case "auto_create":
			if s.once(&seen, configAutoCreate, "auto_create") {
				c.AutoCreate = s.bool("auto_create")
			}
		case "idempotency_window_ms":
			if s.once(&seen, configWindow, "idempotency_window_ms") {
				c.IdempotencyWindowMS = s.uint("idempotency_window_ms", maxUint64)
			}
		case "dedupe_node":
			if s.once(&seen, configDedupe, "dedupe_node") {
				c.DedupeNode = s.bool("dedupe_node")
			}
		default:
			return s.queueConfig(name, &seen, &c)
		}
		return true
	}) {
		return c, false
	}
	if durable && !hasDurability {
		c.Durability = Fsync
	}
	return c, true
}

// queueConfig reads the fields that only queues use.
func (s *scanner) queueConfig(name []byte, seen *uint32, c *Config) bool {
	switch string(name) {
	case "lease_ms":
		if s.once(seen, configLease, "lease_ms") {
			c.LeaseMS = clampLease(s.uint("lease_ms", maxUint64))
		}
	case "claim_jitter_ms":
		if s.once(seen, configJitter, "claim_jitter_ms") {
			c.ClaimJitterMS = uint32(min(s.uint("claim_jitter_ms", maxUint64), MaxClaimJitterMS))
		}
	case "max_deliveries":
		if s.once(seen, configMaxDeliveries, "max_deliveries") {
			c.MaxDeliveries = s.uint("max_deliveries", maxUint64)
		}
	case "dead_letter":
		if s.once(seen, configDeadLetter, "dead_letter") && !s.null() {
			c.DeadLetter = string(s.text("dead_letter", acceptStringOrNull))
			c.HasDeadLetter = true
		}
	case "leases_durable":
		if s.once(seen, configLeasesDurable, "leases_durable") {
			c.LeasesDurable = s.bool("leases_durable")
		}
	case "wait_slo_ms":
		if s.once(seen, configWaitSLO, "wait_slo_ms") {
			c.WaitSLOMS = uint32(s.uint("wait_slo_ms", MaxWaitSLOMS))
		}
	case "paused":
		if s.once(seen, configPaused, "paused") {
			c.Paused, c.HasPaused = s.bool("paused"), true
		}
	default:
		return false
	}
	return true
}

var (
	topicTypes = [...]string{TypeLog: "log", TypeQueue: "queue"}
	discards   = [...]string{DiscardOld: "old", DiscardReject: "reject"}
)

// enum reads a string field and returns its index among the values.
func (s *scanner) enum(name string, values []string) int {
	accepted := func() string {
		list := "one of"
		for _, v := range values {
			list += ` "` + v + `"`
		}
		return list
	}
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		s.wrong(name, accepted())
		return 0
	}
	mark, start := len(s.scratch), s.i
	got := s.text(name, acceptString)
	s.scratch = s.scratch[:mark]
	for i, v := range values {
		if string(got) == v {
			return i
		}
	}
	s.i = start
	s.wrong(name, accepted())
	return 0
}

func clampLease(ms uint64) uint64 { return min(max(ms, MinLeaseMS), MaxLeaseMS) }

// CheckConfig checks the values of a config for the topic name: the dead letter
// topic must have a valid name and, on a queue, be another topic, and only a queue
// has jobs that wait, or are held back.
func CheckConfig(name string, c *Config) error {
	switch {
	case c.WaitSLOMS > 0 && c.Type != TypeQueue:
		return Errorf(CodeInvalidRequest, "field \"wait_slo_ms\" is for topics of type \"queue\": nobody works on a log; leave it out")
	case c.Paused && c.Type != TypeQueue:
		return Errorf(CodeInvalidRequest, "field \"paused\" is for topics of type \"queue\": nobody works on a log; leave it out")
	case !c.HasDeadLetter:
		return nil
	case !ValidTopicName(c.DeadLetter):
		return Errorf(CodeInvalidRequest, "field \"dead_letter\" is not a topic name, which has %s", topicNameRule).
			With("dead_letter", c.DeadLetter[:min(len(c.DeadLetter), 256)])
	case c.Type == TypeQueue && c.DeadLetter == name:
		return Errorf(CodeInvalidRequest, "field \"dead_letter\" names the queue itself; name another topic").With("dead_letter", c.DeadLetter)
	}
	return nil
}

// The rules for names, as error messages state them.
const (
	topicNameRule  = "1 to 255 of the characters A-Z a-z 0-9 . _ : -, the first a letter or digit"
	routerNameRule = "1 to 255 of the characters A-Z a-z 0-9 . _ : - >, the first a letter or digit"
)

// CheckTopicName checks the name of a topic to be created.
func CheckTopicName(name string) error {
	if ValidTopicName(name) {
		return nil
	}
	return Errorf(CodeInvalidRequest, "%.300q is not a topic name, which has %s", name, topicNameRule)
}
