package dir

import "syscall"

// onNFS returns whether a directory is on NFS.
func onNFS(root string) bool {
	const magic = 0x6969
	var st syscall.Statfs_t
	return syscall.Statfs(root, &st) == nil && st.Type == magic
}
