package server

import (
	"archive/tar"
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// backupPatience is how long a client may stop reading its backup, during which the
// space of dropped data is not freed.
const backupPatience = 5 * time.Minute

// postBackup streams the data directory at one position of the log as a tar:
//
//	POST /admin/backup?rate=BYTES → 200 application/x-tar
//
// It needs the admin scope and a key without prefixes, since the copy holds every
// topic. It contains everything acknowledged before the call. It sends at most rate
// bytes per second, 32 MiB if the parameter is absent; 0 means no limit. The tar's
// paths are relative to the data directory, and its last file is the manifest. A tar
// without its final two blocks of zeros was cut off and is worthless, which is why a
// failure midway breaks the connection.
func (q *request) postBackup() error {
	if q.key.limited() {
		return api.Errorf(api.CodeForbidden, "a backup holds every topic; use a key without prefixes")
	}
	rate, err := q.backupRate()
	if err != nil {
		return err
	}
	defer q.mayTakeLong()()
	s, err := q.eng.Snapshot(q.r.Context())
	if err != nil {
		return err
	}
	defer func() {
		if err := s.Close(); err != nil {
			q.s.log.Error(err.Error())
		}
	}()
	q.patience = backupPatience
	q.w.Header()["Content-Type"] = headerTar
	q.warnInHead()
	q.sent = true
	if err := q.sendBackup(q.r.Context(), s, rate); err != nil {
		q.s.log.Warn("a backup was cut off", "error", err)
		panic(http.ErrAbortHandler)
	}
	q.s.backedUp.Store(time.Now().UnixMilli())
	return nil
}

func (q *request) backupRate() (int64, error) {
	v, err := q.query()
	if err != nil {
		return 0, err
	}
	text := v.Get("rate")
	if text == "" {
		return engine.BackupRate, nil
	}
	rate, perr := strconv.ParseInt(text, 10, 64)
	if perr != nil || rate < 0 {
		return 0, api.Errorf(api.CodeInvalidRequest, "rate is %q; give bytes per second as a number, or 0 for no limit", text)
	}
	return rate, nil
}

func (q *request) sendBackup(ctx context.Context, s *engine.Snapshot, rate int64) error {
	tw := tar.NewWriter(q.hurried())
	begun := time.Now()
	err := s.Copy(ctx, rate, func(name string, size int64, content io.Reader) error {
		if err := tw.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600, ModTime: begun, Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err := io.Copy(tw, content)
		return err
	})
	if err == nil {
		err = tw.Close()
	}
	return err
}
