package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// output is how a command prints its results: as text, or as JSON lines if it is true.
type output bool

// print writes one result. Its String is the text; its fields are the JSON.
func (o output) print(out io.Writer, result fmt.Stringer) error {
	if !o {
		_, err := fmt.Fprintln(out, result)
		return err
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	return enc.Encode(result)
}
