// Package weir is a stream queue that stays quick and loses nothing when there
// is more work than workers.
//
// Package open returns a Stream for a URL:
//
//	mem://orders                                      in this process, gone with it
//	file:///var/lib/weir?topic=orders                 in this process, durable
//	redis://localhost:6379/0?stream=orders&group=pay  a Redis stream and a consumer group on it
//	http://localhost:4000/orders                      a queue of a weir server
//
// Everything below works on all of them. This package imports none of them: a
// program that knows its backend opens that and calls New, and builds no other.
//
// # Publishing
//
// A Producer publishes behind a guard. The guard reads one number, how much work
// the workers have on their hands, at most every 100 ms. Above a soft limit a
// publish sleeps once; above a hard limit it waits until the workers have caught
// up; while the queue is too deep it looks again a few times; after that it is
// refused. A refusal is always a *QueueFullError, which says why and when to
// come back, and means that nothing was stored. ErrOutcomeUnknown means that
// nobody can say: publish again with the same IdempotencyKey. No publish waits
// past its context.
//
// # Working
//
// A Pool runs a Handler for each message. Before it reads anything new, every
// read takes over what has lain too long with a worker that gives no sign of
// life, so a pool of N workers heals what M crashed ones left without another
// process. A heartbeat keeps a slow handler's message. A handler's error or
// panic gives the message back, to be tried again after a growing delay; after
// three deliveries it is moved to the dead letters, stored there before it
// leaves the stream. Messages are delivered at least once: a handler has to bear
// a repeat.
//
// When Run's context ends, the pool reads nothing more, hands back what no
// handler has begun without counting it, and lets the others finish.
//
// # Looking
//
// Stream.Pressure is one reading: what is pending, what lags, how old the oldest
// of it is, and how sure that is. What a server does not know is nil and never
// 0. Stream.DeadLetters lists, sends back and removes dead letters. Hooks are
// called when something happens; package telemetry turns them into Prometheus
// metrics.
package weir
