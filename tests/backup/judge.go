package main

import (
	"fmt"
	"maps"
)

// note remembers what has been answered so far.
func (l *load) note() {
	for i := range l.heads {
		l.atHeads[i] = l.heads[i].Load()
	}
	l.atJobs = l.jobs.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.atAcked = maps.Clone(l.acked)
}

// judge reads every record of the restored server at url.
func (l *load) judge(url string) (records int, err error) {
	base, err := l.read(url, "base", recordBytes)
	if err != nil {
		return 0, err
	}
	if n := uint64(len(base)); n != l.base.Load() {
		return 0, fmt.Errorf("base has %d records, %d were written", n, l.base.Load())
	}
	records = len(base)
	for i := range writers {
		got, err := l.read(url, loadTopic(i), 1<<10)
		if err != nil {
			return 0, err
		}
		records += len(got)
		if n := len(got); n == 0 || got[n-1] < l.atHeads[i] || got[n-1]-got[0] != uint64(n-1) {
			return 0, fmt.Errorf("%s has %d records; %d were acknowledged before the backup", loadTopic(i), n, l.atHeads[i])
		}
		if got[0] > 1 && len(got) < capBytes/(1<<10)-2*loadBatch {
			return 0, fmt.Errorf("%s has %d records and lost some below %d without need", loadTopic(i), len(got), got[0])
		}
	}
	jobs, err := l.read(url, "jobs", 1<<10)
	if err != nil {
		return 0, err
	}
	live := map[uint64]bool{}
	for _, seq := range jobs {
		if live[seq] = true; l.atAcked[seq] {
			return 0, fmt.Errorf("job %d was acked before the backup and is back", seq)
		}
	}
	for seq := uint64(1); seq <= l.atJobs; seq++ {
		if !l.tried[seq] && !live[seq] {
			return 0, fmt.Errorf("job %d was written before the backup, nobody acked it, and it is not there", seq)
		}
	}
	return records + len(jobs), nil
}

// read returns the numbers of a topic's records, whose content it checks.
func (l *load) read(url, topic string, size int) (seqs []uint64, err error) {
	for from := uint64(0); ; {
		var answer struct {
			Records  []record `json:"records"`
			Next     uint64   `json:"next_from_seq"`
			CaughtUp bool     `json:"caught_up"`
		}
		err := l.call(url, "POST", "/v0/topics/"+topic+"/diff", map[string]any{"from_seq": from, "limit": 1000, "max_batch_bytes": 4 << 20}, &answer)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", topic, err)
		}
		for _, r := range answer.Records {
			if r.Data != content(topic, r.Seq, size) {
				return nil, fmt.Errorf("number %d of %s is not what was written", r.Seq, topic)
			}
			seqs = append(seqs, r.Seq)
		}
		if answer.CaughtUp {
			return seqs, nil
		}
		from = answer.Next
	}
}
