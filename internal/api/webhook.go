package api

import (
	"maps"
	"slices"
)

// Bounds of webhooks.
const (
	MaxWebhookConcurrency     = 64
	DefaultWebhookConcurrency = 4
	MaxWebhookDeliveries      = 1024 // the sum of all webhooks' concurrency
	MaxWebhookRate            = 10_000
	MinWebhookTimeoutMS       = 100
	MaxWebhookTimeoutMS       = 300_000
	DefaultWebhookTimeoutMS   = 10_000
	MaxWebhookURLBytes        = 2048
	MaxWebhookHeaders         = 16
	MaxWebhookHeaderBytes     = 4096 // of all names and values together
	MinWebhookSecretBytes     = 16
	MaxWebhookSecretBytes     = 256
)

// WebhookConfig is a push subscription of a queue, every field resolved.
type WebhookConfig struct {
	Topic       string
	URL         string
	Secret      string            // empty in a request: keep it, or make one
	Concurrency int               // deliveries at once
	Rate        int               // deliveries begun per second; 0: no limit
	TimeoutMS   int               // of one delivery
	Headers     map[string]string // sent with each delivery; the values are secret, too
}

// WebhookState is a webhook and what its deliveries have come to since the server
// started.
type WebhookState struct {
	Webhook    string
	Config     WebhookConfig
	On         bool // it delivers; false: webhooks are switched off
	Failing    bool // its deliveries fail, or no jobs can be taken for it
	InFlight   int
	Deliveries uint64 // answered with 2xx
	Failures   uint64
	LastStatus int    // of the last delivery; 0: there was no answer, or no delivery
	LastError  string // of the last failure; empty once a delivery has succeeded since
	LastTS     int64  // end of the last delivery, Unix ms; 0: none
}

// WebhookList is one page of webhooks.
type WebhookList struct {
	Webhooks []WebhookState
	More     bool   // more names follow Last
	Last     string // the last name looked at
}

// WebhookNotFound is the answer for an absent webhook; its advice depends on whether a
// webhook can have that name.
func WebhookNotFound(name string) *Error {
	if !ValidTopicName(name) {
		return Errorf(CodeNotFound, "no webhook can be named %.300q; the name of one has %s", name, topicNameRule).With("webhook", name[:min(len(name), MaxNameBytes)])
	}
	return Errorf(CodeNotFound, "webhook %q does not exist; create it with PUT", name).With("webhook", name)
}

// CheckWebhookName checks the name of a webhook to be created.
func CheckWebhookName(name string) error {
	if !ValidTopicName(name) {
		return Errorf(CodeInvalidRequest, "%.300q is not the name of a webhook, which has %s", name, topicNameRule)
	}
	return nil
}

// AppendPutWebhook appends the answer to PUT webhook. secret is empty unless the server
// has made it: it is shown this once.
func AppendPutWebhook(dst []byte, w *WebhookState, created bool, secret string) []byte {
	dst = appendWebhookConfig(dst, w)
	dst = appendNamedBool(dst, "created", created)
	if secret != "" {
		dst = append(dst, `,"secret":`...)
		dst = AppendString(dst, secret)
	}
	return append(dst, '}')
}

// AppendWebhookState appends the answer to GET webhook.
func AppendWebhookState(dst []byte, w *WebhookState) []byte {
	return append(appendWebhookState(dst, w), '}')
}

// AppendWebhookList appends one page of the list.
func AppendWebhookList(dst []byte, l *WebhookList) []byte {
	dst = append(dst, `{"webhooks":[`...)
	for i := range l.Webhooks {
		dst = append(appendWebhookState(appendComma(dst), &l.Webhooks[i]), '}')
	}
	dst = append(dst, ']')
	if l.More {
		dst = append(dst, `,"next_cursor":"`...)
		dst = append(dst, EncodeCursor(l.Last)...)
		dst = append(dst, '"')
	}
	return append(dst, '}')
}

// AppendDeleteWebhook appends the answer to DELETE webhook.
func AppendDeleteWebhook(dst []byte, name string, deleted bool) []byte {
	dst = AppendString(append(dst, `{"webhook":`...), name)
	dst = appendNamedBool(dst, "deleted", deleted)
	return append(dst, '}')
}

// appendWebhookConfig appends what was set, but no secret: of the headers the names alone.
func appendWebhookConfig(dst []byte, w *WebhookState) []byte {
	c := &w.Config
	dst = AppendString(append(dst, `{"webhook":`...), w.Webhook)
	dst = AppendString(append(dst, `,"topic":`...), c.Topic)
	dst = AppendString(append(dst, `,"url":`...), c.URL)
	dst = appendNamed(dst, "concurrency", uint64(c.Concurrency))
	dst = appendNamed(dst, "rate", uint64(c.Rate))
	dst = appendNamed(dst, "timeout_ms", uint64(c.TimeoutMS))
	dst = append(dst, `,"headers":[`...)
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		dst = AppendString(appendComma(dst), name)
	}
	return append(dst, ']')
}

func appendWebhookState(dst []byte, w *WebhookState) []byte {
	dst = appendWebhookConfig(dst, w)
	dst = append(dst, `,"state":"`...)
	switch {
	case !w.On:
		dst = append(dst, "off"...)
	case w.Failing:
		dst = append(dst, "failing"...)
	default:
		dst = append(dst, "delivering"...)
	}
	dst = append(dst, '"')
	dst = appendNamed(dst, "in_flight", uint64(w.InFlight))
	dst = appendNamed(dst, "deliveries", w.Deliveries)
	dst = appendNamed(dst, "failures", w.Failures)
	dst = appendNamed(dst, "last_status", uint64(w.LastStatus))
	dst = AppendString(append(dst, `,"last_error":`...), w.LastError)
	return appendNamed(dst, "last_ts", uint64(w.LastTS))
}
