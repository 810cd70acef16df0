// Package oracle judges what a weir server did from the outside. A history is a
// list of operations with the times at which a client sent them and got the
// answer; the Checker holds it against the promises of durability (D1 to D8),
// queues (Q1 to Q6), of delays, caps, time limits and idempotency, of routers, of topics that
// are deleted and made again, of configurations that change, and of backups.
//
// Every record carries the id of its batch in its data, and its text follows
// from that id, so a changed byte is found without keeping what was written.
// Changes of the configuration of one topic, its deletion and its creation come
// one after the other; everything else may overlap with them.
package oracle
