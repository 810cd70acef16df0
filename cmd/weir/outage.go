package main

import (
	"fmt"
	"io"
)

// outage says once that something cannot be reached and once that it can again.
type outage struct {
	log  io.Writer
	what string
	away bool
}

func (o *outage) tell(err error) {
	switch {
	case err != nil && !o.away:
		fmt.Fprintf(o.log, "%s: waiting: %v\n", o.what, err)
	case err == nil && o.away:
		fmt.Fprintf(o.log, "%s: going on\n", o.what)
	}
	o.away = err != nil
}
