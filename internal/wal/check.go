package wal

// Check is Wait without waiting: ok says that class holds for the operation,
// failed that it never will; neither says that it is not decided yet.
func (l *Log) Check(lsn, gen uint64, class Class) (ok, failed bool) {
	if class == Memory {
		return true, false
	}
	class = l.need(class)
	met := l.reached(lsn) >= class
	if l.gen.Load() == gen {
		return met, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.mu.failures {
		f := &l.mu.failures[i]
		if f.gen != gen {
			continue
		}
		if class == Written && lsn <= f.written || class == Synced && lsn <= f.synced {
			return true, false
		}
		if class == Shipped && lsn <= f.synced {
			return met, false
		}
		select {
		case <-f.decided:
			return false, true
		default:
			return false, false
		}
	}
	return false, true
}
