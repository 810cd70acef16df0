// Package weirtest runs the real weir binary for tests: it builds it once per
// test process, starts servers on free loopback ports with data directories of
// their own, and stops, kills and restarts them.
//
// Three variables steer it: WEIRTEST_BINARY names a binary to use instead of
// building one, WEIRTEST_RACE=1 builds with the race detector, and
// WEIRTEST_STDERR=1 copies the servers' standard error to that of the test.
package weirtest
