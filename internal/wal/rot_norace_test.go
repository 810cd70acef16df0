//go:build !race

package wal

const rotEvery = 1
