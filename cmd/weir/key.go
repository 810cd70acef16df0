package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/remote"
	"github.com/weirmq/weir/internal/certs"
	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/settings"
)

// keyOptions are the sources of a command's API key, of its user and password on Kafka
// and of its certificates, for URLs without one.
type keyOptions struct {
	file  string
	text  string
	kafka settings.Kafka
	certs certs.Client
}

// fields adds the settings to those of a command.
func (o *keyOptions) fields(f settings.Fields) settings.Fields {
	f["api-key-file"], f["api-key"] = &o.file, &o.text
	f["url"], f["context"] = new(string), new(string) // base reads them
	f["ca"], f["tls-cert"], f["tls-key"] = &o.certs.CA, &o.certs.Cert, &o.certs.Key
	return f
}

// streamFields is fields with the settings for streams of Kafka.
func (o *keyOptions) streamFields(f settings.Fields) settings.Fields {
	f["kafka-user"], f["kafka-password"] = &o.kafka.User, &o.kafka.Password
	return o.fields(f)
}

// limitedFields is streamFields with the limits of a producer on Kafka.
func (o *keyOptions) limitedFields(f settings.Fields) settings.Fields {
	f["kafka-buffer-memory"], f["kafka-max-in-flight-requests"] = &o.kafka.BufferMemory, &o.kafka.MaxInFlight
	return o.streamFields(f)
}

// maxKeyFileBytes limits the size of a key file.
const maxKeyFileBytes = 64 << 10

// connect returns a client for a URL's target. The URL's own key comes first, then
// the key file, then WEIR_API_KEY.
func (o *keyOptions) connect(target client.Target) (*client.Client, error) {
	key := target.Key
	if key == "" {
		var err error
		if key, err = o.key(); err != nil {
			return nil, err
		}
	}
	target.Key = key
	target.Certs.CA = cmp.Or(target.Certs.CA, o.certs.CA)
	if target.Certs.Cert == "" && target.Certs.Key == "" {
		target.Certs.Cert, target.Certs.Key = o.certs.Cert, o.certs.Key
	}
	c, err := client.Open(target)
	if err != nil {
		return nil, &usageError{err}
	}
	return c, nil
}

// complete returns the URL of a stream with all that it does not say itself.
func (o *keyOptions) complete(raw string) (string, error) {
	key, err := o.key()
	if err != nil {
		return "", err
	}
	if raw, err = remote.WithKey(raw, key); err != nil {
		return "", &backend.URLError{Err: err}
	}
	return o.withCerts(o.kafka.URL(raw)), nil
}

// withCerts adds the files of TLS to a URL that speaks TLS and names none.
func (o *keyOptions) withCerts(raw string) string {
	switch schemeOf(raw) {
	case "https", "rediss", "kafkas":
	default:
		return raw
	}
	for key, file := range map[string]string{"ca": o.certs.CA, "cert": o.certs.Cert, "key": o.certs.Key} {
		if file != "" {
			raw = withKey(raw, key, file)
		}
	}
	return raw
}

// key returns the key of the file or the environment, empty if there is none.
func (o *keyOptions) key() (string, error) {
	key := strings.TrimSpace(o.text)
	if o.file != "" {
		var err error
		if key, err = readKey(o.file); err != nil {
			return "", &usageError{fmt.Errorf("API key (--api-key-file, WEIR_API_KEY_FILE): %w", err)}
		}
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return "", &usageError{errors.New("the API key contains a control character; it must be one line of text")}
	}
	return key, nil
}

func readKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFileBytes))
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return key, nil
}
