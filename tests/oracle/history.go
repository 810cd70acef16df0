package oracle

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// WriteHistory writes events as JSON lines.
func WriteHistory(w io.Writer, events []Event) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	for i := range events {
		if err := enc.Encode(&events[i]); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
	}
	return out.Flush()
}

// ReadHistory reads what WriteHistory wrote.
func ReadHistory(r io.Reader) ([]Event, error) {
	var events []Event
	dec := json.NewDecoder(r)
	for {
		var e Event
		switch err := dec.Decode(&e); err {
		case nil:
			events = append(events, e)
		case io.EOF:
			return events, nil
		default:
			return nil, fmt.Errorf("event %d: %w", len(events), err)
		}
	}
}
