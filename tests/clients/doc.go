// Package clients tests the clients in other languages, of the folder clients, against
// real servers: each is built and installed as its users do it, runs its own tests and
// examples, and moves ten thousand lines while servers and workers are killed.
package clients
