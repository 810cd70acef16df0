// Package op holds the logged operations: their bytes, and what each does to
// the durable state of a topic.
//
// An operation is one client call and is all or nothing. It is a sequence of
// parts; at most one of them carries record frames, and that one is last:
//
//	operation = part* [append-part frames]
//	part      = kind u8 · uvarint(length of fields) · fields
//	frames    = frame*                          up to the end of the operation
//	frame     = uvarint(length of what follows) · flags u8
//	            [hops u8] [tier u8] [uvarint · fair key]
//	            [uvarint · tag] [uvarint · node] [uvarint · meta] data
//
// Integers are unsigned varints unless said otherwise. A part names its topic
// by number, never by name, so that a topic that is dropped and created again
// is another one.
//
// State and its Apply methods are the only place where an operation takes
// effect on a topic's durable state: the running engine, the builder of sealed
// segments and recovery all call them, in the order of the log.
package op
