package kafka_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/link"
)

// secureURL is a topic of a secure broker by one of its listeners. A user of "" is nobody.
func secureURL(s *kafkatest.Secure, listener, user, password, query string) string {
	u := url.URL{Scheme: "kafkas", Host: s.Listener(listener), Path: "/jobs", RawQuery: "partitions=1" + query}
	if user != "" {
		u.User = url.UserPassword(user, password)
	}
	return u.String()
}

// plainURL is a URL without TLS.
func plainURL(secure string) string { return strings.Replace(secure, "kafkas://", "kafka://", 1) }

func TestTLSAndSASL(t *testing.T) {
	t.Parallel()
	s := kafkatest.StartSecure(t, kafkatest.Options{}, "worker")
	ca := "&ca=" + url.QueryEscape(s.CA)
	pair := "&cert=" + url.QueryEscape(s.Cert) + "&key=" + url.QueryEscape(s.Key)
	const pass = kafkatest.Password
	for name, raw := range map[string]string{
		"TLS":                          secureURL(s, kafkatest.TLS, "", "", ca),
		"a client certificate":         secureURL(s, kafkatest.MutualTLS, "", "", ca+pair),
		"TLS, the strongest mechanism": secureURL(s, kafkatest.SASL, "admin", pass, ca),
		"TLS, PLAIN":                   secureURL(s, kafkatest.SASL, "admin", pass, ca+"&sasl=plain"),
		"TLS, SCRAM-SHA-256":           secureURL(s, kafkatest.SASL, "admin", pass, ca+"&sasl=scram-sha-256&client_id=mailer"),
		"SCRAM-SHA-512":                plainURL(secureURL(s, kafkatest.PlainSASL, "admin", pass, "&sasl=scram-sha-512")),
		"PLAIN":                        plainURL(secureURL(s, kafkatest.PlainSASL, "admin", pass, "&sasl=plain")),
		"by name":                      strings.Replace(secureURL(s, kafkatest.SASL, "admin", pass, ca), "127.0.0.1", "localhost", 1),
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, raw)
			defer b.Close()
			if _, err := b.Append(t.Context(), messages(name)); err != nil {
				t.Fatal(err)
			}
			got := gather(t, b, 1)
			if lost, err := b.Ack(t.Context(), []backend.Lease{got[0].Lease}); err != nil || len(lost) > 0 || string(got[0].Data) != name {
				t.Errorf("%q, lost %v, %v", got[0].Data, lost, err)
			}
		})
	}
	t.Run("options of the program", func(t *testing.T) {
		authorities := x509.NewCertPool()
		text, err := os.ReadFile(s.CA)
		if err != nil || !authorities.AppendCertsFromPEM(text) {
			t.Fatal("no authority", err)
		}
		u, err := url.Parse("kafka://" + s.Listener(kafkatest.SASL) + "/jobs?partitions=1")
		if err != nil {
			t.Fatal(err)
		}
		seen := &hook{}
		b, err := kafka.Open(t.Context(), u, kgo.SASL(plain.Auth{User: kafkatest.Admin, Pass: pass}.AsMechanism()),
			kgo.DialTLSConfig(&tls.Config{RootCAs: authorities}), kgo.WithHooks(seen), kgo.RequiredAcks(kgo.NoAck()))
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if got, err := b.Append(t.Context(), messages("x")); err != nil || got[0].ID == "" {
			t.Errorf("%+v, %v", got, err)
		}
		if seen.connects.Load() == 0 {
			t.Error("the hook has seen no connection")
		}
		far := link.NewProxy(t, s.Listener(kafkatest.TLS))
		far.Set(link.Fault{Latency: 200 * time.Millisecond})
		for addr, c := range map[string]struct {
			within time.Duration
			want   string
		}{
			far.Addr(): {300 * time.Millisecond, "no answer in time"},
			s.Addr():   {30 * time.Second, "does not speak TLS, which the program's kgo.DialTLSConfig asks for"},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), c.within)
			defer cancel()
			_, err := kafka.Open(ctx, parsed(t, "kafka://"+addr+"/jobs"), kgo.DialTLSConfig(&tls.Config{RootCAs: authorities}))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond) // the handshake takes 400 ms of it
		defer cancel()
		own := tls.Dialer{Config: &tls.Config{RootCAs: authorities}}
		_, err = kafka.Open(ctx, parsed(t, "kafka://"+far.Addr()+"/jobs"), kgo.Dialer(own.DialContext))
		if err == nil || !strings.Contains(err.Error(), "no answer in time") {
			t.Errorf("a dialer of its own that does TLS: %v", err)
		}
	})
	t.Run("misfits", func(t *testing.T) { misfits(t, s, ca, pair) })
}

func parsed(t testing.TB, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// hook counts connections.
type hook struct{ connects atomic.Int64 }

func (h *hook) OnBrokerConnect(kgo.BrokerMetadata, time.Duration, net.Conn, error) { h.connects.Add(1) }

// TestOptionsThatContradictWeirAreRefused: they are named, with the reason.
func TestOptionsThatContradictWeirAreRefused(t *testing.T) {
	u, err := url.Parse("kafka://127.0.0.1:1/jobs")
	if err != nil {
		t.Fatal(err)
	}
	for want, opts := range map[string][]kgo.Opt{
		"kgo.DisableIdempotentWrite cannot be used: appends have to be idempotent": {kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(2)},
		"kgo.AllowIdempotentProduceCancellation cannot be used":                    {kgo.AllowIdempotentProduceCancellation()},
		"kgo.TransactionalID cannot be used":                                       {kgo.TransactionalID("t")},
		"kgo.ManualFlushing cannot be used":                                        {kgo.ManualFlushing()},
		"kgo.AllowAutoTopicCreation cannot be used":                                {kgo.AllowAutoTopicCreation()},
		"kgo.ConsumeTopics cannot be used: weir reads for itself":                  {kgo.ConsumeTopics("t")},
		"kgo.ConsumePartitions cannot be used":                                     {kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset()}})},
		"kgo.ConsumerGroup cannot be used: the URL names the group":                {kgo.ConsumerGroup("g"), kgo.ConsumeTopics()},
		"kgo.ShareGroup cannot be used: the URL names the group":                   {kgo.ShareGroup("g")},
		"options: invalid usage of MaxProduceRequestsInflightPerBroker":            {kgo.MaxProduceRequestsInflightPerBroker(7)},
	} {
		b, err := kafka.Open(t.Context(), u, opts...)
		if err == nil {
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || backend.Retryable(err) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// misfits opens URLs that do not fit the broker: each is one sentence that says what to mend,
// at once, and nobody is told to try again.
func misfits(t *testing.T, s *kafkatest.Secure, ca, pair string) {
	const pass = kafkatest.Password
	stranger := "&ca=" + url.QueryEscape(s.Stranger)
	plain := "127.0.0.1" + s.Addr()[strings.LastIndex(s.Addr(), ":"):]
	far := link.NewProxy(t, s.Listener(kafkatest.TLS))
	far.Set(link.Fault{Latency: 200 * time.Millisecond})
	for raw, want := range map[string]string{
		secureURL(s, kafkatest.TLS, "", "", stranger):                                               "authority that is not trusted; name the authority's PEM file with ca=",
		secureURL(s, kafkatest.TLS, "", "", ""):                                                     "authority that is not trusted; name the authority's PEM file with ca=",
		secureURL(s, kafkatest.OtherName, "", "", ca):                                               "for another name; use a name that it holds: x509: cannot validate certificate for 127.0.0.1",
		strings.Replace(secureURL(s, kafkatest.OtherName, "", "", ca), "127.0.0.1", "localhost", 1): "valid for kafka.example, not localhost",
		secureURL(s, kafkatest.MutualTLS, "", "", ca):                                               "wants a client certificate; name its PEM files with cert= and key=",
		plainURL(secureURL(s, kafkatest.TLS, "", "", "")):                                           "scheme kafka: " + s.Listener(kafkatest.TLS) + " speaks TLS; use kafkas://",
		"kafka://" + far.Addr() + "/jobs":                                                           "speaks TLS; use kafkas://",
		plainURL(secureURL(s, kafkatest.SASL, "admin", pass, "")):                                   "speaks TLS; use kafkas://",
		"kafkas://" + plain + "/jobs":                                                               "scheme kafkas: " + plain + " does not speak TLS; use kafka://",
		"kafkas://admin:x@" + s.Listener(kafkatest.PlainSASL) + "/jobs":                             "does not speak TLS; use kafka://",
		secureURL(s, kafkatest.SASL, "admin", "pw-secret", ca):                                      "does not accept the user and password (SASL SCRAM-SHA-512, SCRAM-SHA-256, PLAIN)",
		secureURL(s, kafkatest.SASL, "nobody", "pw-secret", ca+"&sasl=scram-sha-256"):               "does not accept the user and password (SASL SCRAM-SHA-256)",
		secureURL(s, kafkatest.SASL, "admin", "pw-secret", ca+"&sasl=plain"):                        "does not accept the user and password (SASL PLAIN)",
		secureURL(s, kafkatest.SASL, "", "", ca):                                                    "wants a user and a password; write USER:PASSWORD@ in front of the host",
		plainURL(secureURL(s, kafkatest.PlainSASL, "", "", "")):                                     "wants a user and a password",
		secureURL(s, kafkatest.TLS, "admin", pass, ca):                                              "takes no user and password on this port; leave them out",
		"kafka://admin:pw-secret@" + plain + "/jobs":                                                "takes no user and password on this port; leave them out",
		"kafka://admin@h/jobs":                                                                      "set KAFKA_PASSWORD",
		"kafka://:pw-secret@h/jobs":                                                                 "set KAFKA_USER",
		"kafka://h/jobs?sasl=plain":                                                                 "sasl: there is no user",
		"kafka://u:pw-secret@h/jobs?sasl=gssapi":                                                    `sasl "gssapi" is unknown; known: plain, scram-sha-256, scram-sha-512`,
		"kafka://h/jobs?ca=x":                                                                       "ca is for TLS; use kafkas://",
		"kafkas://h/jobs?ca=/not/there":                                                             "ca: open /not/there",
		"kafkas://h/jobs?ca=" + url.QueryEscape(s.Key):                                              "holds no certificate",
		"kafkas://h/jobs?cert=x":                                                                    "cert and key belong together",
		"kafkas://h/jobs?cert=/a&key=/b":                                                            "cert, key: open /a",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		watch := stopwatch()
		b, err := kafka.Open(ctx, u)
		cancel()
		took := watch()
		if err == nil {
			b.Close()
		}
		switch {
		case err == nil, !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v; want %q", raw, err, want)
		case backend.Retryable(err) || took > 2*time.Second || len(err.Error()) > 400 ||
			strings.Contains(err.Error(), "pw-secret") || strings.Contains(err.Error(), pass):
			t.Errorf("%s: %v after %s", raw, err, took)
		}
	}
}
