package backend

import "fmt"

// Priority is the tier of a message. The zero value is Normal.
//
// Under overload a producer whose guard is adaptive refuses lower tiers first, on every
// backend. On the embedded engine and a weir server a claim also hands out higher tiers
// first; while several tiers wait, one message of 50 is of a lower tier, so that none
// starves. A stream on Redis is one line, oldest first, whatever its messages' tiers.
type Priority int8

// The six tiers, the most important first.
const (
	Critical   Priority = 2
	High       Priority = 1
	Normal     Priority = 0
	Low        Priority = -1
	Bulk       Priority = -2
	Background Priority = -3
)

var priorityNames = [...]string{"background", "bulk", "low", "normal", "high", "critical"}

// Valid reports whether p is one of the six tiers.
func (p Priority) Valid() bool { return p >= Background && p <= Critical }

// String returns the tier's name, as in the header weir-priority.
func (p Priority) String() string {
	if !p.Valid() {
		return fmt.Sprintf("priority(%d)", int8(p))
	}
	return priorityNames[p-Background]
}
