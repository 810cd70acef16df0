package relay

import (
	"context"
	"net"
)

// DialWith has the relay reach its upstream by another way.
func (r *Relay) DialWith(dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	r.client.Transport.(*transport).DialContext = dial
}

// Ended waits until the connection that p publishes over has ended.
func (p *Publisher) Ended() { p.reader.Wait() }
