package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// schema is what the tests need of one in the OpenAPI document.
type schema struct {
	Properties map[string]property
	Enum       []string
}

// property is one member of a schema. Values that are no texts are not compared.
type property struct{ Enum []any }

func (p *property) texts() (all []string) {
	for _, v := range p.Enum {
		text, _ := v.(string)
		all = append(all, text)
	}
	return all
}

// readSchemas reads those of the document that the server serves.
func readSchemas(t *testing.T) map[string]schema {
	t.Helper()
	text, err := os.ReadFile("../server/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Components struct{ Schemas map[string]schema }
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d.Components.Schemas
}

// described are the fields that each object of a request knows, by its schema, and those
// of a configuration as it is shown.
var described = map[string][]string{
	"Write": writeFields, "NewRecord": recordFields, "TopicConfig": configFields, "TopicConfigState": configFields,
	"Diff": diffFields, "Delete": deleteFields, "Router": routerFields,
	"Claim": claimFields, "Ack": settleFields[SettleAck], "Nack": settleFields[SettleNack], "Extend": settleFields[SettleExtend],
	"Offered": tallyFields, "Token": tokenFields, "Watch": watchFields, "WatchStart": startFields,
	"Subscribe": socketFields[SocketSubscribe], "Unsubscribe": socketFields[SocketUnsubscribe],
	"Publish": socketFields[SocketPublish], "Ping": socketFields[SocketPing],
	"SocketClaim": socketFields[SocketClaim], "SocketAck": socketFields[SocketAck], "SocketNack": socketFields[SocketNack], "SocketExtend": socketFields[SocketExtend],
	"Webhook": webhookFields, "Writes": writesFields, "OneWrite": oneWriteFields,
}

// undescribed compares the fields with those in the document.
func undescribed(all map[string]schema, name string, fields []string) error {
	want := slices.Sorted(slices.Values(fields))
	if got := slices.Sorted(maps.Keys(all[name].Properties)); !slices.Equal(got, want) {
		return fmt.Errorf("the schema %s of internal/server/openapi.json has %v, the decoder knows %v", name, got, want)
	}
	return nil
}

func TestTheDocumentHasEveryFieldAndNoOther(t *testing.T) {
	all := readSchemas(t)
	for name, fields := range described {
		if err := undescribed(all, name, fields); err != nil {
			t.Error(err)
		}
	}
	if err := undescribed(all, "Write", append(slices.Clone(writeFields), "new_field")); err == nil {
		t.Error("a field that is not in the document is not noticed")
	}
	if err := undescribed(all, "Write", writeFields[1:]); err == nil {
		t.Error("a field that is gone is not noticed")
	}
	// Every body that has fields has a schema.
	for _, b := range bodies() {
		if !slices.ContainsFunc(slices.Collect(maps.Values(described)), func(fields []string) bool {
			return !slices.ContainsFunc(b.known, func(f string) bool { return !slices.Contains(fields, f) })
		}) {
			t.Errorf("no schema has the fields %v", b.known)
		}
	}
}

func TestTheDocumentHasEveryValueAndNoOther(t *testing.T) {
	all := readSchemas(t)
	var codes []string
	for c := range statusOf {
		codes = append(codes, string(c))
	}
	warnings := []string{WarnUnknownField, WarnUnknownParameter, WarnKeyReused}
	for name, want := range map[string][]string{
		"Tier": tierNames[:], "TopicType": topicTypes[:], "Discard": discards[:], "Durability": durabilityNames[:], "Guarantee": guarantees[:],
		"Consistency": {"eventual", "strong"},
		"TombstoneReason": {string(ReasonCap), string(ReasonTTL), string(ReasonMixed), string(ReasonRecreated), string(ReasonSourceTrim),
			string(ReasonCrash), string(ReasonFromSeqTooOld)},
		"ErrorCode":        codes,
		"Warning.code":     warnings,
		"SocketError.code": append(slices.Clone(codes), string(CodeInvalidJSON), string(CodeUnsupportedMessage), string(CodeServerShuttingDown)),
	} {
		got := all[name].Enum
		if s, member, ok := strings.Cut(name, "."); ok {
			p := all[s].Properties[member]
			got = p.texts()
		}
		slices.Sort(got)
		if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
			t.Errorf("%s of internal/server/openapi.json is %v, want %v", name, got, want)
		}
	}
}
