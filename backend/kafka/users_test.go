package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/kafkatest"
)

// right is a row of the table of users in docs/KAFKA.md.
type right struct{ user, resource, name, operation, without string }

// rightsOfThePage reads the table.
func rightsOfThePage(t *testing.T) (all []right) {
	t.Helper()
	page, err := os.ReadFile("../../docs/KAFKA.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| (\\w+) \\| (topic|group|share group|transactional ID) `([A-Za-z.-]+)` \\| ([A-Z_]+) \\| (.+) \\|$")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		all = append(all, right{m[1], m[2], m[3], m[4], m[5]})
	}
	if len(all) < 15 {
		t.Fatalf("docs/KAFKA.md has %d rows of rights", len(all))
	}
	return all
}

// stage is a user's topic and group on a broker with users.
type stage struct {
	*testing.T
	broker *kafkatest.Secure
	client *kgo.Client
	admin  *kadm.Client
	kind   string // of the group
	role   string
	user   string
	name   string // of the topic and the group
	// without is the right that the user does not get; nil: it gets all of them.
	without *right
}

func (s *stage) of(name string) string {
	return strings.NewReplacer("TOPIC", s.name, "GROUP", s.name).Replace(name)
}

// url is the stream for a user, "" for one who may do everything.
func (s *stage) url(user string) string {
	u := url.URL{Scheme: "kafka", Host: s.broker.Addr(), Path: "/" + s.name, RawQuery: "group=" + s.name + "&group_type=" + s.kind}
	if user == "" {
		u.RawQuery += "&partitions=1"
	} else {
		u.Host, u.User = s.broker.Listener(kafkatest.PlainSASL), url.UserPassword(user, kafkatest.Password)
	}
	return u.String()
}

// grant gives the user the rights of its role.
func (s *stage) grant(rights []right) {
	s.Helper()
	for _, r := range rights {
		switch {
		case r.user != s.role, s.without != nil && r == *s.without, s.kind != "share" && r.resource == "share group",
			s.without == beforehand && r.operation == "CREATE":
			continue
		case s.without == beforehand && r.operation == "ALTER_CONFIGS":
			r.operation = "DESCRIBE_CONFIGS"
		}
		acl := kadm.NewACLs().Allow("User:" + s.user).AllowHosts("*").Operations(operations[r.operation]).ResourcePatternType(kadm.ACLPatternLiteral)
		switch r.resource {
		case "topic":
			acl = acl.Topics(s.of(r.name))
		case "transactional ID":
			acl = acl.TransactionalIDs(s.of(r.name))
		default:
			acl = acl.Groups(s.of(r.name))
		}
		made, err := s.admin.CreateACLs(s.Context(), acl)
		if err != nil || made[0].Err != nil {
			s.Errorf("%+v: %v, %v", r, err, made)
		}
	}
}

var operations = map[string]kadm.ACLOperation{
	"READ": kadm.OpRead, "WRITE": kadm.OpWrite, "CREATE": kadm.OpCreate, "DESCRIBE": kadm.OpDescribe, "ALTER_CONFIGS": kadm.OpAlterConfigs,
	"DESCRIBE_CONFIGS": kadm.OpDescribeConfigs,
}

// prepare makes the topic, with messages, and as many dead letters.
func (s *stage) prepare(letters int) {
	s.Helper()
	b, err := kafka.Open(s.Context(), parsed(s, s.url("")))
	if err != nil {
		s.Error(err)
		return
	}
	defer b.Close()
	if _, err := b.Append(s.Context(), make([]backend.Message, 10+letters)); err != nil {
		s.Error(err)
	}
	for letters > 0 {
		got, err := b.Claim(s.Context(), claim(letters))
		if err != nil {
			s.Error(err)
			return
		}
		for _, d := range got.Deliveries {
			letters--
			if err := b.DeadLetter(s.Context(), d, "", backend.Cause{Reason: backend.ReasonMaxDeliveries}); err != nil {
				s.Error(err)
			}
		}
	}
}

// do is the job of the role, and what it says about dead letters or room.
func (s *stage) do() (letters *int64, err error) {
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	b, err := kafka.Open(ctx, parsed(s, s.url(s.user)))
	if err != nil {
		return nil, err
	}
	defer b.Close()
	switch s.role {
	case "producer":
		if _, err = b.Append(ctx, messages("x")); err == nil {
			letters, err = shares(ctx, b)
		}
	case "worker":
		err = works(ctx, b)
	case "observer":
		var stats backend.Stats
		if stats, err = b.Stats(ctx); err == nil {
			_, err = b.Examine(ctx)
		}
		letters = stats.DeadLetters
	case "operator":
		var list []backend.DeadLetter
		switch list, err = b.List(ctx, "", "", 2); {
		case err != nil:
		case len(list) < 2:
			err = fmt.Errorf("%d letters", len(list))
		default:
			_, purged := b.Purge(ctx, "", []string{list[1].ID})
			err = errors.Join(b.Redrive(ctx, "", list[0]), purged)
		}
	}
	return letters, err
}

// shares is what a producer's guard does; nil: it cannot share the room.
func shares(ctx context.Context, b *kafka.Backend) (*int64, error) {
	_, room, err := b.Share(ctx, backend.RoomRequest{Limit: 1000, Pause: -1, Need: 1, Want: 1, Lifetime: time.Second})
	if room.Err != nil {
		return nil, err
	}
	return &room.Given, err
}

// works is the job of a worker.
func works(ctx context.Context, b *kafka.Backend) error {
	var got []*backend.Delivery
	for len(got) < 2 {
		claimed, err := b.Claim(ctx, claim(2))
		if err != nil {
			return err
		}
		got = append(got, claimed.Deliveries...)
	}
	if _, err := b.Ack(ctx, []backend.Lease{got[0].Lease}); err != nil {
		return err
	}
	err := b.DeadLetter(ctx, got[1], "", backend.Cause{Reason: backend.ReasonMaxDeliveries})
	return errors.Join(err, b.PublishSignal(ctx, time.Second))
}

// Each user can do what it is for with exactly the rights of the page. Taking any of them away
// gives an error that names it, or what the page says.
func TestTheUsersOfThePageMayDoWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	rights := rightsOfThePage(t)
	stages := []*stage{{kind: "share", role: "worker", without: beforehand}}
	for _, kind := range []string{"share", "classic"} {
		for _, role := range []string{"producer", "worker", "observer", "operator"} {
			stages = append(stages, &stage{kind: kind, role: role})
		}
		for i := range rights {
			if r := &rights[i]; kind == "share" || r.resource == "group" || r.user == "worker" && r.name == "TOPIC" { // the rest does not depend on the kind
				stages = append(stages, &stage{kind: kind, role: r.user, without: r})
			}
		}
	}
	users := make([]string, len(stages))
	for i, s := range stages {
		users[i] = fmt.Sprintf("%s%d", s.role, i)
		s.user, s.name = users[i], s.kind+"-"+users[i]
		if s.role == "observer" || s.role == "operator" {
			s.name = s.kind + "-" + s.role // these can share
		}
	}
	broker := kafkatest.StartSecure(t, kafkatest.Options{}, users...)
	client := broker.Client()
	prepared := map[string]func(){}
	for _, s := range stages {
		s.T, s.broker, s.client, s.admin = t, broker, client, kadm.NewClient(client)
		letters := map[string]int{"observer": 1, "operator": 200}[s.role]
		if prepared[s.name] == nil {
			prepared[s.name] = sync.OnceFunc(func() { s.prepare(letters) })
		}
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, s := range stages {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			prepared[s.name]()
			s.grant(rights)
			if s.without == beforehand {
				s.setUp()
			}
			s.check()
		})
	}
	all.Wait()
}

// beforehand stands for all that an administrator can do in advance.
var beforehand = &right{name: "beforehand"}

// setUp does it, as the page says.
func (s *stage) setUp() {
	s.Helper()
	compact, ledger := map[string]string{"cleanup.policy": "compact"}, map[string]string{
		"cleanup.policy": "compact,delete", "retention.ms": "86400000", "segment.bytes": "1048576", "message.timestamp.type": "LogAppendTime",
		"min.compaction.lag.ms": "60000",
	}
	for topic, configs := range map[string]map[string]string{s.name + ".dlq": compact, s.name + ".weir": ledger} {
		set := map[string]*string{}
		for key, value := range configs {
			set[key] = &value
		}
		if _, err := s.admin.CreateTopic(s.Context(), 1, 1, set, topic); err != nil {
			s.Error(err)
		}
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, s.name
	for name, value := range map[string]string{"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10", "share.isolation.level": "read_committed"} {
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Name, config.Value = name, &value
		resource.Configs = append(resource.Configs, config)
	}
	req.Resources = append(req.Resources, resource)
	if resp, err := req.RequestWith(s.Context(), s.client); err != nil || resp.Resources[0].ErrorCode != 0 {
		s.Error(err, resp)
	}
}

// check repeats the job until its result is the right one: rights reach a broker a moment
// after they were granted.
func (s *stage) check() {
	s.Helper()
	deadline := time.Now().Add(time.Minute)
	for try := 1; ; try++ {
		letters, err := s.do()
		switch w := s.without; {
		case w == nil || !strings.HasPrefix(w.without, "an error"):
			if err == nil && (w == nil || letters == nil) {
				return
			}
		case errors.Is(err, backend.ErrForbidden) && !backend.Retryable(err) && strings.Contains(err.Error(), fmt.Sprintf("user %q lacks", s.user)) &&
			strings.Contains(err.Error(), w.operation) && strings.Contains(err.Error(), fmt.Sprintf("%q", s.of(w.name))):
			return
		}
		if time.Now().After(deadline) {
			s.Errorf("%s group, %s, without %+v, try %d: %v, letters %v", s.kind, s.user, s.without, try, err, letters)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
