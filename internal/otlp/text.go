package otlp

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
)

// validLines makes the text of lines UTF-8: one that is not, such as a path that a client
// has sent, and no line of its batch can be encoded.
type validLines struct{}

// OnEmit implements sdklog.Processor.
func (validLines) OnEmit(_ context.Context, r *sdklog.Record) error {
	all := make([]attribute.KeyValue, 0, r.AttributesLen())
	r.WalkAttributes(func(kv attribute.KeyValue) bool {
		all = append(all, validPair(kv))
		return true
	})
	r.SetAttributes(all...)
	r.SetBody(validValue(r.Body()))
	return nil
}

// Enabled is up to the processor that sends.
func (validLines) Enabled(context.Context, sdklog.EnabledParameters) bool { return false }

// Shutdown implements sdklog.Processor.
func (validLines) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdklog.Processor.
func (validLines) ForceFlush(context.Context) error { return nil }

func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func validPair(kv attribute.KeyValue) attribute.KeyValue {
	return attribute.KeyValue{Key: attribute.Key(validText(string(kv.Key))), Value: validValue(kv.Value)}
}

func validValue(v attribute.Value) attribute.Value {
	switch v.Type() {
	case attribute.STRING:
		return attribute.StringValue(validText(v.AsString()))
	case attribute.STRINGSLICE:
		all := v.AsStringSlice()
		for i := range all {
			all[i] = validText(all[i])
		}
		return attribute.StringSliceValue(all)
	case attribute.SLICE:
		all := v.AsSlice()
		for i := range all {
			all[i] = validValue(all[i])
		}
		return attribute.SliceValue(all...)
	case attribute.MAP:
		all := v.AsMap()
		for i := range all {
			all[i] = validPair(all[i])
		}
		return attribute.MapValue(all...)
	}
	return v
}
