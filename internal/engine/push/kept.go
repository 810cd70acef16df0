package push

import "time"

// note has the diary note a new session. If it cannot, the session lives until
// the server stops.
func (r *Room) note(ss *session) {
	if r.env.Diary == nil {
		return
	}
	k := Kept{WID: ss.wid, Owner: ss.owner, Opt: &ss.opt}
	for i := range ss.topics {
		st := &ss.topics[i]
		k.Places = append(k.Places, Place{At: i, Topic: st.name, Life: st.noted.life, Seq: st.noted.seq})
	}
	ss.kept = r.env.Diary.Began(&k) == nil
}

// moved returns the places that the diary does not have, and takes them for
// noted. The session's lock is held.
func (ss *session) moved() (to []Place) {
	for i := range ss.topics {
		if st := &ss.topics[i]; st.noted != st.written {
			st.noted = st.written
			to = append(to, Place{At: i, Life: st.written.life, Seq: st.written.seq})
		}
		if ss.topics[i].former.over() {
			to = append(to, ss.knows(i))
		}
	}
	return to
}

// knows says that the client knows of the present life of a topic.
func (ss *session) knows(at int) Place {
	st := &ss.topics[at]
	return Place{At: at + len(ss.topics), Life: st.noted.life, Seq: st.noted.seq}
}

// mayName says what the client may still name of the life of a topic before the present one.
func (ss *session) mayName(at int) Place {
	f := &ss.topics[at].former
	return Place{At: at + 2*len(ss.topics), Life: f.from, Seq: f.to}
}

// noteLife notes that a topic of the session lives again: ids of its client are
// numbers of that life from now on. One of the session's streams is open, and
// the session's lock is held.
func (r *Room) noteLife(ss *session, at int, p position) {
	if st := &ss.topics[at]; ss.kept && st.noted.life != p.life {
		st.noted = p
		r.env.Diary.Moved(ss.wid, true, []Place{{At: at, Life: p.life, Seq: p.seq}, ss.mayName(at)})
	}
}

// Revive takes in a session of before a restart.
func (r *Room) Revive(k *Kept) {
	ss := &session{wid: k.WID, owner: k.Owner, opt: *k.Opt, idle: time.Now().Add(-k.Idle), kept: true}
	for _, p := range k.Places {
		at := position{p.Life, p.Seq}
		st := progress{name: p.Topic, handed: position{p.Life, max(p.Seq, p.Handed)}, written: at, noted: at}
		if p.Again {
			st.former = former{p.From, p.To, time.Now()}
		}
		ss.topics = append(ss.topics, st)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions[ss.wid] = ss
}

// Keep ends the sessions without a stream whose owner keep does not know.
func (r *Room) Keep(keep func(owner any) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var gone []string
	for wid, s := range r.sessions {
		if s.open == 0 && !keep(s.owner) {
			delete(r.sessions, wid)
			if s.kept {
				gone = append(gone, wid)
			}
		}
	}
	if len(gone) > 0 {
		r.env.Diary.Ended(gone)
	}
}

// Watching reports whether the session exists.
func (r *Room) Watching(wid string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sessions[wid]
	return s != nil && !s.ended(time.Now())
}
