package wal

import "errors"

// Close writes and syncs everything appended, wakes every waiter and returns
// once all of the log's goroutines have ended.
func (l *Log) Close() error {
	if l.look {
		return l.closeFiles()
	}
	l.mu.Lock()
	if l.mu.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.mu.closed = true
	l.block(blockClosed)
	lsn, gen := l.mu.nextLSN-1, l.gen.Load()
	var err error
	if l.mu.broken != nil {
		err = l.mu.cause
	}
	l.mu.Unlock()
	l.wakeAll()
	if err == nil {
		err = l.waitLocal(lsn, gen, Synced)
	}
	l.mu.Lock()
	l.mu.done = true
	release(&l.mu.shipping)
	l.mu.Unlock()
	close(l.stop)
	l.wg.Wait()
	l.writeMark(true)
	err = errors.Join(err, l.closeFiles())
	if l.watched != nil {
		close(l.unwatch)
		<-l.watched
	}
	return err
}

func (l *Log) closeFiles() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	if l.marks.file != nil {
		errs = append(errs, l.marks.file.Close())
	}
	if l.mu.spare != nil {
		errs = append(errs, l.mu.spare.file.Close())
	}
	if l.tail != nil {
		l.tail.closeLocked()
	}
	for _, s := range append(l.mu.segs, l.mu.retired...) {
		if h := s.file.Load(); h != nil {
			errs = append(errs, h.Close())
		}
	}
	empty := map[uint32]*segment{}
	l.table.Store(&empty)
	return errors.Join(errs...)
}
