//go:build race

package overload

func init() { raced = true }
