package redis

import (
	"fmt"
	"strings"
)

// Fields of an entry that are not headers.
const (
	fieldData = "data"
)

// keys are the names of everything weir keeps for one stream and group. All are in the
// slot of the stream, so that scripts can use them together.
type keys struct {
	stream  string // as the user wrote it
	group   string
	lag     string // pending count, written by workers (string, expires)
	room    string // what producers may append before they read again (hash, expires; see room.lua)
	offered string // what the producers of all processes were offered, by tier and key (string of 32-bit counters, expires; see tally.go)
	window  string // requests in the window that all processes share (string, expires with the window)
	dead    string // dead letters (stream)
	retry   string // what is known about failed deliveries (hash: ID -> "<due ms> <error>", see settle.lua)
	trimmed string // what weir has removed from the stream (hash)
	about   string // what weir knows about the stream (hash, see roster.go)
	workers string // the consumers of the group that are weir's (hash: name -> how long its leases last in ms)
	later   string // messages that are not due (sorted set: see keep.lua, by when they are, Unix ms)
	wake    string // gets an entry when another of these is the first to become due (stream of one)
	shards  string // into how many streams a sharded stream is divided, kept with the first (hash: first, now)
	idem    string // prefix of one key per idempotency key (string: ID of the entry, expires) or source (see place.lua)
}

// keysOf names the keys for a stream and a group.
func keysOf(stream, group string) (keys, error) {
	prefix, err := slotPrefix(stream)
	if err != nil {
		return keys{}, err
	}
	return keys{
		stream:  stream,
		group:   group,
		lag:     prefix + ":lag:" + group,
		room:    prefix + ":room:" + group,
		offered: prefix + ":offered:" + group,
		window:  prefix + ":window",
		dead:    prefix + ":dlq",
		retry:   prefix + ":retry:" + group,
		trimmed: prefix + ":trimmed",
		about:   prefix + ":weir",
		workers: prefix + ":workers:" + group,
		later:   prefix + ":later",
		wake:    prefix + ":wake",
		shards:  prefix + ":shards",
		idem:    prefix + ":idem:",
	}, nil
}

// slotPrefix returns a prefix whose keys all hash to the slot of stream: a hash tag made
// of the name, or the name itself if it has a tag. No two streams share a prefix.
func slotPrefix(stream string) (string, error) {
	if !strings.ContainsAny(stream, "{}") {
		return "{" + stream + "}", nil
	}
	_, rest, _ := strings.Cut(stream, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !closed || tag == "" || strings.Count(stream, "{") != strings.Count(stream, "}") {
		return "", fmt.Errorf("stream %q: an unpaired or empty pair of braces is no hash tag; use {tag} once, or no braces", stream)
	}
	if stream == "{"+tag+"}" {
		return stream + "}", nil // the bare name is the prefix of the stream called tag; no stream can have this one as its name
	}
	return stream, nil
}
