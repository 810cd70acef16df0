package api

import (
	"reflect"
	"testing"
)

func TestConfigIsLaidOverTheDefaults(t *testing.T) {
	with := func(change func(*Config)) Config {
		c := DefaultConfig()
		change(&c)
		return c
	}
	cases := []struct {
		rule, body string
		want       Config
	}{
		{"zero bytes", ``, DefaultConfig()},
		{"empty object", ` {} `, DefaultConfig()},
		{"unknown fields", `{"Type":"queue","x":{"y":[]}}`, DefaultConfig()},
		{"nullable fields", `{"durability":null,"priority":null,"dead_letter":null}`, DefaultConfig()},
		{"durable", `{"durable":true}`, with(func(c *Config) { c.Durability = Fsync })},
		{"durable false", `{"durable":false}`, DefaultConfig()},
		{"durability wins over durable", `{"durability":"memory","durable":true}`, with(func(c *Config) { c.Durability = Memory })},
		{"durability null leaves it to durable", `{"durable":true,"durability":null}`, with(func(c *Config) { c.Durability = Fsync })},
		{"every class", `{"durability":"ephemeral"}`, with(func(c *Config) { c.Durability = Ephemeral })},
		{"escaped value", `{"durability":"f\u0073ync"}`, with(func(c *Config) { c.Durability = Fsync })},
		{"priority as sent", `{"priority":-2147483648}`, with(func(c *Config) { c.Priority, c.HasPriority = -2147483648, true })},
		{"priority zero is given", `{"priority":0}`, with(func(c *Config) { c.HasPriority = true })},
		{"lease raised", `{"lease_ms":0}`, with(func(c *Config) { c.LeaseMS = 100 })},
		{"lease lowered", `{"lease_ms":18446744073709551615}`, with(func(c *Config) { c.LeaseMS = 86_400_000 })},
		{"jitter lowered", `{"claim_jitter_ms":5001}`, with(func(c *Config) { c.ClaimJitterMS = 5000 })},
		{"all", `{"type":"queue","ttl_ms":1,"cap_records":2,"cap_bytes":3,"discard":"reject","durability":"fsync","priority":4,
			"auto_priority":false,"auto_create":false,"idempotency_window_ms":5,"dedupe_node":false,"lease_ms":600,
			"claim_jitter_ms":7,"max_deliveries":8,"dead_letter":"dead","leases_durable":true}`, Config{
			Type: TypeQueue, TTLMS: 1, CapRecords: 2, CapBytes: 3, Discard: DiscardReject, Durability: Fsync, Priority: 4, HasPriority: true,
			IdempotencyWindowMS: 5, LeaseMS: 600, ClaimJitterMS: 7, MaxDeliveries: 8, DeadLetter: "dead", HasDeadLetter: true, LeasesDurable: true}},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			got, err := DecodeConfig([]byte(c.body), nil)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			back, err := DecodeConfig(AppendConfig(nil, &got), nil)
			if err != nil || !reflect.DeepEqual(back, got) {
				t.Errorf("the echo %s decodes to %+v, %v", AppendConfig(nil, &got), back, err)
			}
		})
	}
}

func TestConfigRefusesWrongTypes(t *testing.T) {
	cases := []struct{ rule, body, words string }{
		{"only space", ` `, "empty"},
		{"null", `null`, "object"},
		{"array", `[]`, "object"},
		{"fraction", `{"ttl_ms":1.5}`, `"ttl_ms"`},
		{"integral fraction", `{"ttl_ms":5.0}`, `"ttl_ms"`},
		{"exponent", `{"ttl_ms":5e0}`, `"ttl_ms"`},
		{"capital exponent", `{"ttl_ms":5E0}`, `"ttl_ms"`},
		{"minus zero", `{"ttl_ms":-0}`, `"ttl_ms"`},
		{"negative", `{"cap_records":-1}`, `"cap_records"`},
		{"leading zero", `{"cap_records":01}`, `"cap_records"`},
		{"beyond u64", `{"cap_bytes":18446744073709551616}`, `"cap_bytes"`},
		{"far beyond u64", `{"cap_bytes":99999999999999999999999}`, `"cap_bytes"`},
		{"integer as string", `{"lease_ms":"100"}`, `"lease_ms"`},
		{"integer null", `{"max_deliveries":null}`, `"max_deliveries"`},
		{"priority beyond i32", `{"priority":2147483648}`, `"priority"`},
		{"priority below i32", `{"priority":-2147483649}`, `"priority"`},
		{"priority minus zero", `{"priority":-0}`, `"priority"`},
		{"priority fraction", `{"priority":-1.0}`, `"priority"`},
		{"priority far beyond", `{"priority":-18446744073709551615}`, `"priority"`},
		{"bool as number", `{"durable":1}`, `"durable"`},
		{"bool null", `{"durable":null}`, `"durable"`},
		{"unlisted type", `{"type":"Queue"}`, `"log" "queue"`},
		{"type null", `{"type":null}`, `"type"`},
		{"type of another type", `{"type":1}`, `"type"`},
		{"unlisted durability", `{"durability":""}`, `"durability"`},
		{"unlisted discard", `{"discard":"new"}`, `"old" "reject"`},
		{"discard null", `{"discard":null}`, `"discard"`},
		{"dead letter of another type", `{"dead_letter":5}`, `"dead_letter"`},
		{"a field twice", `{"ttl_ms":1,"ttl_ms":1}`, "twice"},
		{"a queue field twice", `{"lease_ms":100,"lease_ms":100}`, "twice"},
		{"trailing bytes", `{}{}`, "after the object"},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			_, err := DecodeConfig([]byte(c.body), nil)
			wantError(t, err, CodeInvalidRequest, c.words)
		})
	}
}

func TestDeadLetterNamesAnotherTopic(t *testing.T) {
	check := func(topic string, typ TopicType, dead string) error {
		return CheckConfig(topic, &Config{Type: typ, DeadLetter: dead, HasDeadLetter: true})
	}
	for _, name := range []string{"", "-x", "a b", "a/b", "a>b"} {
		detail := wantError(t, check("q", TypeLog, name), CodeInvalidRequest, "dead_letter")
		if detail["dead_letter"] != name {
			t.Errorf("%q: detail %v", name, detail)
		}
	}
	wantError(t, check("q", TypeQueue, "q"), CodeInvalidRequest, "itself")
	if err := check("q", TypeLog, "q"); err != nil {
		t.Errorf("a log may name itself: %v", err)
	}
	if err := check("q", TypeQueue, "q.dlq"); err != nil {
		t.Error(err)
	}
	if err := CheckConfig("q", &Config{}); err != nil {
		t.Error(err)
	}
	wantError(t, CheckTopicName("a>b"), CodeInvalidRequest, `"a>b"`)
	if err := CheckTopicName("a:b"); err != nil {
		t.Error(err)
	}
}
