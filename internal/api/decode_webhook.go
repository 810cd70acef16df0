package api

import (
	"fmt"
	"strings"
)

const (
	webhookTopic = 1 << iota
	webhookURL
	webhookSecret
	webhookConcurrency
	webhookRate
	webhookTimeout
	webhookHeaders
)

var webhookFields = []string{"topic", "url", "secret", "concurrency", "rate", "timeout_ms", "headers"}

// DecodeWebhook reads the body of PUT webhook, laid over the defaults. What it may be
// sent to is for the server to say.
func DecodeWebhook(body []byte, warn *Warnings) (WebhookConfig, error) {
	c := WebhookConfig{Concurrency: DefaultWebhookConcurrency, TimeoutMS: DefaultWebhookTimeoutMS}
	s := scanner{b: body, index: -1, warnings: warn}
	s.webhook(&c)
	if err := s.finish(); err != nil {
		return WebhookConfig{}, err
	}
	if !ValidTopicName(c.Topic) {
		return WebhookConfig{}, Errorf(CodeInvalidRequest, "field \"topic\" is not a topic name, which has %s", topicNameRule)
	}
	return c, nil
}

func (s *scanner) webhook(c *WebhookConfig) {
	var seen uint32
	s.body(webhookFields, func(name []byte) bool {
		switch string(name) {
		case "topic":
			if s.once(&seen, webhookTopic, "topic") {
				c.Topic = string(s.text("topic", acceptString))
			}
		case "url":
			if s.once(&seen, webhookURL, "url") {
				c.URL = string(s.text("url", acceptString))
			}
		case "secret":
			if s.once(&seen, webhookSecret, "secret") {
				c.Secret = s.webhookSecret()
			}
		case "headers":
			if s.once(&seen, webhookHeaders, "headers") {
				c.Headers = s.webhookHeaders()
			}
		default:
			return s.webhookNumber(name, &seen, c)
		}
		return true
	})
	if seen&webhookTopic == 0 {
		s.missing("topic", "the name of a queue")
	}
	if seen&webhookURL == 0 {
		s.missing("url", "the address that jobs are posted to")
	}
}

// webhookNumber reads the fields that are numbers; they are not clamped, since whoever
// asks for a limit must get it or be told.
func (s *scanner) webhookNumber(name []byte, seen *uint32, c *WebhookConfig) bool {
	for _, f := range [...]struct {
		name      string
		bit       uint32
		low, high uint64
		to        *int
	}{
		{"concurrency", webhookConcurrency, 1, MaxWebhookConcurrency, &c.Concurrency},
		{"rate", webhookRate, 0, MaxWebhookRate, &c.Rate},
		{"timeout_ms", webhookTimeout, MinWebhookTimeoutMS, MaxWebhookTimeoutMS, &c.TimeoutMS},
	} {
		if string(name) != f.name {
			continue
		}
		if s.once(seen, f.bit, f.name) {
			at := s.i
			n := s.uint(f.name, f.high)
			if s.err == nil && n < f.low {
				s.i = at
				s.wrong(f.name, fmt.Sprintf("an integer from %d to %d", f.low, f.high))
			}
			*f.to = int(n)
		}
		return true
	}
	return false
}

// webhookSecret reads a secret; no error repeats it.
func (s *scanner) webhookSecret() string {
	accepted := fmt.Sprintf("a string of %d to %d printable ASCII characters", MinWebhookSecretBytes, MaxWebhookSecretBytes)
	at := s.i
	secret := string(s.text("secret", accepted))
	strange := strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' })
	if n := len(secret); s.err == nil && (n < MinWebhookSecretBytes || n > MaxWebhookSecretBytes || strange) {
		s.i = at
		s.wrong("secret", accepted)
	}
	return secret
}

// webhookHeaders reads an object of header fields; the server checks their names.
func (s *scanner) webhookHeaders() map[string]string {
	accepted := fmt.Sprintf("an object of up to %d header fields with strings as values, together up to %d bytes", MaxWebhookHeaders, MaxWebhookHeaderBytes)
	if !s.open('{') {
		s.wrong("headers", accepted)
		return nil
	}
	all, size := make(map[string]string), 0
	for {
		member, ok := s.member()
		if !ok {
			return all
		}
		name := string(member)
		if _, twice := all[name]; twice && s.err == nil {
			s.wrong("headers", "an object that has each header field once")
		}
		value := string(s.text("headers", accepted))
		if size += len(name) + len(value); s.err == nil && (len(all) == MaxWebhookHeaders || size > MaxWebhookHeaderBytes) {
			s.wrong("headers", accepted)
		}
		if s.err != nil {
			return nil
		}
		all[name] = value
	}
}
