package load

import "github.com/weirmq/weir/internal/latency"

// Latency counts durations in fixed space. The zero value is ready; it is not safe for
// concurrent use.
type Latency = latency.Histogram
