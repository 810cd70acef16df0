package weir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend/backendtest"
)

// What a setting is for another guard says in the log that it counts for nothing, at the start
// and when the settings change; what counts says nothing.
func TestASettingOfAnotherGuardIsTold(t *testing.T) {
	for _, c := range []struct {
		config weir.ProducerConfig
		unused string // in the log, empty: nothing is said
	}{
		{weir.ProducerConfig{}, ""},
		{weir.ProducerConfig{WaitSLO: time.Second, BackpressureRetries: 5}, "WaitSLO"},
		{weir.ProducerConfig{Guard: weir.GuardStatic, WaitSLO: time.Second}, "WaitSLO"},
		{weir.ProducerConfig{Guard: weir.GuardShadow, ShadowOf: weir.GuardStatic, WaitSLO: time.Second}, "WaitSLO"},
		{weir.ProducerConfig{Guard: weir.GuardAdaptive, LagWarn: 5, LagWarnSleep: time.Second, LagPause: 9, LagSignal: weir.SignalBacklog}, "LagWarn, LagWarnSleep, LagPause, LagSignal"},
		{weir.ProducerConfig{Guard: weir.GuardAdaptive, LagWarn: -1, LagPause: -1, BackpressureRetries: 2}, ""}, // the last is for a server without room
		{weir.ProducerConfig{ShadowOf: weir.GuardStatic, WaitSLO: time.Second}, "ShadowOf"},
		{weir.ProducerConfig{BudgetMaxDepth: 5}, "BudgetMaxDepth"},
		{weir.ProducerConfig{Guard: weir.GuardOff, ShadowOf: weir.GuardStatic, WaitSLO: time.Second, LagPause: 9}, ""}, // for a while
	} {
		var log bytes.Buffer
		c.config.Logger = slog.New(slog.NewTextHandler(&log, nil))
		p, err := weir.NewProducer(weir.New(backendtest.NewFake(backendtest.FakeOptions{})), c.config)
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if c.unused != "" {
			want = "unused=" + c.unused
			if strings.Contains(c.unused, ",") {
				want = fmt.Sprintf("unused=%q", c.unused)
			}
		}
		for _, when := range []string{"at the start", "when it is set again"} {
			if text := log.String(); !strings.Contains(text, want) || want == "" && text != "" {
				t.Errorf("%s the log of %+v has %q and should have %q", when, c.config, text, want)
			}
			log.Reset()
			if err := p.Reconfigure(c.config); err != nil {
				t.Fatal(err)
			}
		}
		_ = p.Close()
	}
}

// Whoever passes nil is told which argument it was.
func TestWhatIsNilIsNamed(t *testing.T) {
	h := func(context.Context, *weir.Delivery) error { return nil }
	s := weir.New(backendtest.NewFake(backendtest.FakeOptions{}))
	for want, do := range map[string]func() error{
		"NewProducer: the stream is nil":  func() error { _, err := weir.NewProducer(nil, weir.ProducerConfig{}); return err },
		"NewPool: the stream is nil":      func() error { _, err := weir.NewPool(nil, h, weir.PoolConfig{}); return err },
		"NewPool: the handler is nil":     func() error { _, err := weir.NewPool(s, nil, weir.PoolConfig{}); return err },
		"New: the backend is nil":         func() error { weir.New(nil); return nil },
		"Chain: middleware 2 of 2 is nil": func() error { weir.Chain(h, func(h weir.Handler) weir.Handler { return h }, nil); return nil },
	} {
		if err := orPanic(do); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, and it should say %q", err, want)
		}
	}
}

// orPanic returns the error of f, or its panic as one.
func orPanic(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return f()
}

// A test of a handler can tell what a pool would do with its error.
func TestPoisonAndRetryInCanBeToldApart(t *testing.T) {
	cause := errors.New("no such item")
	var (
		poison *weir.PoisonError
		retry  *weir.RetryError
	)
	if err := fmt.Errorf("order 7: %w", weir.Poison(cause)); !errors.As(err, &poison) || errors.As(err, &retry) || !errors.Is(err, cause) {
		t.Errorf("%v is not poison of its cause", err)
	}
	err := fmt.Errorf("order 7: %w", weir.RetryIn(time.Minute, cause))
	if !errors.As(err, &retry) || retry.Delay != time.Minute || !errors.Is(err, cause) || errors.As(err, new(*weir.PoisonError)) {
		t.Errorf("%v is not to be tried again in a minute", err)
	}
	for _, err := range []error{weir.Poison(nil), weir.RetryIn(0, nil), &weir.PoisonError{}, &weir.RetryError{}} {
		if err.Error() == "" || errors.Unwrap(err) != nil {
			t.Errorf("without an error it says %q, and wraps %v", err, errors.Unwrap(err))
		}
	}
}
