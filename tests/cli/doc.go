// Package cli tests the commands of the real weir binary, each as a process of
// its own against a real server, through kills of either.
package cli
