// Package library shows the library at work on real servers: what its producers,
// its pools and its tools do there under load, failure and change.
package library
