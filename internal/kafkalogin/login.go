// Package kafkalogin reads from a kafka URL who its client is and how it connects: USER:PASSWORD@,
// sasl=, ca=, cert=, key=. No error contains a user name or a password.
package kafkalogin

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Mechanisms of SASL, as sasl= names them.
const (
	Plain  = "plain"
	SHA256 = "scram-sha-256"
	SHA512 = "scram-sha-512"
)

// Keys are the keys of a URL's query that this package reads.
var Keys = []string{"sasl", "ca", "cert", "key"}

// Login is who the client says it is. Its zero value is nobody.
type Login struct {
	User, Password string
	Mechanisms     []string // to be tried, the first one that the broker offers counts
}

// Parse reads the user of a URL. Without sasl= the strongest mechanism that the broker
// offers is used; PLAIN sends the password as it is, so without TLS it has to be asked for.
func Parse(u *url.Userinfo, mechanism string, secure bool) (Login, error) {
	if u == nil {
		if mechanism != "" {
			return Login{}, errors.New("sasl: there is no user; write USER:PASSWORD@ in front of the host, or set KAFKA_USER and KAFKA_PASSWORD")
		}
		return Login{}, nil
	}
	l := Login{User: u.Username(), Mechanisms: []string{SHA512, SHA256}}
	l.Password, _ = u.Password()
	switch {
	case l.User == "":
		return Login{}, errors.New("there is a password and no user name; write USER:PASSWORD@ in front of the host, or set KAFKA_USER")
	case l.Password == "":
		return Login{}, errors.New("there is a user name and no password; write USER:PASSWORD@ in front of the host, or set KAFKA_PASSWORD")
	case secure:
		l.Mechanisms = append(l.Mechanisms, Plain)
	}
	if mechanism != "" {
		l.Mechanisms = []string{mechanism}
	}
	if all := []string{Plain, SHA256, SHA512}; mechanism != "" && !slices.Contains(all, mechanism) {
		return Login{}, fmt.Errorf("sasl %q is unknown; known: %s", mechanism, strings.Join(all, ", "))
	}
	return l, nil
}

// Names are the mechanisms for people.
func (l Login) Names() string { return strings.ToUpper(strings.Join(l.Mechanisms, ", ")) }

// Options are those of the client.
func (l Login) Options() []kgo.Opt {
	if l.User == "" {
		return nil
	}
	var all []sasl.Mechanism
	for _, name := range l.Mechanisms {
		switch secret := (scram.Auth{User: l.User, Pass: l.Password}); name {
		case Plain:
			all = append(all, plain.Auth{User: l.User, Pass: l.Password}.AsMechanism())
		case SHA256:
			all = append(all, secret.AsSha256Mechanism())
		case SHA512:
			all = append(all, secret.AsSha512Mechanism())
		}
	}
	return []kgo.Opt{kgo.SASL(all...)}
}
