package api

import "strconv"

// Bounds of read tokens.
const (
	MaxTokenNames     = 64
	MinTokenTTLMS     = 1_000
	MaxTokenTTLMS     = 86_400_000
	DefaultTokenTTLMS = 600_000
)

// TokenRequest asks for a read token.
type TokenRequest struct {
	Topics   []string // that it may read
	Prefixes []string // of topics that it may read
	TTLMS    int64    // how long it counts
}

// TokenResult is a read token.
type TokenResult struct {
	Token   string
	Expires int64 // Unix ms
}

const (
	tokenTopics = 1 << iota
	tokenPrefixes
	tokenTTL
)

var tokenFields = []string{"topics", "prefixes", "ttl_ms"}

// DecodeToken reads the body of a request for a token. It clamps the time and refuses
// names that no topic has, and a token that could read nothing.
func DecodeToken(body []byte, warn *Warnings) (TokenRequest, error) {
	t := TokenRequest{TTLMS: DefaultTokenTTLMS}
	s := scanner{b: body, index: -1, warnings: warn}
	s.token(&t)
	if err := s.finish(); err != nil {
		return TokenRequest{}, err
	}
	if len(t.Topics)+len(t.Prefixes) == 0 {
		return TokenRequest{}, Errorf(CodeInvalidRequest, `field "topics" or "prefixes" is needed; name what the token may read`)
	}
	if len(t.Topics)+len(t.Prefixes) > MaxTokenNames {
		return TokenRequest{}, Errorf(CodeInvalidRequest, `fields "topics" and "prefixes" hold more than %d names; use a prefix`, MaxTokenNames)
	}
	return t, nil
}

func (s *scanner) token(t *TokenRequest) {
	var seen uint32
	s.body(tokenFields, func(name []byte) bool {
		switch string(name) {
		case "topics":
			if s.once(&seen, tokenTopics, "topics") {
				t.Topics = s.topicNames("topics", "an array of names of topics")
			}
		case "prefixes":
			if s.once(&seen, tokenPrefixes, "prefixes") {
				t.Prefixes = s.topicNames("prefixes", "an array of beginnings of names of topics, without a wildcard")
			}
		case "ttl_ms":
			if s.once(&seen, tokenTTL, "ttl_ms") {
				t.TTLMS = int64(min(max(s.uint("ttl_ms", maxUint64), MinTokenTTLMS), MaxTokenTTLMS))
			}
		default:
			return false
		}
		return true
	})
}

// topicNames reads an array of names; of too many it keeps one more than are allowed.
func (s *scanner) topicNames(field, accepted string) []string {
	if !s.open('[') {
		s.wrong(field, accepted)
		return nil
	}
	var names []string
	for s.element() {
		at := s.i
		name := string(s.text(field, accepted))
		s.scratch = s.scratch[:0]
		if s.err == nil && !ValidTopicName(name) {
			s.i = at
			s.wrong(field, accepted)
		}
		if len(names) <= MaxTokenNames {
			names = append(names, name)
		}
	}
	return names
}

// AppendTokenResult appends the answer to a request for a token.
func AppendTokenResult(dst []byte, t *TokenResult) []byte {
	dst = AppendString(append(dst, `{"token":`...), t.Token)
	dst = strconv.AppendInt(append(dst, `,"expires_ts":`...), t.Expires, 10)
	return append(dst, '}')
}
