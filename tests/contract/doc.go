// Package contract checks a server of the /v0 contract against text files of
// requests and expected replies, one case per rule. It runs against any base
// URL: WEIR_CONTRACT_URL=http://host:port names a foreign server, otherwise the
// test starts the binary itself, one server per distinct set of `env` lines.
// Against a foreign server only cases without env and ! lines run.
//
// Servers with a copy of their log run some of the cases, with WEIR_CONTRACT_COPIED=1 all of
// them on each store that can hold one. With WEIRTEST_REPLICA=file:///tmp/copies/%s each
// server of any test keeps a copy there, a synchronous one with WEIRTEST_REPLICA_SYNC=1.
//
// With WEIR_CONTRACT_RECORD=/tmp/run the cases' exchanges are recorded in that folder, which tests/openapi
// compares with the OpenAPI document.
//
// # Adding a case
//
// Put it into the file of its area in testdata and run `go test ./tests/contract`:
//
//	=== write: an empty batch is refused [§7.1]
//	PUT /v0/topics/$T {}
//	> 201
//	POST /v0/topics/$T {"records":[]}
//	> 400 invalid_request
//
// A case starts with === , a name and the sections of docs/CONTRACT.md it covers. $T, $T1, $T2 … are
// topic names of this case alone, $HOST is the server's host:port. Lines starting with # are comments.
//
// # Requests
//
//	METHOD path [body]     the body is sent as application/json
//	HTTP2 METHOD path …    the same over cleartext HTTP/2
//	+ text                 below a request: one more line of its body
//	x6 METHOD path …       six times; $i is the round, from 1
//	Name: value            below a request: a header; Host and
//	                       Transfer-Encoding: chunked work too
//	-Name                  below a request: the header is not sent
//	RAW                    below it lines "| text": sent as they are with CRLF,
//	                       Go escapes allowed; a last \ suppresses the CRLF
//
// Inside a body (the first also in a path): @fill(1000, x) repeats a text, @list(10001, {"data":#}) repeats
// an element with commas (# is its number), @nest(127) is nested arrays, and
// @hex(efbbbf) is bytes. A body starting with @gzip is compressed and marked so;
// @empty is no bytes.
//
// # Expectations
//
//	> 201                          status; 400|405 allows both
//	> 400 invalid_request          status and code
//	> 400 bare                     status only: the body may come from the HTTP layer
//	> body {"count":2,"x":absent}  the members given must match; others may be there
//	> header Name: value           exactly; Name: * means present
//	> header Name absent
//	> header Name has text         the text is somewhere in the value
//	> text contains some words     in the body as text; also "text lacks some words"
//	> empty                        no body at all
//	> closed                       RAW: the server then closes the connection
//	> after 100ms, > within 1s     how long the answer took
//	> save lease claimed[0].lease_id    later $lease stands for that value
//
// In a body pattern * is any value, *int *number *string *bool *object *array a
// value of that type, *lease a lease id, now+500 a time in ms about that far from now, absent no such member, 1..9 a number in
// that range, ~"regexp" a string, ... at the end of an array more elements, ! at
// the end of an object nothing else. Everything else is exact JSON; arrays have
// exactly the given length.
//
// # Streams
//
//	OPEN s /v0/watch/$wid          a GET whose event stream stays open under the
//	                               name s; headers and HTTP2 as for a request
//	WS w                           an upgrade of /v0/ws, or of the path behind it
//	ON s                           more expectations about an open stream
//	ON w {"op":"ping"}             sends a message first; @binary, @ping, @close 1000
//	                               and @halves (two fragments) stand before its text
//	CLOSE s                        drops the connection and waits until the server has let
//	                               go of it; the case's end drops it too
//
// Below OPEN and WS the first expectation is the status. If it is not that of an
// open stream, the answer is checked like any other. Then, in this order or below ON:
//
//	> frame record {"to_seq":2}    the next event and a pattern for its data;
//	                               hb is a heartbeat (passed over otherwise), pong a pong,
//	                               retry the first block of a stream that is over at once
//	> message {"op":"pong"}        the next message of a WebSocket
//	> among {"op":"ack"}           the oldest one like this; others stay for later lines
//	> id {"$T":2}                  the last frame's id, decoded, with just these positions
//	> raw-id 7                     the last frame's id as it stands
//	> save-id last                 later $last stands for it
//	> quiet 200ms                  nothing but heartbeats for that time
//	> end, > end 1000              the stream is over (a WebSocket with that code)
//
// text, save, after and within speak of the last frame and of the time since the
// line OPEN, WS or ON. @id({"$T":2}) is the id of these positions. The block retry: 2000,
// the framing and compact data are checked without being said.
//
// Checked for every answer without being said: JSON content type, the shape of
// errors, Retry-After with 429 and 503 alone, `performance` in success bodies of
// the topic endpoints.
//
// # Other lines
//
//	each $V in a | b     one case per value, put in for $V (any letter but T)
//	env KEY=VALUE        the case's server has this setting (before the first step)
//	sleep 150ms          only where the contract is about time; such a case that fails while
//	                     the machine stalls is run again
//	!restart, !kill      SIGTERM or SIGKILL, then a start on the same data
//	!refuses K=V …       the binary with these settings ends with an error
//	!starts K=V …        the binary with these settings gets ready
package contract
