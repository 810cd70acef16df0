// Package sim is the deterministic simulation of the engine: one seed drives
// operations, time, clock jumps, failing disks, kills and power cuts over a
// file system in memory, and a model in plain Go says what every answer must
// be. Its code is in the tests. Ephemeral topics keep
// their class, and what expires while a disk fails is looked at once it works.
//
//	go test ./tests/sim -seeds 100     # that many seeds
//	go test ./tests/sim -seed 17 -v    # replay one
//	go test ./tests/sim -for 8h -timeout 9h -first 1000
package sim
