// Package dash is the dashboard: a page, what it shows now, and what it has shown within
// the last hour. It knows nothing of where the numbers come from; a Source reads them.
package dash

// Reading is what a Source reads at one moment. Totals count up for ever.
type Reading struct {
	Server  *Server
	Streams []Stream
	More    bool // there are more streams than these
}

// Server is what a weir server says of itself.
type Server struct {
	Version     string   `json:"version"`
	UptimeMS    int64    `json:"uptime_ms"`
	Ready       bool     `json:"ready"`
	Writable    bool     `json:"writable"`
	Why         string   `json:"why,omitempty"` // it is not writable
	Pressure    float64  `json:"pressure"`
	Depth       float64  `json:"pressure_depth"`
	Latency     float64  `json:"pressure_latency"`
	Pool        float64  `json:"pressure_pool"`
	Rung        int      `json:"rung"`
	Bands       []int    `json:"bands"`
	Deferred    int      `json:"deferred"`
	Connections int64    `json:"connections"`
	Lagged      int64    `json:"lagged"`
	DiskFree    *int64   `json:"disk_free_bytes"` // nil: not known
	DiskReserve int64    `json:"disk_reserve_bytes"`
	FsyncMS     *float64 `json:"fsync_ms"` // mean since the last reading; nil: there was none
	PushMS      *float64 `json:"push_ms"`  // likewise: from a record to its push

	Fsyncs, Pushes        int64   `json:"-"` // totals, and the milliseconds they took
	FsyncTotal, PushTotal float64 `json:"-"`
}

// Stream is one stream and a group of workers on it. A nil number is not known, which is
// not 0.
type Stream struct {
	ID         string `json:"id"` // begins with the name
	Name       string `json:"name"`
	Server     string `json:"server,omitempty"` // where it is, if not here
	Group      string `json:"group,omitempty"`
	Kind       string `json:"kind"` // queue, log, or the kind of its backend
	Durability string `json:"durability,omitempty"`
	Paused     bool   `json:"paused,omitempty"` // workers are given nothing on purpose
	Stored     *int64 `json:"stored"`
	Lag        *int64 `json:"lag"`     // delivered to nobody
	Pending    *int64 `json:"pending"` // delivered, not finished
	Signal     *int64 `json:"signal"`  // what lag_warn and lag_pause are compared with; nil: no worker
	Workers    *int   `json:"workers"` // connected, if that is known
	// SilentMS is for how long there was no sign of the workers that hold something, if that
	// is longer than they are believed to be there without one.
	SilentMS *int64   `json:"silent_ms"`
	OldestMS *int64   `json:"oldest_age_ms"` // age of the oldest unfinished message
	Dead     *int64   `json:"dead_letters"`
	InRate   *float64 `json:"in_per_second"`
	OutRate  *float64 `json:"out_per_second"`
	Refusals *float64 `json:"refused_per_second"`
	Control  *Control `json:"control,omitempty"`
	// RefusedBy is how many messages are refused per second, by reason.
	RefusedBy map[string]float64 `json:"refused_by,omitempty"`
	Letters   string             `json:"letters_of,omitempty"` // the ID of the queue whose dead letters these are
	Failing   int                `json:"failing_webhooks,omitempty"`
	Error     string             `json:"error,omitempty"` // why there are no numbers

	In, Out, Refused float64            `json:"-"` // totals; NaN if not known
	Reasons          map[string]float64 `json:"-"` // of Refused
}

// Foreign reports whether only consumers are there that are not weir's: they do not say what
// they hold.
func (s *Stream) Foreign() bool {
	return s.Signal == nil && s.Pending == nil && s.Workers != nil && *s.Workers > 0
}

// Deserted reports whether messages wait and no worker asks for them. Dead letters wait for somebody to look.
func (s *Stream) Deserted() bool {
	return s.Letters == "" && s.Signal == nil && s.Lag != nil && *s.Lag > 0 && !s.Foreign()
}

// Control is what a guard does that holds the wait of messages.
type Control struct {
	SLOMS   int64    `json:"wait_slo_ms"`
	WaitMS  *float64 `json:"wait_ms"`
	Drain   *float64 `json:"drain_per_second"`
	Refused float64  `json:"refused_share"`
	Cut     string   `json:"cut"`   // the lowest priority that passes
	Tiers   []Tier   `json:"tiers"` // the most important first
}

// Tier is what a guard does with one priority.
type Tier struct {
	Name     string   `json:"name"`
	Offers   *float64 `json:"offered_per_second"`
	Refusals *float64 `json:"refused_per_second"`

	Offered, Refused float64 `json:"-"` // totals
}

// State is what the page shows.
type State struct {
	At       int64     `json:"ts_ms"`
	Key      string    `json:"key,omitempty"`  // of whoever looks, without its secret
	Page     string    `json:"page,omitempty"` // tells the files of the page from those of another version
	LagWarn  int64     `json:"lag_warn"`
	LagPause int64     `json:"lag_pause"`
	Server   *Server   `json:"server"`
	Streams  []Stream  `json:"streams"`
	More     bool      `json:"more"`
	Findings []Finding `json:"findings"`
}

// Finding is something that is wrong, and what to do.
type Finding struct {
	Severity string `json:"severity"` // error or warning
	Stream   string `json:"stream,omitempty"`
	What     string `json:"what"`
	Do       string `json:"do"`
}
