// Package overload judges how a guard deals with more load than the workers can do. The
// scenario is the same on a real backend (weir bench overload) and in virtual time (the
// twin, twin_test.go); only the backend and the clock differ.
//
// # The scenario
//
// Offers arrive as a Poisson process: at 0.7 times what the workers can do, then for the
// plateau at Load times it, then at 0.7 times again. They are drawn from Seed, and every
// arm gets the same ones: the time of each offer, its tier, its key, and how long its
// handler will take, which nobody knows before the handler does. 10, 20, 30 and 40 % of
// the offers are of the priorities critical, high, normal and low; the fairness key is
// one of a thousand users.
//
// # The callers
//
// Each offer is a caller of its own, with its own goroutine and a context that ends at
// Deadline after the intended start, however late the goroutine began: a slow publish
// delays no other. A caller that is refused tries again with the same message, at most
// three times, if that is before its deadline: after the refusal's RetryAfter, or
// Deadline/20 doubled with each try if that is more, plus up to as much again at random.
// After any other error it waits likewise, but if the message may be stored it stops.
// The impatient variant gives each call a quarter of the deadline and tries again at
// once, up to 20 times, whatever RetryAfter says; its messages have idempotency keys.
//
// # The disturbance
//
// The variants halved, slow, impatient and paused disturb the run for a while: as long as
// Scenario.Disturbance says around the middle of the plateau, or the variant's own time.
//
// # The measures
//
// The window of requests is off unless an arm's settings turn it on. Capacity is workers ÷ the
// mean of the service times drawn for what was completed in the plateau, so that a
// lucky draw counts neither for nor against a guard. "In time" is within Deadline of the
// intended start of the first call.
//
//	goodput      completed in time during the plateau ÷ the lesser of offered and capacity
//	tiers        share of the offers of the plateau that were completed in time, by tier
//	latency      intended start to the end of the handler, of the plateau's offers that
//	             were completed before the run's end, in time or not
//	wait         stored messages that no handler has begun ÷ what the workers do per second
//	calm         from the end of the plateau until the wait is below Deadline/10 and stays
//	             there for a Deadline
//	variation    coefficient of variation of the stored messages per bin of a Deadline in
//	             the plateau, without its first bin
//	arrivals     coefficient of variation of all calls per tenth of a deadline in the
//	             plateau, without its first deadline, beyond that of a Poisson process
//	recovery     from the end of the disturbance until the wait is below half a deadline
//	             and stays there for a Deadline
//	refusal      how long a publish took that stored nothing, whether it was refused
//	             or the caller gave up waiting for it, in the plateau
//	lost         publishes that returned nil whose messages no handler got, even after all
//	             that was stored had been handled
//	doubles      handlers begun for a message that had had one
//
// With Expire a message that workers set aside is not lost.
//
// After the run the handlers take no more time, so that what is left is handled soon.
package overload
