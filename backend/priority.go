package backend

import "fmt"

// Priority is the tier of a message. It is stored, not used yet. The zero value is
// Normal.
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
