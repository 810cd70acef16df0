package wal

// Look reads a log that no process has open, from after on, and changes
// nothing: a torn tail stays and is reported in Recovery. It calls replay as
// Open does. Only Read and Close may be called on the log it returns; an absent
// directory is an empty log.
func Look(opt Options, after uint64, replay func(Op) error) (*Log, Recovery, error) {
	opt = opt.WithDefaults()
	r := &recovery{opt: opt, after: after, look: true}
	if err := r.readLog(replay); err != nil {
		r.close()
		return nil, r.result, err
	}
	l := &Log{opt: opt, id: r.id, seed: r.seed, after: after, accepted: r.extra, look: true}
	for _, f := range r.files {
		s := &segment{number: f.number, first: f.header.first, last: f.last, limit: f.limit}
		s.refs.Store(1)
		s.file.Store(&handle{f.file})
		s.end.Store(f.end)
		l.mu.segs = append(l.mu.segs, s)
	}
	r.result.Segments = len(l.mu.segs)
	l.publishTable()
	return l, r.result, nil
}
