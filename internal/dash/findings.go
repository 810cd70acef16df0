package dash

import (
	"fmt"
	"strconv"
)

const (
	isError   = "error"
	isWarning = "warning"
)

// findings says what is wrong in a reading, errors first.
func findings(r *Reading, cfg Config) []Finding {
	out := []Finding{}
	if s := r.Server; s != nil {
		out = append(out, serverFindings(s)...)
	}
	for i := range r.Streams {
		out = append(out, streamFindings(&r.Streams[i], cfg)...)
	}
	sortFindings(out)
	return out[:min(len(out), maxFindings)]
}

// maxFindings bounds what the page lists.
const maxFindings = 50

func serverFindings(s *Server) (out []Finding) {
	switch {
	case !s.Ready:
		out = append(out, Finding{isWarning, "", "The server is recovering or stopping.", "Wait; readyz says when it is done."})
	case !s.Writable:
		out = append(out, Finding{isError, "", "Writes are refused: " + s.Why + ".", "Free disk space, or delete topics that nobody needs; acks and deletes work meanwhile."})
	case s.DiskFree != nil && s.DiskReserve > 0 && *s.DiskFree < 2*s.DiskReserve:
		out = append(out, Finding{isWarning, "", fmt.Sprintf("The disk is nearly full: %s are free, and writes stop at %s.", size(*s.DiskFree), size(s.DiskReserve)), "Free disk space, or delete topics that nobody needs."})
	}
	if s.Rung >= 3 {
		out = append(out, Finding{isWarning, "", fmt.Sprintf("The server is overloaded: rung %d of 4 is in force.", s.Rung), "See which topics grow fastest below; slow their writers, or give the server more cores."})
	}
	return out
}

func streamFindings(s *Stream, cfg Config) (out []Finding) {
	if s.Error != "" {
		return []Finding{{isError, s.ID, "It cannot be read: " + s.Error, "weir doctor says more."}}
	}
	if s.Kind == "log" {
		return nil
	}
	switch {
	case s.Paused:
		out = append(out, Finding{isWarning, s.ID, "It is paused: its workers are given nothing.", "weir queue resume ends that."})
	case s.Foreign():
		out = append(out, Finding{isWarning, s.ID, plural(int64(*s.Workers), "consumer is", "consumers are") + " in the group and not weir's: what they hold is not known, and guards see no workers.",
			"Their own tools say how they are; the backlog here includes what they hold."})
	case s.Deserted():
		out = append(out, Finding{isError, s.ID, plural(*s.Lag, "message waits", "messages wait") + " and no worker asks for work.", "Start workers: weir work."})
	case s.SilentMS != nil && s.Pending != nil:
		out = append(out, Finding{isWarning, s.ID, fmt.Sprintf("No sign of a worker for %d s, and %s held: its worker is dead, or at it for long.", *s.SilentMS/1000, plural(*s.Pending, "message is", "messages are")),
			"See whether the workers live. Others get what dead ones hold when the leases end; who works for long should extend them."})
	case s.Signal != nil && cfg.LagPause > 0 && *s.Signal >= cfg.LagPause:
		out = append(out, Finding{isWarning, s.ID, fmt.Sprintf("%s being worked on, at or above lag_pause %d: producers with fixed limits pause.", plural(*s.Signal, "message is", "messages are"), cfg.LagPause), "Add workers, or find what slows them."})
	}
	if s.Control != nil && s.Control.Refused >= 0.01 {
		out = append(out, Finding{isWarning, s.ID, fmt.Sprintf("%.0f %% of what is offered is refused: it would wait longer than wait_slo_ms %d.", 100*s.Control.Refused, s.Control.SLOMS), "Add workers; priorities decide who gets through meanwhile."})
	}
	if s.Failing > 0 {
		out = append(out, Finding{isWarning, s.ID, plural(int64(s.Failing), "webhook of it fails", "webhooks of it fail") + ": no delivery succeeds, and the jobs are tried one at a time.",
			"weir webhook info says what the receiver answers; mend that, and they go on by themselves."})
	}
	if s.Dead != nil && *s.Dead > 0 {
		out = append(out, Finding{isWarning, s.ID, plural(*s.Dead, "dead letter", "dead letters") + ".", "Its page shows why, and sends them back once their handler is mended; so does weir dlq."})
	}
	return out
}

// size writes bytes for people.
func size(bytes int64) string {
	if bytes >= 10_000_000_000 {
		return fmt.Sprintf("%.0f GB", float64(bytes)/1e9)
	}
	return fmt.Sprintf("%.0f MB", float64(bytes)/1e6)
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + many
}
