package api

// Limits are the configurable numbers of contract 15. For the resource caps 0 means
// unlimited.
type Limits struct {
	MaxTopics               int64
	MaxRouters              int64
	MaxWatchSessions        int64
	MaxSSEConnections       int64
	MaxSSEConnectionsPerKey int64
	MaxInflightPerKey       int64
	MaxInflightBytes        int64
	MaxTotalBytes           int64
	MaxIdempotencyKeys      int64

	MaxBodyBytes    int64
	MaxBatchRecords int
	MaxRecordBytes  int
	MaxMetaBytes    int
	MaxTagBytes     int
	MaxNodeBytes    int
	MaxLimit        int
	MaxClaim        int
	MaxWatchTopics  int
}

// DefaultLimits returns the limits of a server whose environment sets none.
func DefaultLimits() Limits {
	return Limits{
		MaxTopics:               100_000,
		MaxRouters:              10_000,
		MaxWatchSessions:        10_000,
		MaxSSEConnections:       10_000,
		MaxSSEConnectionsPerKey: 1_000,
		MaxInflightPerKey:       1_000,
		MaxInflightBytes:        256 << 20,
		MaxIdempotencyKeys:      5_000_000,
		MaxBodyBytes:            64 << 20,
		MaxBatchRecords:         10_000,
		MaxRecordBytes:          1 << 20,
		MaxMetaBytes:            16 << 10,
		MaxTagBytes:             256,
		MaxNodeBytes:            128,
		MaxLimit:                1_000,
		MaxClaim:                1_000,
		MaxWatchTopics:          256,
	}
}

// Fixed limits of the contract.
const (
	MaxNameBytes           = 255 // of a topic or router
	MaxMetaKeys            = 64
	MaxIdempotencyKeyBytes = 256
	MaxFairKeyBytes        = 256
	MaxNesting             = 127 // the outer object counts
	MaxWaitMS              = 30_000
	DefaultDiffLimit       = 256
	DefaultDiffBytes       = 1 << 20
	MaxDiffBytes           = 8 << 20
	MaxClaimBytes          = 8 << 20 // what one claim hands out, at least one job
	DefaultPageSize        = 100
	MaxPageSize            = 1_000
	MinLeaseMS             = 100
	MaxLeaseMS             = 86_400_000
	MaxClaimJitterMS       = 5_000
	MaxNackDelayMS         = 86_400_000
	MaxDelayMS             = 366 * 86_400_000
	MaxWaitSLOMS           = 86_400_000
)

// ValidTopicName reports whether s matches ^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$.
func ValidTopicName(s string) bool { return validName(s, false) }

// ValidRouterName is ValidTopicName with '>' allowed after the first character.
func ValidRouterName(s string) bool { return validName(s, true) }

func validName(s string, arrow bool) bool {
	if len(s) == 0 || len(s) > MaxNameBytes {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == ':' || c == '-'):
		case i > 0 && arrow && c == '>':
		default:
			return false
		}
	}
	return true
}
