package kafka

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirmq/weir/internal/address"
	"github.com/weirmq/weir/internal/kafkalogin"
	"github.com/weirmq/weir/internal/patient"
)

const (
	defaultGroup = "weir"
	defaultPort  = "9092"

	defaultClientID = "weir"
	defaultMemory   = 32 << 20
	inFlight        = "5"
	maxPartitions   = 10_000
)

// known are the query keys of a kafka URL.
var known = []string{
	"topic", "group", "partitions", "replication", "retention", "client_id", "sasl", "ca", "cert", "key", "buffer_memory", "max_in_flight", "group_type", "start", "create",
}

// settings is what a URL says.
type settings struct {
	addrs       []string
	topic       string
	group       string
	groupType   string        // groupShare, groupClassic or empty: what the brokers offer
	start       string        // startNew, or startFirst or empty: where a new group begins
	create      string        // createNever or empty
	partitions  int32         // of a topic that is missing; 0: it is not created
	replication int16         // of topics that are created; -1: the broker's default
	retention   time.Duration // of a topic that is missing; 0: the broker's default
	clientID    string
	login       kafkalogin.Login
	memory      int          // bytes that may wait to be sent
	tls         *tls.Config  // nil: without TLS
	tlsGiven    bool         // by the program, whatever the URL says
	dial        patient.Dial // as the URL and the program say; nil: not known yet
}

func (s *settings) deadLetter() string { return s.topic + ".dlq" }
func (s *settings) ledger() string     { return s.topic + ".weir" }
func (s *settings) server() string     { return strings.Join(s.addrs, ",") }

// parse reads a URL and the files of certificates that it names. Its errors never contain a
// user name or password.
func parse(u *url.URL) (settings, error) {
	s := settings{replication: -1}
	if u == nil {
		return s, address.ErrNil
	}
	if u.Scheme != "kafka" && u.Scheme != "kafkas" {
		return s, fmt.Errorf("scheme %q is not kafka or kafkas", u.Scheme)
	}
	if strings.Contains(u.EscapedPath()+u.RawQuery+u.EscapedFragment(), "@") {
		// A password with a / ? or # ends up there, so the error must not quote it.
		return s, errors.New("there is an @ after the host; special characters in a user name or password need percent-encoding")
	}
	if u.Fragment != "" {
		return s, errors.New("there is a # in it, and nothing behind that would count; write %23")
	}
	query, err := address.Query(u.RawQuery, known)
	if err != nil {
		return s, err
	}
	if s.addrs, err = address.Hosts(u.Host, defaultPort); err != nil {
		return s, err
	}
	path := strings.Trim(u.Path, "/")
	if path != "" && query["topic"] != "" && path != query["topic"] {
		return s, fmt.Errorf("the URL names two topics, %q and %q; give one", path, query["topic"])
	}
	s.topic, s.group = cmp.Or(path, query["topic"]), cmp.Or(query["group"], defaultGroup)
	if s.topic == "" {
		return s, errors.New("the URL names no topic; write kafka://host:9092/TOPIC")
	}
	if err := checkTopic(s.topic); err != nil {
		return s, err
	}
	if len(s.group) > 249 || !utf8.ValidString(s.group) || strings.ContainsFunc(s.group, func(r rune) bool { return r < ' ' }) {
		return s, errors.New("group may have at most 249 bytes of UTF-8, and no control characters")
	}
	switch s.groupType = query["group_type"]; s.groupType {
	case "", groupShare, groupClassic:
	default:
		return s, fmt.Errorf("group_type %q is neither %s nor %s; leave it out to get what the brokers offer", s.groupType, groupShare, groupClassic)
	}
	switch s.start = query["start"]; s.start {
	case "", startFirst, startNew:
	default:
		return s, fmt.Errorf("start %q is neither %s, the first record, nor %s, what is published from now on", s.start, startFirst, startNew)
	}
	switch s.create = query["create"]; s.create {
	case "", createNever:
	default:
		return s, fmt.Errorf("create %q is not %s; leave it out to have the first claim create the group", s.create, createNever)
	}
	partitions, err := parseCount(query, "partitions", 0, maxPartitions)
	if err != nil {
		return s, err
	}
	replication, err := parseCount(query, "replication", -1, maxPartitions)
	if err != nil {
		return s, err
	}
	if s.retention, err = parseRetention(query["retention"]); err != nil {
		return s, err
	}
	if s.retention > 0 && partitions == 0 {
		return s, errors.New("retention is that of a topic that weir creates, which takes partitions=N, too")
	}
	s.partitions, s.replication = int32(partitions), int16(replication)
	if s.memory, err = parseCount(query, "buffer_memory", defaultMemory, 1<<50); err != nil {
		return s, err
	}
	if n := query["max_in_flight"]; n != "" && n != inFlight {
		return s, fmt.Errorf("max_in_flight (KAFKA_MAX_IN_FLIGHT_REQUESTS) %q: up to %s appends are in flight on a connection, which changes no order because they are idempotent; leave it out", n, inFlight)
	}
	s.clientID = cmp.Or(query["client_id"], defaultClientID)
	if s.login, err = kafkalogin.Parse(u.User, query["sasl"], u.Scheme == "kafkas"); err != nil {
		return s, err
	}
	s.tls, err = address.TLS(u.Scheme, "kafkas", query)
	return s, err
}

func parseCount(query map[string]string, key string, absent, most int) (int, error) {
	text, given := query[key]
	if !given {
		return absent, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s %q is not a number from 1 to %d", key, text, most)
	}
	return n, nil
}

var topicName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,240}$`) // room for ".dlq" and ".weir"

func checkTopic(name string) error {
	if !topicName.MatchString(name) || name == "." || name == ".." {
		return fmt.Errorf("topic %q: a name has 1 to 240 of the characters A-Z a-z 0-9 . _ -", name)
	}
	return nil
}
