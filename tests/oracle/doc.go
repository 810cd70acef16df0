// Package oracle judges what a weir server did from the outside. A history is a
// list of operations with the times at which a client sent them and got the
// answer; the Checker holds it against the promises of durability (D1 to D8),
// queues (Q1 to Q6), caps and idempotency.
//
// Every record carries the id of its batch in its data, and its text follows
// from that id, so a changed byte is found without keeping what was written.
// Topic names are used once: a topic that is dropped is never created again.
package oracle
