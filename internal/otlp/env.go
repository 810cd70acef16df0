package otlp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// samplers are the values of OTEL_TRACES_SAMPLER that the SDK knows.
var samplers = []string{"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"}

// counts are variables of the SDK that are whole numbers, by signal.
var counts = map[signal][]string{
	traces:  {"OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"},
	metrics: {"OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT"},
	logs:    {"OTEL_BLRP_SCHEDULE_DELAY", "OTEL_BLRP_EXPORT_TIMEOUT", "OTEL_BLRP_MAX_QUEUE_SIZE", "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE"},
}

// Most of what a variable may say: the SDK makes its queues at the start, as large as they may
// get, and counts in nanoseconds.
const (
	maxBuffered     = 1_000_000
	maxMilliseconds = int(math.MaxInt64 / time.Millisecond)
)

// check returns an error for a variable that the SDK would pass over, or that would let
// every send fail.
func check(s signal) error {
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_" + string(s) + "_"} {
		for _, err := range []error{
			variable(prefix+"ENDPOINT", endpoint),
			variable(prefix+"TIMEOUT", milliseconds),
			variable(prefix+"COMPRESSION", oneOf("gzip", "none")),
			secret(prefix+"HEADERS", pairs),
			variable(prefix+"CERTIFICATE", authorities),
			clientCertificate(prefix),
		} {
			if err != nil {
				return err
			}
		}
	}
	for _, name := range counts[s] {
		valid := within(1, maxMilliseconds)
		switch {
		case strings.HasSuffix(name, "_SIZE"):
			valid = within(1, maxBuffered)
		case name == "OTEL_BSP_EXPORT_TIMEOUT":
			valid = milliseconds // 0 is none
		}
		if err := variable(name, valid); err != nil {
			return err
		}
	}
	if err := secret("OTEL_RESOURCE_ATTRIBUTES", pairs); err != nil {
		return err
	}
	if s != traces {
		return nil
	}
	if err := variable("OTEL_TRACES_SAMPLER", func(text string) error { return oneOf(samplers...)(strings.ToLower(text)) }); err != nil {
		return err
	}
	if !strings.HasSuffix(strings.ToLower(value("OTEL_TRACES_SAMPLER")), "ratio") {
		return nil
	}
	return variable("OTEL_TRACES_SAMPLER_ARG", share)
}

func value(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// variable checks the value of a variable, unless it is empty.
func variable(name string, valid func(text string) error) error {
	text := value(name)
	if strings.Contains(text, "@") { // as a URL with a password has it
		return secret(name, valid)
	}
	if text != "" {
		if err := valid(text); err != nil {
			return fmt.Errorf("environment variable %s: %q %w", name, text, err)
		}
	}
	return nil
}

// secret is variable for a value that must not be repeated.
func secret(name string, valid func(text string) error) error {
	if text := value(name); text != "" {
		if err := valid(text); err != nil {
			return fmt.Errorf("environment variable %s %w", name, err)
		}
	}
	return nil
}

func endpoint(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("is not a URL such as http://127.0.0.1:4318")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return errors.New("has a port that is not from 1 to 65535")
		}
	}
	return nil
}

// within is for what the SDK passes over if it is 0, or does without a pause, and for what it
// cannot hold.
func within(low, high int) func(string) error {
	return func(text string) error {
		if n, err := strconv.Atoi(text); err != nil || n < low || n > high {
			return fmt.Errorf("is not a whole number from %d to %d", low, high)
		}
		return nil
	}
}

func milliseconds(text string) error {
	if within(0, maxMilliseconds)(text) != nil {
		return errors.New("is not a whole number of milliseconds, such as 10000")
	}
	return nil
}

func share(text string) error {
	if n, err := strconv.ParseFloat(text, 64); err != nil || !(n >= 0 && n <= 1) {
		return errors.New("is not a share from 0 to 1, such as 0.01")
	}
	return nil
}

func oneOf(known ...string) func(string) error {
	return func(text string) error {
		if slices.Contains(known, text) {
			return nil
		}
		return fmt.Errorf("is unknown; known: %s", strings.Join(known, ", "))
	}
}

func pairs(text string) error {
	for i, pair := range strings.Split(text, ",") {
		name, value, found := strings.Cut(pair, "=")
		if _, err := url.PathUnescape(value); !found || err != nil || strings.TrimSpace(name) == "" {
			return fmt.Errorf("is not name=value,name=value with %%-escapes in pair %d", i+1)
		}
	}
	return nil
}

func authorities(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return errors.New("is not a PEM file with certificates")
	}
	return nil
}

// clientCertificate checks the pair of variables that name a certificate and its key.
func clientCertificate(prefix string) error {
	certificate, key := prefix+"CLIENT_CERTIFICATE", prefix+"CLIENT_KEY"
	switch {
	case value(certificate) == "" && value(key) == "":
		return nil
	case value(certificate) == "":
		return fmt.Errorf("environment variable %s needs %s beside it", key, certificate)
	case value(key) == "":
		return fmt.Errorf("environment variable %s needs %s beside it", certificate, key)
	}
	if _, err := tls.LoadX509KeyPair(value(certificate), value(key)); err != nil {
		return fmt.Errorf("environment variables %s and %s do not name a certificate and its key: %w", certificate, key, err)
	}
	return nil
}
