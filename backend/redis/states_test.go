package redis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
)

// stage is one stream with a group "g" on a server of some version.
type stage struct {
	t      *testing.T
	c      *goredis.Client
	stream string
	ids    []string // of the entries, in order
}

// do runs a command in which K is the stream, G the group and #3 the ID of the third entry.
func (s *stage) do(line string) error {
	args := []any{}
	for word := range strings.FieldsSeq(line) {
		var n int
		switch {
		case word == "K":
			word = s.stream
		case word == "G":
			word = "g"
		case strings.HasPrefix(word, "#"):
			if _, err := fmt.Sscanf(word, "#%d", &n); err != nil {
				s.t.Fatal(err)
			}
			word = s.ids[n-1]
		}
		args = append(args, word)
	}
	return s.c.Do(s.t.Context(), args...).Err()
}

func (s *stage) add(n int) {
	s.t.Helper()
	for range n {
		s.ids = append(s.ids, fmt.Sprintf("%d-0", len(s.ids)+1))
		if err := s.do(fmt.Sprintf("XADD K #%d n v", len(s.ids))); err != nil {
			s.t.Fatal(err)
		}
	}
}

// behind counts by hand what lies behind the group's last delivered entry.
func (s *stage) behind() int64 {
	s.t.Helper()
	groups, err := s.c.Do(s.t.Context(), "XINFO", "GROUPS", s.stream).Slice()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, g := range groups {
		fields, m := []any{}, map[string]any{}
		switch g := g.(type) {
		case []any:
			fields = g
		case map[any]any:
			for k, v := range g {
				fields = append(fields, k, v)
			}
		}
		for i := 0; i+1 < len(fields); i += 2 {
			m[fields[i].(string)] = fields[i+1]
		}
		if m["name"] != "g" {
			continue
		}
		var last, seq uint64
		if _, err := fmt.Sscanf(m["last-delivered-id"].(string), "%d-%d", &last, &seq); err != nil {
			s.t.Fatal(err)
		}
		all, err := s.c.XRange(s.t.Context(), s.stream, fmt.Sprintf("%d-%d", last, seq+1), "+").Result()
		if err != nil {
			s.t.Fatal(err)
		}
		return int64(len(all))
	}
	s.t.Fatal("no group g")
	return 0
}

// states are streams as they are met: what happened to each, in the words of stage.do.
// "+5" adds five entries; a line that starts with "?" may be refused by an old server.
var states = map[string]string{
	"never written":                               "XGROUP CREATE K G 0 MKSTREAM",
	"never read":                                  "XGROUP CREATE K G 0 MKSTREAM; +5",
	"group at 0 of a full stream":                 "+5; XGROUP CREATE K G 0",
	"group at $":                                  "+5; XGROUP CREATE K G $",
	"group at $, more came":                       "+5; XGROUP CREATE K G $; +3",
	"group at $, more came, one read":             "+5; XGROUP CREATE K G $; +3; XREADGROUP GROUP G c COUNT 1 STREAMS K >",
	"group at $, all read":                        "+5; XGROUP CREATE K G $; +3; XREADGROUP GROUP G c COUNT 9 STREAMS K >",
	"group at $, all read, more came":             "+5; XGROUP CREATE K G $; +3; XREADGROUP GROUP G c COUNT 9 STREAMS K >; +2",
	"group at $ of an empty stream":               "XGROUP CREATE K G $ MKSTREAM; +4",
	"group in the middle":                         "+6; XGROUP CREATE K G #3",
	"group in the middle, one read":               "+6; XGROUP CREATE K G #3; XREADGROUP GROUP G c COUNT 1 STREAMS K >",
	"group in the future":                         "+3; XGROUP CREATE K G 99-0",
	"group in the future, more came":              "+3; XGROUP CREATE K G 99-0; +2",
	"group set back":                              "XGROUP CREATE K G 0 MKSTREAM; +5; XREADGROUP GROUP G c COUNT 5 STREAMS K >; XGROUP SETID K G #2",
	"group set to 0 again":                        "XGROUP CREATE K G 0 MKSTREAM; +5; XREADGROUP GROUP G c COUNT 5 STREAMS K >; XGROUP SETID K G 0",
	"group set to $":                              "XGROUP CREATE K G 0 MKSTREAM; +5; XGROUP SETID K G $; +1",
	"some read":                                   "XGROUP CREATE K G 0 MKSTREAM; +5; XREADGROUP GROUP G c COUNT 2 STREAMS K >",
	"all read":                                    "XGROUP CREATE K G 0 MKSTREAM; +5; XREADGROUP GROUP G c COUNT 5 STREAMS K >",
	"read without acknowledging":                  "XGROUP CREATE K G 0 MKSTREAM; +5; XREADGROUP GROUP G c COUNT 3 NOACK STREAMS K >",
	"first unread deleted":                        "XGROUP CREATE K G 0 MKSTREAM; +5; XDEL K #1",
	"middle unread deleted":                       "XGROUP CREATE K G 0 MKSTREAM; +5; XDEL K #3",
	"last unread deleted":                         "XGROUP CREATE K G 0 MKSTREAM; +5; XDEL K #5",
	"all unread deleted":                          "XGROUP CREATE K G 0 MKSTREAM; +3; XDEL K #1 #2 #3",
	"all unread deleted, more came":               "XGROUP CREATE K G 0 MKSTREAM; +3; XDEL K #1 #2 #3; +2",
	"some read, next deleted":                     "XGROUP CREATE K G 0 MKSTREAM; +5; XREADGROUP GROUP G c COUNT 2 STREAMS K >; XDEL K #3",
	"some read, middle of unread deleted":         "XGROUP CREATE K G 0 MKSTREAM; +6; XREADGROUP GROUP G c COUNT 2 STREAMS K >; XDEL K #4",
	"some read, last deleted":                     "XGROUP CREATE K G 0 MKSTREAM; +5; XREADGROUP GROUP G c COUNT 2 STREAMS K >; XDEL K #5",
	"some read, last deleted, more came":          "XGROUP CREATE K G 0 MKSTREAM; +5; XREADGROUP GROUP G c COUNT 2 STREAMS K >; XDEL K #5; +2",
	"some read, rest deleted":                     "XGROUP CREATE K G 0 MKSTREAM; +4; XREADGROUP GROUP G c COUNT 2 STREAMS K >; XDEL K #3 #4",
	"deleted middle was passed by":                "XGROUP CREATE K G 0 MKSTREAM; +6; XDEL K #2; XREADGROUP GROUP G c COUNT 2 STREAMS K >",
	"deleted middle was passed by, more came":     "XGROUP CREATE K G 0 MKSTREAM; +6; XDEL K #2; XREADGROUP GROUP G c COUNT 2 STREAMS K >; +3",
	"deleted first, then read":                    "XGROUP CREATE K G 0 MKSTREAM; +6; XDEL K #1; XREADGROUP GROUP G c COUNT 2 STREAMS K >",
	"deleted last, then all read":                 "XGROUP CREATE K G 0 MKSTREAM; +6; XDEL K #6; XREADGROUP GROUP G c COUNT 9 STREAMS K >; +2",
	"pending deleted, first":                      "XGROUP CREATE K G 0 MKSTREAM; +6; XREADGROUP GROUP G c COUNT 3 STREAMS K >; XDEL K #1",
	"pending deleted, last":                       "XGROUP CREATE K G 0 MKSTREAM; +6; XREADGROUP GROUP G c COUNT 3 STREAMS K >; XDEL K #3",
	"pending deleted, all":                        "XGROUP CREATE K G 0 MKSTREAM; +6; XREADGROUP GROUP G c COUNT 3 STREAMS K >; XDEL K #1 #2 #3",
	"acknowledged deleted":                        "XGROUP CREATE K G 0 MKSTREAM; +6; XREADGROUP GROUP G c COUNT 3 STREAMS K >; XACK K G #1 #2; XDEL K #1 #2",
	"trimmed below the cursor":                    "XGROUP CREATE K G 0 MKSTREAM; +6; XREADGROUP GROUP G c COUNT 3 STREAMS K >; XTRIM K MAXLEN 4",
	"trimmed at the cursor":                       "XGROUP CREATE K G 0 MKSTREAM; +6; XREADGROUP GROUP G c COUNT 3 STREAMS K >; XTRIM K MAXLEN 3",
	"trimmed above the cursor":                    "XGROUP CREATE K G 0 MKSTREAM; +6; XREADGROUP GROUP G c COUNT 3 STREAMS K >; XTRIM K MAXLEN 2",
	"trimmed above the cursor, one read":          "XGROUP CREATE K G 0 MKSTREAM; +9; XREADGROUP GROUP G c COUNT 3 STREAMS K >; XTRIM K MAXLEN 3; XREADGROUP GROUP G c COUNT 1 STREAMS K >",
	"trimmed above, read on, much more came":      "XGROUP CREATE K G 0 MKSTREAM; +9; XTRIM K MAXLEN 3; XREADGROUP GROUP G c COUNT 1 STREAMS K >; +20",
	"trimmed above the cursor, all read, more":    "XGROUP CREATE K G 0 MKSTREAM; +9; XTRIM K MAXLEN 3; XREADGROUP GROUP G c COUNT 9 STREAMS K >; +4",
	"trimmed to nothing":                          "XGROUP CREATE K G 0 MKSTREAM; +5; XTRIM K MAXLEN 0",
	"trimmed to nothing, more came":               "XGROUP CREATE K G 0 MKSTREAM; +5; XTRIM K MAXLEN 0; +2",
	"never read, trimmed":                         "XGROUP CREATE K G 0 MKSTREAM; +20; XTRIM K MAXLEN 1",
	"written with MAXLEN":                         "XGROUP CREATE K G 0 MKSTREAM; +8; XADD K MAXLEN 3 100-0 n v",
	"written with MAXLEN while read":              "XGROUP CREATE K G 0 MKSTREAM; +8; XREADGROUP GROUP G c COUNT 2 STREAMS K >; XADD K MAXLEN 3 100-0 n v; XREADGROUP GROUP G c COUNT 1 STREAMS K >",
	"trimmed by ID":                               "XGROUP CREATE K G 0 MKSTREAM; +8; XREADGROUP GROUP G c COUNT 2 STREAMS K >; ?XTRIM K MINID 6-0",
	"last ID set ahead":                           "XGROUP CREATE K G 0 MKSTREAM; +5; XREADGROUP GROUP G c COUNT 2 STREAMS K >; XSETID K 50-0",
	"last ID set ahead, with a count":             "XGROUP CREATE K G 0 MKSTREAM; +5; XREADGROUP GROUP G c COUNT 2 STREAMS K >; ?XSETID K 50-0 ENTRIESADDED 100 MAXDELETEDID 0-0",
	"several groups, this one behind":             "XGROUP CREATE K other 0 MKSTREAM; XGROUP CREATE K G 0; +6; XREADGROUP GROUP other c COUNT 6 STREAMS K >; XREADGROUP GROUP G c COUNT 2 STREAMS K >",
	"several groups, this one ahead":              "XGROUP CREATE K other 0 MKSTREAM; XGROUP CREATE K G 0; +6; XREADGROUP GROUP G c COUNT 6 STREAMS K >",
	"several groups, deleted behind one":          "XGROUP CREATE K other 0 MKSTREAM; XGROUP CREATE K G 0; +6; XREADGROUP GROUP G c COUNT 4 STREAMS K >; XDEL K #2 #5",
	"made again in the middle":                    "XGROUP CREATE K G 0 MKSTREAM; +6; XREADGROUP GROUP G c COUNT 4 STREAMS K >; XGROUP DESTROY K G; XGROUP CREATE K G #2",
	"made at 0 after a trim":                      "+6; XTRIM K MAXLEN 3; XGROUP CREATE K G 0",
	"made at 0 after a deletion":                  "+6; XDEL K #2; XGROUP CREATE K G 0; XREADGROUP GROUP G c COUNT 2 STREAMS K >",
	"deleted, the rest acknowledged and trimmed":  "XGROUP CREATE K G 0 MKSTREAM; +8; XDEL K #6; XREADGROUP GROUP G c COUNT 3 STREAMS K >; XACK K G #1 #2 #3; XTRIM K MAXLEN 4",
	"a group of its own count, made with entries": "+5; ?XGROUP CREATE K G #2 ENTRIESREAD 2; ?XGROUP CREATE K G #2",
}

func (s *stage) play(script string) {
	s.t.Helper()
	for line := range strings.SplitSeq(script, ";") {
		line = strings.TrimSpace(line)
		var n int
		if _, err := fmt.Sscanf(line, "+%d", &n); err == nil {
			s.add(n)
			continue
		}
		optional := strings.HasPrefix(line, "?")
		if err := s.do(strings.TrimPrefix(line, "?")); err != nil && !optional && err != goredis.Nil {
			s.t.Fatalf("%s: %v", line, err)
		}
	}
}

// The lag is the truth or not known in every state a stream gets into; what a
// guard goes by is the truth always.
func TestLagIsTrueOrUnknownInEveryState(t *testing.T) {
	onEveryServer(t, func(t *testing.T, server *redistest.Server) {
		wrong := 0
		for name, script := range states {
			s := &stage{t: t, c: server.Client(), stream: "s " + name}
			s.stream = strings.ReplaceAll(s.stream, " ", "_")
			s.play(script)
			truth := s.behind()
			b := open(t, server.Addr(), "stream="+s.stream+"&group=g")
			for range 2 { // once as a stranger, once with what the first reading left behind
				var stats backend.Stats
				var signal backend.Signal
				whole(truth, func() (lag *int64, behind int64) {
					var err error
					if stats, err = b.Stats(t.Context()); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					return stats.Lag, stats.Behind
				})
				whole(truth, func() (lag *int64, behind int64) {
					var err error
					if signal, err = b.Signal(t.Context(), 1000); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					return signal.Lag, signal.Behind
				})
				if lag := stats.Lag; lag != nil && *lag != truth || lag == nil && (truth == 0 || stats.Behind != truth) {
					wrong++
					t.Errorf("%s: lag %s, behind %d; by hand %d", name, shown(lag), stats.Behind, truth)
				}
				if lag := signal.Lag; lag != nil && *lag != truth || lag == nil && signal.Behind != truth {
					t.Errorf("%s: signal with lag %s, behind %d; by hand %d", name, shown(lag), signal.Behind, truth)
				}
				if none := stats.OldestSource == backend.AgeNone; none != (truth == 0 && stats.Pending == 0) {
					t.Errorf("%s: %d pending, %d behind, age of %q", name, stats.Pending, truth, stats.OldestSource)
				}
			}
		}
		t.Logf("%d states, %d wrong", len(states), wrong)
	})
}

// whole repeats a reading whose count is short: the server counts for 5 ms, in which a
// busy machine may let it do nothing, and the next reading continues.
func whole(truth int64, read func() (lag *int64, behind int64)) bool {
	for range 100 {
		if lag, behind := read(); lag != nil || behind >= truth {
			return true
		}
	}
	return false
}

func shown(n *int64) string {
	if n == nil {
		return "null"
	}
	return fmt.Sprint(*n)
}

// A count is carried from reading to reading, whatever happens in between.
func TestACountGoesOnWhereItStopped(t *testing.T) {
	onEveryServer(t, func(t *testing.T, server *redistest.Server) {
		s := &stage{t: t, c: server.Client(), stream: "k"}
		s.play("+300; XGROUP CREATE K G #100")
		b := open(t, server.Addr(), "stream=k&group=g")
		before := int64(0)
		check := func(what string) {
			t.Helper()
			truth := s.behind()
			most := max(truth, before) // until all that was delivered since is counted, too
			before = truth
			counted := whole(truth, func() (lag *int64, behind int64) {
				got, err := b.Signal(t.Context(), 1000)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				lag, behind = got.Lag, got.Behind
				if lag == nil && behind > most || lag != nil && *lag != truth {
					t.Errorf("%s: %d behind (lag %s); by hand %d", what, behind, shown(lag), truth)
				}
				if behind > truth {
					return lag, 0
				}
				return lag, behind
			})
			if !counted {
				t.Errorf("%s: no reading counts just %d", what, truth)
			}
		}
		check("at first")
		check("again")
		s.play("+70")
		check("more came")
		s.play("XREADGROUP GROUP G c COUNT 120 STREAMS K >")
		check("some were read")
		s.play("XREADGROUP GROUP G c COUNT 1000 STREAMS K >")
		check("all were read")
		s.play("+150")
		check("more came again")
		s.play("XGROUP SETID K G #50")
		check("the group was set back")
		counted := whole(120, func() (lag *int64, behind int64) {
			got, err := b.Signal(t.Context(), 120)
			if err != nil {
				t.Fatalf("with a limit of 120: %v", err)
			}
			return got.Lag, got.Behind
		})
		if !counted {
			t.Error("no reading with a limit of 120 counts so many")
		}
	})
}

// Idle workers that are through with everything never let a stream of any age
// look full.
func TestALongStreamWhoseGroupBeganAtItsEndIsNotFull(t *testing.T) {
	onEveryServer(t, func(t *testing.T, server *redistest.Server) {
		ctx := context.Background()
		c := server.Client()
		pipe := c.Pipeline()
		for range 12_000 {
			pipe.XAdd(ctx, &goredis.XAddArgs{Stream: "jobs", Values: []string{"data", "x"}})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.XGroupCreate(ctx, "jobs", "weir", "$").Err(); err != nil {
			t.Fatal(err)
		}
		p, err := weir.NewProducer(weir.New(open(t, server.Addr(), "stream=jobs")), weir.ProducerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for range 3 {
			if err := p.Publish(ctx, weir.Message{Data: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
