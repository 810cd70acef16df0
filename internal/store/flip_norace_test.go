//go:build !race

package store

const flipEvery = 1

const sealedOps = 4000
