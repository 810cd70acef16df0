package api

import "testing"

// A body may end or go wrong anywhere; a panic would be a 500.
func TestABodyThatIsCutOrChangedAnywhereIsRefusedAndNoPanic(t *testing.T) {
	lim := DefaultLimits()
	var w WriteRequest
	var ws WritesRequest
	var r SettleRequest
	settle := func(kind SettleKind) func([]byte, *Warnings) error {
		return func(b []byte, warn *Warnings) error { return DecodeSettle(kind, b, &lim, &r, warn) }
	}
	for body, decode := range map[string]func([]byte, *Warnings) error{
		`{"records":[{"data":[1],"tag":"a","node":"n","meta":{"a":1},"priority":"low","fair_key":"f","delay_ms":1},{"data":0}],"node":"n","create":true,"config":{"type":"queue","priority":null},"x":[{}]}`: func(b []byte, warn *Warnings) error {
			return DecodeWrite(b, &lim, &w, warn)
		},
		`{"writes":[{"records":[{"data":1,"y":{}}],"node":"n","idempotency_key":"\u0061"},{"records":[]}],"create":true,"x":1}`: func(b []byte, warn *Warnings) error {
			return DecodeWrites(b, &lim, &ws, warn)
		},
		`{"type":"queue","dead_letter":"d","priority":-1,"durability":null,"x":{}}`: func(b []byte, warn *Warnings) error {
			_, err := DecodeConfig(b, warn)
			return err
		},
		`{"before_seq":4,"match":["tag","Glob","a*"],"x":1}`: func(b []byte, warn *Warnings) error {
			_, err := DecodeDelete(b, warn)
			return err
		},
		`{"node":"w","max":4,"lease_ms":null,"wait_ms":5,"x":1}`: func(b []byte, warn *Warnings) error {
			_, err := DecodeClaim(b, &lim, warn)
			return err
		},
		`{"node":"w","seqs":[1,2],"lease_ids":["lease_1",""],"x":1}`:          settle(SettleAck),
		`{"node":"w","seqs":[1,2],"delay_ms":1,"started":false,"x":1}`:        settle(SettleNack),
		`{"node":"w","seqs":[1,2],"lease_ids":["",""],"lease_ms":100,"x":[]}`: settle(SettleExtend),
		`{"from_seq":1,"limit":2,"node":["a","b"],"include_tags":true,"x":1}`: func(b []byte, warn *Warnings) error {
			_, err := DecodeDiff(b, &lim, warn)
			return err
		},
		`{"source":"a","dest":"b","filter":["tag","Eq","x"],"guarantee":"exactly_once","x":1}`: func(b []byte, warn *Warnings) error {
			_, err := DecodeRouter(b, warn)
			return err
		},
		`{"topics":{"a":{"from_seq":1,"x":1},"b":{"tail":true}},"node":["a"],"limit":3,"consistency":"strong","x":1}`: func(b []byte, warn *Warnings) error {
			_, err := DecodeWatch(b, &lim, 1000, warn)
			return err
		},
		`{"topic":"q","url":"https://a.example/","secret":"0123456789abcdef","headers":{"X-A":"b"},"x":1}`: func(b []byte, warn *Warnings) error {
			_, err := DecodeWebhook(b, warn)
			return err
		},
		`{"op":"subscribe","topics":{"a":{"from_seq":1}},"request_id":{"a":[1]},"limit":4,"x":1}`: func(b []byte, warn *Warnings) error {
			_, err := DecodeSocket(b, &lim, &w, warn)
			return err
		},
		`{"op":"publish","topic":"a","records":[{"data":1}],"request_id":1}`: func(b []byte, warn *Warnings) error {
			_, err := DecodeSocket(b, &lim, &w, warn)
			return err
		},
		`{"op":"claim","topic":"a","node":"w","wait_ms":4,"request_id":1}`: func(b []byte, warn *Warnings) error {
			_, err := DecodeSocket(b, &lim, &w, warn)
			return err
		},
		`{"of":774,"bins":[3,400],"add":[12,1],"x":1}`: func(b []byte, warn *Warnings) error {
			_, err := DecodeTally(b, warn)
			return err
		},
		`{"topics":["a"],"prefixes":["b"],"ttl_ms":1000,"x":1}`: func(b []byte, warn *Warnings) error {
			_, err := DecodeToken(b, warn)
			return err
		},
		`{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"text/plain","data":"x"}`: func(b []byte, _ *Warnings) error {
			return DecodeEvents(b, false, &lim, &w)
		},
		`[{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"AP8Q"},{"specversion":"1.0","id":"2","source":"/s","type":"t"}]`: func(b []byte, _ *Warnings) error {
			return DecodeEvents(b, true, &lim, &w)
		},
	} {
		if err := decode([]byte(body), new(Warnings)); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		for i := range body {
			if decode([]byte(body[:i]), new(Warnings)) == nil && i > 0 { // an empty one may stand for {}
				t.Errorf("%s is accepted", body[:i])
			}
			for _, c := range []byte("{}[]\",:0-n\\ \x00\xff") {
				_ = decode([]byte(body[:i]+string(c)+body[i+1:]), new(Warnings))
				_ = decode([]byte(body[:i]+string(c)), new(Warnings))
			}
		}
	}
}
