package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// output is how a command prints its results: as text, or as JSON lines if it is true.
type output bool

// countOf says how many of something there are: 1 record, 2 records.
func countOf[N int | int64 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, ok := strings.CutSuffix(thing, "y"); ok {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

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
