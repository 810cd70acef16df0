// Package backendtest holds what every backend is tested with: Run, the
// conformance suite, and Fake, a backend in memory that can be told to misbehave.
package backendtest
