// Package leak finds goroutines that outlive what has started them, whatever else runs at the
// same time.
package leak

import (
	"bytes"
	"context"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// label marks the goroutines of a Check: a goroutine inherits the labels of the one that
// starts it.
const label = "leak.Check"

var checks atomic.Int64

// Check runs do and fails t unless every goroutine that it has started, or that one of those
// has started, ends within the given time after it.
func Check(t testing.TB, within time.Duration, do func()) {
	t.Helper()
	mark := strconv.FormatInt(checks.Add(1), 10)
	pprof.Do(t.Context(), pprof.Labels(label, mark), func(context.Context) { do() })
	var left []string
	const nap = 10 * time.Millisecond // counted: a machine that stalls does not end them
	for range within/nap + 1 {
		if left = alive(mark); len(left) == 0 {
			return
		}
		time.Sleep(nap)
	}
	t.Errorf("left behind, each with how often:\n%s", strings.Join(left, "\n\n"))
}

// alive returns the stacks of the goroutines with a mark, those that are equal as one.
func alive(mark string) []string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return []string{err.Error()}
	}
	var found []string
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, strconv.Quote(label)+":"+strconv.Quote(mark)) {
			found = append(found, stack)
		}
	}
	return found
}
