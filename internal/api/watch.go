package api

// WatchTopic is one topic of a watch and where it begins.
type WatchTopic struct {
	Topic   string
	FromSeq uint64
	Tail    bool // begin at the current head; FromSeq is ignored
}

// WatchRequest is what a stream of records is opened with: the body of a watch
// or a WebSocket subscribe, defaults and clamps applied.
type WatchRequest struct {
	Topics  []WatchTopic // ascending by name, each once
	Lenient bool         // unknown topics are left out instead of refused
	WatchOptions
}

// WatchOptions say what the frames of a stream hold.
type WatchOptions struct {
	Nodes         []string // own records to leave out; empty: none
	Limit         int      // records per frame
	MaxBatchBytes int64    // data plus meta per frame; at least one record goes
	HeartbeatMS   int64
	IncludeMeta   bool
	IncludeTags   bool
	IncludeData   bool
	Strong        bool // push only what is synced
	Relay         bool // the frames are for a relay, which also gets what it needs to filter for others
}

// WatchPosition is where a topic of a watch begins, and what it holds then.
type WatchPosition struct {
	Topic       string
	FromSeq     uint64
	HeadSeq     uint64
	EarliestSeq uint64
	Life        uint64 // of the topic, for a relay; 0 for everyone else
}

// WatchResult is the answer to a watch.
type WatchResult struct {
	WID    string          // empty in the answer to a relay, which keeps the session itself
	Keyed  bool            // the call had a key that counted; a relay is told
	Topics []WatchPosition // ascending by name
}

// SessionTTLMS is how long a watch session lives without an open stream.
const SessionTTLMS = 300_000
