package server

import (
	"archive/tar"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/weirmq/weir/internal/api"
)

// postBackup streams a consistent copy of the data directory as a tar:
//
//	POST /admin/backup → 200 application/x-tar
//
// It needs the admin scope and a key without prefixes, since the copy holds
// every topic. Everything acknowledged before the call is in it. The tar's
// paths are relative to the data directory; one that ends without its two
// blocks of zeros was cut off and is worthless, which is also why a failure
// under way breaks the connection.
func (q *request) postBackup() error {
	if q.key.limited() {
		return api.Errorf(api.CodeForbidden, "a backup holds every topic; use a key without prefixes")
	}
	// Beside the data directory, so that the engine can link files into it.
	tmp, err := os.MkdirTemp(filepath.Dir(filepath.Clean(q.s.dataDir)), ".weir-backup-")
	if err != nil {
		return fmt.Errorf("making room for the backup: %w", err)
	}
	defer q.s.removeBackup(tmp)
	q.mayWait()
	dir := filepath.Join(tmp, "data")
	if err := q.eng.Backup(q.r.Context(), dir); err != nil {
		return err
	}
	q.w.Header()["Content-Type"] = headerTar
	q.sent = true
	tw := tar.NewWriter(q.w)
	if err = errors.Join(tw.AddFS(os.DirFS(dir)), tw.Close()); err != nil {
		q.s.log.Warn("a backup was cut off", "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

func (s *Server) removeBackup(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		s.log.Error("a finished backup could not be removed; delete it by hand", "dir", dir, "error", err)
	}
}
