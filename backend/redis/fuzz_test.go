package redis

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// FuzzReply: no reply, however broken, panics or allocates more than it is long.
func FuzzReply(f *testing.F) {
	for _, reply := range []string{
		"*-1\r\n", "$-1\r\n", "*1\r\n*2\r\n$4\r\njobs\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$4\r\ndata\r\n$1\r\nx\r\n",
		"*3\r\n$3\r\n0-0\r\n*1\r\n$3\r\n1-1\r\n*1\r\n$3\r\n1-2\r\n", "*1\r\n*4\r\n$3\r\n1-1\r\n$1\r\nc\r\n:50\r\n:2\r\n",
		"*1\r\n*12\r\n$4\r\nname\r\n$4\r\nweir\r\n$9\r\nconsumers\r\n:1\r\n$7\r\npending\r\n:1\r\n$17\r\nlast-delivered-id\r\n$3\r\n1-1\r\n$12\r\nentries-read\r\n$-1\r\n$3\r\nlag\r\n$-1\r\n",
		"*999999999\r\n", "$999999999999999999\r\n", "*1\r\n", ":\r\n", "*2\r\n*2\r\n*-1\r\n",
	} {
		f.Add([]byte(reply))
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		raw := func() *redis.RawCmd {
			cmd := redis.NewRawCmd(t.Context(), "XPENDING")
			cmd.SetVal(reply)
			return cmd
		}
		b := &Backend{keys: keys{group: "weir"}}
		c := &claim{ClaimRequest: &backend.ClaimRequest{Max: 10, ReclaimAfter: time.Second}, scan: 10}
		_, _ = b.parseRead(c, raw())
		_, _, _ = c.parseAutoclaim(&replyReader{reply})
		_, _, _ = c.parsePending(&replyReader{reply})
		_, _ = b.count.read(raw(), &b.keys, time.Now())
		_, _ = (&replyReader{reply}).group()
		_, _, _ = firstEntry(raw(), backend.FieldEnqueued)
		_, _, _ = parseAppended(reply)
		_, _ = (&replyReader{reply}).taken()
	})
}

// FuzzURL: what is taken for a URL has a stream, a group and hosts, and no error
// holds the password.
func FuzzURL(f *testing.F) {
	for _, raw := range []string{
		"redis://h/0?stream=s", "rediss://u:hunter2@a:1,b:2/0?stream={s}&group=g", "redis://:hunter2@h?x=1", "redis://[::1]:1/9?stream=s&master=m",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil {
			return
		}
		s, err := parse(u)
		if err != nil {
			if pass, _ := u.User.Password(); len(pass) > 6 && strings.Contains(err.Error(), pass) && !strings.Contains(u.Redacted(), pass) {
				t.Errorf("%q: the error holds the password: %v", raw, err)
			}
			return
		}
		if s.keys.stream == "" || s.keys.group == "" || len(s.addrs) == 0 {
			t.Errorf("%q is taken for %+v", raw, s)
		}
	})
}
