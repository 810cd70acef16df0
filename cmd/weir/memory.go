package main

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/settings"
)

// memory returns how many bytes the process may take: what its control group allows, or what the machine
// has; 0 if that cannot be told.
func memory() int64 {
	most := uint64(math.MaxInt64)
	for _, of := range []memlimit.Provider{memlimit.FromCgroup, memlimit.FromSystem} {
		if n, err := of(); err == nil && n > 0 {
			most = min(most, n)
		}
	}
	if most == math.MaxInt64 {
		return 0
	}
	return int64(most)
}

const (
	// One inflightShare of the memory is for bodies, and another one for answers. A body is written from a
	// copy, and the log keeps one more until it is synced. As by default, a body has a quarter.
	inflightShare = 8
	bodyShare     = 4 * inflightShare
	minInflight   = 8 << 20
	// goShare of what bodies and answers leave is Go's, percent. The rest is the program itself and what the
	// kernel keeps for it.
	goShare = 85
)

// fitLimits lowers the limits that nobody has set to what fits into so much memory.
func fitLimits(l *api.Limits, memory int64, values *settings.Values) {
	if memory == 0 {
		return
	}
	if !values.Given("max-inflight-bytes") {
		l.MaxInflightBytes = min(l.MaxInflightBytes, max(minInflight, memory/inflightShare>>20<<20))
	}
	if !values.Given("max-body-bytes") {
		l.MaxBodyBytes = min(l.MaxBodyBytes, max(minInflight/4, memory/bodyShare>>20<<20, 2*int64(l.MaxRecordBytes)))
	}
}

// warnLimits says that no body has room for the largest record. An upload is no body that is bounded.
func warnLimits(l *api.Limits, log *slog.Logger) {
	if int64(l.MaxRecordBytes) > l.MaxBodyBytes {
		log.Warn("max_record_bytes is more than max_body_bytes: larger records can only be lines of an upload",
			"max_record_bytes", l.MaxRecordBytes, "max_body_bytes", l.MaxBodyBytes)
	}
}

// fitMemory has Go collect more often near what the process may take, unless GOMEMLIMIT says when, and logs
// what was made of it.
func fitMemory(l *api.Limits, memory int64, log *slog.Logger) {
	if memory == 0 {
		return
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit((memory - 2*min(l.MaxInflightBytes, memory/inflightShare)) / 100 * goShare)
	}
	log.Info("memory", "limit", memory, "of_go", debug.SetMemoryLimit(-1), "max_inflight_bytes", l.MaxInflightBytes, "max_body_bytes", l.MaxBodyBytes)
}
