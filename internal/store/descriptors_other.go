//go:build !unix

package store

// openTables returns how many tables are kept open.
func openTables() int { return maxOpenTables }
