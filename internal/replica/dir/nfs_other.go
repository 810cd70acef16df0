//go:build !linux

package dir

func onNFS(string) bool { return false }
