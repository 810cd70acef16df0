package api

import (
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// WriteParameters are the query parameters of a write whose body is no JSON object: what
// the object says there.
var WriteParameters = []string{"return_seqs", "tag", "node", "priority", "fair_key", "delay_ms", "idempotency_key", "create",
	"type", "durability", "disable_backpressure"}

// WriteOptions is what query parameters say about all records of a write. The zero value
// says nothing.
type WriteOptions struct {
	record  Record
	key     []byte
	create  *bool
	config  *Config
	patient bool
}

// DecodeWriteOptions reads the query of such a write. An empty value counts as absent.
func DecodeWriteOptions(query url.Values) (o WriteOptions, err error) {
	p := parameters{query: query}
	if v := p.text("tag"); v != nil {
		o.record.Tag, o.record.HasTag = v, true
	}
	if v := p.text("node"); v != nil {
		o.record.Node, o.record.HasNode = v, true
	}
	o.record.FairKey = p.text("fair_key")
	if v := query.Get("priority"); v != "" {
		var ok bool
		if o.record.Tier, ok = ParseTier(v); !ok {
			p.wrong("priority", v, "one of "+strings.Join(tierNames[:], ", "))
		}
	}
	if v := query.Get("delay_ms"); v != "" {
		var err error
		if o.record.Delay, err = strconv.ParseUint(v, 10, 64); err != nil || o.record.Delay > MaxDelayMS {
			p.wrong("delay_ms", v, "a whole number from 0 to "+strconv.Itoa(MaxDelayMS))
		}
	}
	o.key = p.text("idempotency_key")
	if v, ok := p.bool("create"); ok {
		o.create = &v
	}
	o.patient, _ = p.bool("disable_backpressure")
	p.config(&o)
	if p.err != nil {
		return o, p.err
	}
	return o, nil
}

// Apply says for all records of w what o says.
func (o *WriteOptions) Apply(w *WriteRequest) {
	for i := range w.Records {
		r := &w.Records[i]
		r.Tag, r.HasTag = o.record.Tag, o.record.HasTag
		r.Node, r.HasNode = o.record.Node, o.record.HasNode
		r.FairKey, r.Tier, r.Delay = o.record.FairKey, o.record.Tier, o.record.Delay
	}
	w.Node = o.record.Node
	if o.key != nil {
		w.IdempotencyKey, w.HasIdempotencyKey = o.key, true
	}
	w.Create, w.DisableBackpressure = o.create, o.patient
	if o.config != nil {
		w.config = *o.config
		w.Config = &w.config
	}
}

// parameters reads a query up to its first mistake.
type parameters struct {
	query url.Values
	err   *Error
}

func (p *parameters) wrong(name, value, accepted string) {
	if p.err == nil {
		p.err = Errorf(CodeInvalidRequest, "query parameter %s is %.100q; use %s", name, value, accepted)
	}
}

// text returns the value of a parameter, nil if it is absent.
func (p *parameters) text(name string) []byte {
	v := p.query.Get(name)
	if v == "" {
		return nil
	}
	if !utf8.ValidString(v) {
		p.wrong(name, v, "UTF-8")
	}
	return []byte(v)
}

func (p *parameters) bool(name string) (value, ok bool) {
	switch v := p.query.Get(name); v {
	case "":
		return false, false
	case "true", "1":
		return true, true
	case "false", "0":
		return false, true
	default:
		p.wrong(name, v, "true, 1, false or 0")
		return false, false
	}
}

// config reads how a topic that is not there is created.
func (p *parameters) config(o *WriteOptions) {
	kind, class := p.query.Get("type"), p.query.Get("durability")
	if kind == "" && class == "" {
		return
	}
	c := DefaultConfig()
	switch kind {
	case "", TypeLog.String():
	case TypeQueue.String():
		c.Type = TypeQueue
	default:
		p.wrong("type", kind, "log or queue")
	}
	if class != "" {
		var ok bool
		if c.Durability, ok = ParseDurability(class); !ok {
			p.wrong("durability", class, "one of "+strings.Join(durabilityNames[:], ", "))
		}
	}
	o.config = &c
}
