package kafkatest

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirmq/weir/tests/certtest"
)

// The listeners of a secure broker besides the plain one.
const (
	TLS       = "TLS"       // encrypted, open to everybody
	MutualTLS = "MUTUALTLS" // encrypted, for clients with a certificate
	OtherName = "OTHERNAME" // encrypted, with a certificate for another host
	SASL      = "SASL"      // encrypted, for users
	PlainSASL = "PLAINSASL" // not encrypted, for users
)

// Password is that of every user of a secure broker.
const Password = "sesame/7 &?#@"

// Admin is a user who may do everything, like those who come by a listener without users.
const Admin = "admin"

// Secure is a broker with listeners for TLS and SASL, and an authorizer. Its users know
// SCRAM-SHA-256 and SCRAM-SHA-512, and Admin also PLAIN.
type Secure struct {
	*Broker
	// CA, Cert and Key are PEM files: the authority of all certificates, and a client's.
	CA, Cert, Key string
	// Stranger is the PEM file of an authority that has signed nothing here.
	Stranger string
}

// StartSecure starts a secure broker with users besides Admin.
func StartSecure(t TB, opt Options, users ...string) *Secure {
	t.Helper()
	dir := t.TempDir()
	s := &Secure{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), Stranger: filepath.Join(dir, "stranger.PEM")}
	server, other := filepath.Join(dir, "server.pem"), filepath.Join(dir, "other.pem")
	if err := s.certify(server, other); err != nil {
		t.Fatalf("kafkatest: certificates: %v", err)
	}
	settings := map[string]string{
		"ssl.keystore.type": "PEM", "ssl.keystore.location": server, "ssl.truststore.type": "PEM", "ssl.truststore.location": s.CA,
		"listener.name.mutualtls.ssl.client.auth":       "required",
		"listener.name.othername.ssl.keystore.type":     "PEM",
		"listener.name.othername.ssl.keystore.location": other,
		"sasl.enabled.mechanisms":                       "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"authorizer.class.name":                         "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":                                   "User:ANONYMOUS;User:CN=client;User:" + Admin,
	}
	for _, listener := range []string{"sasl", "plainsasl"} {
		jaas := "org.apache.kafka.common.security.%s.%sLoginModule required%s;"
		settings["listener.name."+listener+".plain.sasl.jaas.config"] = fmt.Sprintf(jaas, "plain", "Plain", fmt.Sprintf(" user_%s=%q", Admin, Password))
		for _, mechanism := range []string{"scram-sha-256", "scram-sha-512"} {
			settings["listener.name."+listener+"."+mechanism+".sasl.jaas.config"] = fmt.Sprintf(jaas, "scram", "Scram", "")
		}
	}
	maps.Copy(settings, opt.Settings)
	opt.Settings = settings
	opt.Listeners = map[string]string{TLS: "SSL", MutualTLS: "SSL", OtherName: "SSL", SASL: "SASL_SSL", PlainSASL: "SASL_PLAINTEXT"}
	s.Broker = Start(t, opt)
	s.addUsers(append(users, Admin))
	return s
}

func (s *Secure) addUsers(users []string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} { // one request names a user once
		var add []kadm.UpsertSCRAM
		for _, user := range users {
			add = append(add, kadm.UpsertSCRAM{User: user, Mechanism: mechanism, Iterations: 4096, Password: Password})
		}
		done, err := kadm.NewClient(s.Client()).AlterUserSCRAMs(ctx, nil, add)
		if err == nil {
			err = done.Error()
		}
		if err != nil {
			s.t.Fatalf("kafkatest: users: %v", err)
		}
	}
}

// certify writes the certificates.
func (s *Secure) certify(server, other string) error {
	ca, err := certtest.NewAuthority()
	if err != nil {
		return err
	}
	stranger, err := certtest.NewAuthority()
	if err != nil {
		return err
	}
	here := &x509.Certificate{DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, Subject: pkix.Name{CommonName: "broker"}}
	elsewhere := &x509.Certificate{DNSNames: []string{"kafka.example"}, Subject: pkix.Name{CommonName: "other"}}
	client := &x509.Certificate{Subject: pkix.Name{CommonName: "client"}}
	for _, issue := range []struct {
		about     *x509.Certificate
		cert, key string
	}{{here, server, server}, {elsewhere, other, other}, {client, s.Cert, s.Key}} {
		cert, key, err := ca.Sign(issue.about)
		if err != nil {
			return err
		}
		files := map[string][]byte{issue.cert: cert}
		files[issue.key] = append(files[issue.key], key...)
		for file, text := range files {
			if err := os.WriteFile(file, text, 0o600); err != nil {
				return err
			}
		}
	}
	if err := os.WriteFile(s.Stranger, stranger.PEM, 0o600); err != nil {
		return err
	}
	return os.WriteFile(s.CA, ca.PEM, 0o600)
}
