// Package redistest starts real Redis and Valkey servers for tests and
// benchmarks: single ones of every version that scripts/deps.sh installs,
// a cluster, and a primary with a replica and sentinels. They listen on free
// loopback ports, have directories of their own and end with the test.
//
// Proxy stands between a client and a server and disturbs their connection.
package redistest
