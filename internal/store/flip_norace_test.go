//go:build !race

package store

const flipEvery = 1
