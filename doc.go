// Package weir is a stream queue that stays fast and loses nothing when there is more
// work than the workers can handle.
//
// Package open returns a Stream for a URL:
//
//	mem://orders                                      in this process, lost when it ends
//	file:///var/lib/weir?topic=orders                 in this process, durable
//	redis://localhost:6379/0?stream=orders&group=pay  a Redis stream and a consumer group on it
//	kafka://localhost:9092/orders?group=pay           a Kafka topic and a group on it
//	http://localhost:4000/orders                      a queue of a weir server
//
// Everything below works on all of them; docs/KAFKA.md has what Kafka does not do. This package imports none of them: a program
// that needs only one backend opens it itself, calls New, and does not compile the
// others.
//
// # Publishing
//
// A Producer publishes through a guard. At most every 100 ms, the guard reads one
// number: how much work the workers have on their hands. The adaptive guard, which is the
// default, lets in what the workers finish in time, the more important first, and refuses
// the rest at once. With the static guard a publish sleeps once above a soft limit; above a
// hard limit it waits until the workers have caught up; while the queue is too deep it
// checks a few more times and is then refused. A refusal is always a *QueueFullError,
// which says why and when to try again, and means that nothing was stored.
// ErrOutcomeUnknown means that the message may or may not be stored: publish it again with
// the same IdempotencyKey. No publish waits longer than its context.
//
// # Working
//
// A Pool runs a Handler for each message. Before it claims anything new, each claim
// takes over messages whose workers have given no sign of life for too long, so the
// pool itself recovers what crashed workers left; no other process is needed. A
// heartbeat keeps the messages of slow handlers. A handler's error or panic gives the
// message back, to be retried after a growing delay; after three deliveries it is moved
// to the dead letters, and stored there before it leaves the stream. A message with a
// Deadline goes there, too, if no handler has begun by then. Messages are
// delivered at least once: a handler has to tolerate repeats.
//
// When Run's context ends, the pool claims nothing more, gives back, uncounted, what no
// handler has begun, and lets the others finish.
//
// # Observing
//
// Stream.Pressure is one reading: what is pending, what lags, how old the oldest of it
// is, and how reliable that age is. What a server does not know is nil, never 0.
// Stream.DeadLetters lists, sends back and removes dead letters. Hooks are called when
// something happens; package telemetry turns them into Prometheus metrics.
package weir
