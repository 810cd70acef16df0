package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirmq/weir/internal/api"
)

// What a machine with little memory has no room for is less by default; what somebody has set stays.
func TestLittleMemoryLowersWhatNobodyHasSet(t *testing.T) {
	const mebi = 1 << 20
	for _, c := range []struct {
		memory         int64
		args           []string
		inflight, body int64 // MiB
	}{
		{memory: 0, inflight: 256, body: 64},
		{memory: 64 << 30, inflight: 256, body: 64},
		{memory: 2 << 30, inflight: 256, body: 64},
		{memory: 1<<30 + 1, inflight: 128, body: 32},
		{memory: 256 * mebi, inflight: 32, body: 8},
		{memory: 16 * mebi, inflight: 8, body: 2},
		{memory: 256 * mebi, args: []string{"--max-inflight-bytes=100MiB"}, inflight: 100, body: 8},
		{memory: 256 * mebi, args: []string{"--max-inflight-bytes=0"}, inflight: 0, body: 8},
		{memory: 256 * mebi, args: []string{"--max-body-bytes=30MiB"}, inflight: 32, body: 30},
		{memory: 256 * mebi, args: []string{"--max-record-bytes=16MiB"}, inflight: 32, body: 32},
	} {
		cmd := newServeCmd()
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		opt := serveOptions{}
		values, err := opt.load(cmd)
		if err != nil {
			t.Fatal(err)
		}
		fitLimits(&opt.Limits, c.memory, values)
		want := api.DefaultLimits()
		want.MaxInflightBytes, want.MaxBodyBytes, want.MaxRecordBytes = c.inflight*mebi, c.body*mebi, opt.Limits.MaxRecordBytes
		if opt.Limits != want {
			t.Errorf("%d bytes, %v: %+v\nwant %+v", c.memory, c.args, opt.Limits, want)
		}
	}
}

// A record that no body has room for is no mistake, as an upload has it, but hardly what is meant.
func TestARecordThatNoBodyHoldsIsToldAtTheStart(t *testing.T) {
	for _, c := range []struct {
		record int
		told   bool
	}{{64 << 20, false}, {64<<20 + 1, true}} {
		var log bytes.Buffer
		l := api.DefaultLimits()
		l.MaxRecordBytes = c.record
		warnLimits(&l, newLog(&log, "text", slog.LevelInfo))
		if strings.Contains(log.String(), "max_record_bytes is more than max_body_bytes") != c.told {
			t.Errorf("records of %d bytes: %q", c.record, log.String())
		}
	}
}
