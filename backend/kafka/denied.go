package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Operations of ACLs. READ and WRITE include DESCRIBE.
const (
	rightRead         = "READ"
	rightWrite        = "WRITE"
	rightCreate       = "CREATE"
	rightDescribe     = "DESCRIBE (which READ and WRITE include)"
	rightReadConfigs  = "DESCRIBE_CONFIGS (which ALTER_CONFIGS includes)"
	rightWriteConfigs = "ALTER_CONFIGS"
)

// denial is a right that the user lacks.
type denial struct {
	text string
	err  error
}

func (d *denial) Error() string { return d.text }
func (d *denial) Unwrap() error { return d.err }

// onTopic names the right that a request for a topic needs, if that is why it failed.
func (b *Backend) onTopic(err error, right, topic string) error {
	if errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return b.denied(err, right, fmt.Sprintf("topic %q", topic))
	}
	return err
}

// onGroup names the right that a request for the group needs, if that is why it failed.
func (b *Backend) onGroup(err error, right string) error {
	if errors.Is(err, kerr.GroupAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return b.denied(err, right, fmt.Sprintf("group %q", b.set.group))
	}
	return err
}

// onTransaction names the right that a transaction needs, if that is why it failed.
func (b *Backend) onTransaction(err error, id string) error {
	if errors.Is(err, kerr.TransactionalIDAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return b.denied(err, rightWrite, fmt.Sprintf("transactional ID %q", id))
	}
	return err
}

// denied leaves an error alone that names a right already.
func (b *Backend) denied(err error, right, resource string) error {
	var known *denial
	if errors.As(err, &known) {
		return err
	}
	user := "the user"
	if b.set.login.User != "" {
		user = fmt.Sprintf("user %q", b.set.login.User)
	}
	return &denial{fmt.Sprintf("%s lacks %s on %s (Users in docs/KAFKA.md)", user, right, resource), err}
}
