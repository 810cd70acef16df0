package wal

// SealedFiles returns the paths of the sealed segments that are not released,
// oldest first. They stay as they are until Release; after Rotate they hold
// everything appended before it.
func (l *Log) SealedFiles() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var paths []string
	for _, s := range l.mu.segs {
		if s.sealed && !s.released {
			paths = append(paths, l.path(segName(s.number)))
		}
	}
	return paths
}
