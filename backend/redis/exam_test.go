package redis

import (
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
)

// Where each finding begins, and what lies just in front of that; with its severity, by which
// weir doctor ends with an error or not.
func TestWhereEachFindingBegins(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	keys, err := keysOf("jobs", "weir")
	if err != nil {
		t.Fatal(err)
	}
	read := func(e exam) *exam { // of a group that has read n entries and finished them
		e.keys, e.limit = keys, defaultLimit
		if e.group == nil {
			e.group = &group{hasLag: true, lag: number(0)}
		}
		if e.features == nil {
			e.features = &features{durability: "fsync"}
		}
		return &e
	}
	pending := func(p pendingEntry) *exam { return read(exam{pending: []pendingEntry{p}, deadKind: "stream"}) }
	memory := func(used string) *exam { return read(exam{memory: "used_memory:" + used + "\r\nmaxmemory:1000\r\n"}) }
	consumed := func(c consumer, p ...pendingEntry) *exam { return read(exam{consumers: []consumer{c}, pending: p}) }
	for what, c := range map[string]struct {
		check func(*exam) []backend.Finding
		exam  *exam
		want  string // severity and code; empty: nothing
	}{
		"100,000 done":                     {checkGroup, read(exam{length: 100_000, behind: number(0)}), ""},
		"100,001 done":                     {checkGroup, read(exam{length: 100_001, behind: number(0)}), "warning stream_grows"},
		"ten done for each that is not":    {checkGroup, read(exam{length: 110_000, behind: number(10_000)}), ""},
		"more than ten":                    {checkGroup, read(exam{length: 110_001, behind: number(10_000)}), "warning stream_grows"},
		"idle for less than 5 min":         {checkPending, pending(pendingEntry{idle: 5*time.Minute - 1}), ""},
		"idle for 5 min":                   {checkPending, pending(pendingEntry{idle: 5 * time.Minute}), "warning stuck_pending"},
		"given back, and idle for ever":    {checkPending, pending(pendingEntry{idle: time.Hour, returned: true}), "info given_back"},
		"9 deliveries":                     {checkPending, pending(pendingEntry{count: 9}), ""},
		"10 deliveries":                    {checkPending, pending(pendingEntry{count: 10}), "warning no_limit"},
		"as often as allowed":              {checkDead, read(exam{deadKind: "none", pending: []pendingEntry{{count: 3}}}), ""},
		"more often":                       {checkDead, read(exam{deadKind: "none", pending: []pendingEntry{{count: 4}}}), "warning no_dead_letter"},
		"more often, where letters go":     {checkDead, pending(pendingEntry{count: 4}), ""},
		"letters":                          {checkDead, read(exam{deadKind: "stream", letters: 1}), "info dead_letters"},
		"a consumer silent for an hour":    {checkConsumers, consumed(consumer{name: "a", idle: time.Hour}), "info dead_consumers"},
		"for less":                         {checkConsumers, consumed(consumer{name: "a", idle: time.Hour - 1}), ""},
		"one that holds, for 5 min":        {checkConsumers, consumed(consumer{name: "a", pending: 1, idle: 5 * time.Minute}), "warning dead_consumers_hold"},
		"one that holds, for less":         {checkConsumers, consumed(consumer{name: "a", pending: 1, idle: 5*time.Minute - 1}), ""},
		"one that has given it back":       {checkConsumers, consumed(consumer{name: "a", pending: 1, idle: time.Hour}, pendingEntry{consumer: "a", returned: true}), ""},
		"one that holds another besides":   {checkConsumers, consumed(consumer{name: "a", pending: 2, idle: time.Hour}, pendingEntry{consumer: "a", returned: true}), "warning dead_consumers_hold"},
		"90 % of the memory":               {checkMemory, memory("900"), ""},
		"more":                             {checkMemory, memory("901"), "warning memory_full"},
		"one byte is left":                 {checkMemory, memory("999"), "warning memory_full"},
		"all of it":                        {checkMemory, memory("1000"), "error memory_full"},
		"due for less than 5 min":          {checkDue, read(exam{due: 1, overdue: 5*time.Minute - 1}), ""},
		"due for 5 min":                    {checkDue, read(exam{due: 1, overdue: 5 * time.Minute}), "warning due_unmoved"},
		"work, and no signal":              {checkWorkers, read(exam{behind: number(1)}), "warning no_workers"},
		"work, and a signal":               {checkWorkers, read(exam{behind: number(1), signal: true}), ""},
		"no work, and no signal":           {checkWorkers, read(exam{behind: number(0)}), ""},
		"too much work to count":           {checkWorkers, read(exam{}), "warning no_workers"},
		"a server without a lag":           {checkLag, read(exam{group: &group{}}), "info lag_unsupported"},
		"a lag that is unknown":            {checkLag, read(exam{group: &group{hasLag: true}}), "warning lag_unknown"},
		"disk":                             {checkDurability, read(exam{features: &features{durability: "disk"}}), "info durability"},
		"memory":                           {checkDurability, read(exam{features: &features{durability: "memory"}}), "warning durability"},
		"ephemeral":                        {checkDurability, read(exam{features: &features{durability: "ephemeral"}}), "warning durability"},
		"fsync":                            {checkDurability, read(exam{}), ""},
		"another type of key":              {checkStream, read(exam{kind: "hash"}), "error wrong_type"},
		"another type for letters":         {checkDead, read(exam{deadKind: "hash"}), "error dead_letter_type"},
		"a policy that takes streams":      {checkMemory, read(exam{features: &features{eviction: "allkeys-lru"}}), "error eviction"},
		"a policy that takes keys":         {checkMemory, read(exam{features: &features{eviction: "volatile-lru"}}), "warning key_eviction"},
		"trimmed before it was finished":   {checkTrims, read(exam{dropped: 1}), "error dropped_unacked"},
		"gone while it was pending":        {checkTrims, read(exam{goneCount: 1}), "error trimmed_unacked"},
		"one that others removed unread":   {checkRemoved, read(exam{added: number(10), length: 4, behind: number(4), group: &group{read: number(5)}}), "error trimmed_unread"},
		"none that others removed unread":  {checkRemoved, read(exam{added: number(9), length: 4, behind: number(4), group: &group{read: number(5)}, trims: 5}), ""},
		"those that weir dropped":          {checkRemoved, read(exam{added: number(10), length: 4, behind: number(4), group: &group{read: number(5)}, trims: 6, dropped: 1}), ""},
		"removed in front of a new group":  {checkRemoved, read(exam{added: number(10), length: 4, group: &group{last: cursorStart}, others: true}), "warning begins_behind"},
		"removed where nobody has read":    {checkRemoved, read(exam{added: number(10), length: 4, group: &group{last: cursorStart}}), "error trimmed_unread"},
		"removed by weir where nobody has": {checkRemoved, read(exam{added: number(10), length: 4, group: &group{last: cursorStart}, trims: 6}), ""},
	} {
		var got []string
		for _, f := range c.check(c.exam) {
			got = append(got, f.Severity+" "+f.Code)
			if _, known := remedies[f.Code]; !known {
				t.Errorf("%s: no command helps with %s", what, f.Code)
			}
		}
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
}
