package contract

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// reservedName are names that the contract itself writes behind a $.
var reservedName = map[string]bool{
	"seq": true, "ts": true, "node": true, "tag": true, "i": true,
	"dead_letter_from": true, "dead_letter_deliveries": true, "dead_letter_src_seq": true,
	"content_type": true, "cloudevent": true,
}

var variable = regexp.MustCompile(`\$[A-Za-z_][A-Za-z0-9_]*`)

// vars are the values behind $ names of one running case.
type vars struct {
	prefix string // of the topic names
	saved  map[string]string
	round  int
	host   string // host:port of the server

	streams map[string]*stream // open ones, by their name in the case
}

func (v *vars) closeStreams() {
	for _, s := range v.streams {
		s.close()
	}
}

// fill replaces $T, $T1 …, $i and saved names; the contract's own $ fields stay.
// Around a JSON object of positions, @id( ) makes an event id of it.
func (v *vars) fill(text string) string {
	text = v.fillNames(text)
	return idCall.ReplaceAllStringFunc(text, func(call string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(idCall.FindStringSubmatch(call)[1]))
	})
}

var idCall = regexp.MustCompile(`@id\(([^()]*)\)`)

func (v *vars) fillNames(text string) string {
	return variable.ReplaceAllStringFunc(text, func(name string) string {
		word := name[1:]
		if value, ok := v.saved[word]; ok {
			return value
		}
		if word == "i" {
			return strconv.Itoa(v.round)
		}
		if word == "HOST" {
			return v.host
		}
		if word[0] == 'T' && strings.Trim(word[1:], "0123456789") == "" {
			return v.prefix + word[1:]
		}
		return name
	})
}

var (
	fillCall = regexp.MustCompile(`@(fill|hex|nest)\(([^()]*)\)`)
	listCall = regexp.MustCompile(`@list\((\d+), ([^()]*)\)`)
)

// expandBody turns the body text of a case into bytes; gzipped says that it is
// compressed and the request must say so.
func expandBody(text string) (body []byte, gzipped bool, err error) {
	text, gzipped = strings.CutPrefix(text, "@gzip ")
	if text == "@empty" {
		return []byte{}, gzipped, nil
	}
	text = fillCall.ReplaceAllStringFunc(text, func(call string) string {
		m := fillCall.FindStringSubmatch(call)
		s, e := expandCall(m[1], m[2])
		if e != nil {
			err = fmt.Errorf("%s: %w", call, e)
		}
		return s
	})
	text = listCall.ReplaceAllStringFunc(text, func(call string) string {
		m := listCall.FindStringSubmatch(call)
		n, _ := strconv.Atoi(m[1])
		var b strings.Builder
		for i := 1; i <= n; i++ {
			if i > 1 {
				b.WriteByte(',')
			}
			b.WriteString(strings.ReplaceAll(m[2], "#", strconv.Itoa(i)))
		}
		return b.String()
	})
	if gzipped {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(text)) // a bytes.Buffer takes everything
		_ = w.Close()
		return b.Bytes(), true, err
	}
	return []byte(text), false, err
}

func expandCall(name, args string) (string, error) {
	if name == "hex" {
		b, err := hex.DecodeString(args)
		return string(b), err
	}
	count, text, _ := strings.Cut(args, ", ")
	n, err := strconv.Atoi(count)
	if err != nil {
		return "", err
	}
	if name == "nest" {
		return strings.Repeat("[", n) + strings.Repeat("]", n), nil
	}
	return strings.Repeat(text, n), nil
}
