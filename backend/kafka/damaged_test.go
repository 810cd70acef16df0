package kafka_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// anAnswerThatIsDamagedOnItsWay is noticed by its checksum; its messages come again.
func anAnswerThatIsDamagedOnItsWay(t *testing.T, g *ground) {
	for _, kind := range groupTypes {
		g.create("damaged-" + kind)
		g.put(&kgo.Record{Topic: "damaged-" + kind, Value: []byte("damage-me-once")})
		var times atomic.Int64
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &damager{conn, &times}, err
		}
		b := g.open("damaged-"+kind+"?group=g-"+kind+"&group_type="+kind, kgo.Dialer(dial))
		g.comes(b, 1, 30*time.Second)
		if times.Load() != 1 {
			t.Errorf("%s: no answer was damaged", kind)
		}
	}
}

// damager changes a record once.
type damager struct {
	net.Conn
	times *atomic.Int64
}

func (d *damager) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	if at := bytes.Index(p[:n], []byte("damage-me-once")); at >= 0 && d.times.CompareAndSwap(0, 1) {
		p[at] ^= 1
	}
	return n, err
}
