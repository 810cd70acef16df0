// Package postgrestest starts real PostgreSQL servers for tests, of the version that the
// machine has. They listen on free loopback ports, have directories of their own, sync what
// they commit and end with the test. PostgreSQL does not run as root: for root, the servers
// run as the user postgres.
package postgrestest
