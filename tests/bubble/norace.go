//go:build !race

package bubble

const detecting = false
