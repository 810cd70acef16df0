package api

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// Whatever a decoder finds wrong with the JSON of a body it tells with the byte,
// counted from 0, where it is: ^ marks it here and is not part of the body.
func TestAnErrorInABodyNamesItsPosition(t *testing.T) {
	lim := DefaultLimits()
	decoders := map[string]func([]byte) error{
		"write":   func(b []byte) error { return DecodeWrite(b, &lim, new(WriteRequest), nil) },
		"config":  func(b []byte) error { _, err := DecodeConfig(b, nil); return err },
		"diff":    func(b []byte) error { _, err := DecodeDiff(b, &lim, nil); return err },
		"delete":  func(b []byte) error { _, err := DecodeDelete(b, nil); return err },
		"router":  func(b []byte) error { _, err := DecodeRouter(b, nil); return err },
		"claim":   func(b []byte) error { _, err := DecodeClaim(b, &lim, nil); return err },
		"ack":     func(b []byte) error { return DecodeSettle(SettleAck, b, &lim, new(SettleRequest), nil) },
		"nack":    func(b []byte) error { return DecodeSettle(SettleNack, b, &lim, new(SettleRequest), nil) },
		"extend":  func(b []byte) error { return DecodeSettle(SettleExtend, b, &lim, new(SettleRequest), nil) },
		"watch":   func(b []byte) error { _, err := DecodeWatch(b, &lim, MinHeartbeatMS, nil); return err },
		"message": func(b []byte) error { _, err := DecodeSocket(b, &lim, new(WriteRequest), nil); return err },
	}
	all := []string{"^[]", " ^null", `^"x"`, `{"x":^tru}`, `{"x":1 ^2}`, `{"x":[1,^]}`}
	for name, bodies := range map[string][]string{
		"write": {
			`{"records":[{"data":1},^7]}`, `{"records": ^{}}`, `{"records":[{"data":1,"tag": ^5}]}`, `{"records":[{ "data" : [1, 2] ,"meta":^[]}]}`,
			`{"records":[{"data":1,"data":^2}]}`, `{"records":[{"tag":"x"^}]}`, `{"config":^[]}`, `{"config":{"type":^"stack"}}`, `{"create":^1}`, `{"node":"x"^}`,
		},
		"config":  {`{"cap_records":^1.5}`, `{"type":"log", "type":^"log"}`, `{"priority":^-0}`, `{"discard":^null}`, `{"dead_letter":^1}`, `{"durability":^"disc"}`},
		"diff":    {`{"limit":^-1}`, `{"node":["a",^1]}`, `{"include_tags":^"true"}`, `{"from_seq":1,"from_seq":^1}`},
		"delete":  {`{"match":^5}`, `{"match":^["tag","Eq"]}`, `{"match":^["tag","Has","x"]}`, `{"match":["tag",^1,"x"]}`, `{"match":^["tag","Eq","a","b"]}`},
		"router":  {`{"source":"a"^}`, `{"source":^1}`, `{"source":"a","dest":"b","guarantee":^"once"}`, `{"filter":^{}}`},
		"claim":   {`{"max":1^}`, `{"node":^null}`, `{"node":"n","lease_ms":^1.0}`},
		"ack":     {`{"node":"n","seqs":[1,^"2"]}`, `{"node":"n"^}`, `{"node":"n","seqs":[1],"lease_ids":[^1]}`},
		"nack":    {`{"node":"n","seqs":[1],"delay_ms":^"1"}`},
		"extend":  {`{"node":"n","seqs":[1]^}`},
		"watch":   {`{"topics":^[]}`, `{"topics":{"a":^1}}`, `{"topics":{"a":{"from_seq":^"0"}}}`, `{"topics":{"a":{}},"consistency":^"weak"}`, `{"limit":1^}`},
		"message": {`{"op":^"shout"}`, `{"topic":"a"^}`, `{"op":"subscribe","topic":^1}`, `{"op":"publish","request_id": [1, 2] ,"topic":"a","records":^1}`, `{"op":"unsubscribe","topics":^1}`},
	} {
		for _, marked := range append(bodies, all...) {
			at := strings.IndexByte(marked, '^')
			body := strings.Replace(marked, "^", "", 1)
			err := decoders[name]([]byte(body))
			if err == nil {
				t.Errorf("%s: %s was accepted", name, body)
				continue
			}
			if !regexp.MustCompile(fmt.Sprintf(`at byte %d\b`, at)).MatchString(Sentence(err)) {
				t.Errorf("%s: %s: the message does not name byte %d: %s", name, body, at, Sentence(err))
			}
		}
	}
}
