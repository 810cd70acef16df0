package api

// AppendWriteResult appends the answer to a write; withSeqs as return_seqs says.
func AppendWriteResult(dst []byte, topic string, r *WriteResult, withSeqs bool, totalMS float64) []byte {
	dst = appendTopic(dst, topic)
	dst = appendNamed(dst, "first_seq", r.FirstSeq)
	dst = appendNamed(dst, "last_seq", r.LastSeq)
	if withSeqs {
		dst = append(dst, `,"seqs":[`...)
		for i := range uint64(r.Count) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendUint(dst, r.FirstSeq+i)
		}
		dst = append(dst, ']')
	}
	dst = appendNamed(dst, "head_seq", r.HeadSeq)
	dst = appendNamed(dst, "count", uint64(r.Count))
	dst = appendNamedBool(dst, "created", r.Created)
	dst = appendNamedBool(dst, "deduped", r.Deduped)
	return appendEnd(dst, &Performance{
		TotalMS:   totalMS,
		HasAppend: !r.Deduped, AppendMS: r.AppendMS,
		HasSync: !r.Deduped, SyncMS: r.SyncMS,
		ThrottleMS: r.ThrottleMS,
	})
}

// appendTopic opens an answer whose first member is the topic.
func appendTopic(dst []byte, topic string) []byte {
	dst = append(dst, `{"topic":`...)
	return AppendString(dst, topic)
}

// AppendDiffHead opens the answer to a diff, up to its first record.
func AppendDiffHead(dst []byte, topic string) []byte {
	dst = appendTopic(dst, topic)
	return append(dst, `,"records":[`...)
}

// AppendDiffRecord appends the next record after AppendDiffHead.
func AppendDiffRecord(dst []byte, r *Record, req *DiffRequest, times *Times) []byte {
	return appendRecord(appendComma(dst), r, req.IncludeTags, !req.OmitData, req.IncludeMeta, times)
}

// appendComma separates elements: it appends nothing after the opening bracket.
func appendComma(dst []byte) []byte {
	if dst[len(dst)-1] == '[' {
		return dst
	}
	return append(dst, ',')
}

// AppendDiffTail closes the answer to a diff after its last record.
func AppendDiffTail(dst []byte, r *DiffResult, totalMS float64) []byte {
	dst = append(dst, ']')
	dst = appendNamed(dst, "next_from_seq", r.NextFromSeq)
	dst = appendNamed(dst, "head_seq", r.HeadSeq)
	dst = appendNamed(dst, "earliest_seq", r.EarliestSeq)
	dst = appendNamedBool(dst, "caught_up", r.CaughtUp())
	dst = append(dst, `,"tombstone":`...)
	dst = AppendTombstone(dst, r.Tombstone)
	dst = appendNamed(dst, "lag", r.Lag())
	if r.Life > 0 {
		dst = appendNamed(dst, "life", r.Life)
	}
	return appendEnd(dst, &Performance{TotalMS: totalMS, HasScanned: true, Scanned: r.RecordsScanned})
}

// AppendTombstone appends a tombstone, null for none.
func AppendTombstone(dst []byte, t *Tombstone) []byte {
	if t == nil {
		return append(dst, "null"...)
	}
	dst = append(dst, `{"gap_from":`...)
	dst = appendUint(dst, t.GapFrom)
	dst = appendNamed(dst, "gap_to", t.GapTo)
	dst = append(dst, `,"reason":`...)
	dst = AppendString(dst, string(t.Reason))
	dst = appendNamed(dst, "missed_estimate", t.MissedEstimate)
	dst = appendNamed(dst, "earliest_seq", t.EarliestSeq)
	dst = appendNamed(dst, "head_seq", t.HeadSeq)
	return append(dst, '}')
}

// AppendDeleteResult appends the answer to delete records.
func AppendDeleteResult(dst []byte, topic string, r *DeleteResult, totalMS float64) []byte {
	dst = appendTopic(dst, topic)
	dst = appendNamed(dst, "deleted", r.Deleted)
	dst = appendNamed(dst, "earliest_seq", r.EarliestSeq)
	dst = appendNamed(dst, "head_seq", r.HeadSeq)
	dst = appendNamed(dst, "count", r.Count)
	dst = appendNamed(dst, "bytes", r.Bytes)
	return appendEnd(dst, &Performance{TotalMS: totalMS})
}

// AppendClaimHead opens the answer to a claim, up to its first job.
func AppendClaimHead(dst []byte, topic string) []byte {
	dst = appendTopic(dst, topic)
	return append(dst, `,"claimed":[`...)
}

// AppendClaimJob appends the next job after AppendClaimHead.
func AppendClaimJob(dst []byte, j *Job, times *Times) []byte {
	return AppendJob(appendComma(dst), j, times)
}

// AppendClaimTail closes the answer to a claim after its last job.
func AppendClaimTail(dst []byte, r *ClaimResult, totalMS float64) []byte {
	dst = append(dst, ']')
	dst = appendNamed(dst, "count", uint64(r.Count))
	dst = appendNamed(dst, "ready", r.Ready)
	return appendEnd(dst, &Performance{TotalMS: totalMS, HasWait: r.Waits, WaitMS: float64(r.Waited.Milliseconds())})
}

// AppendSettleResult appends the answer to ack, nack or extend.
func AppendSettleResult(dst []byte, kind SettleKind, topic string, r *SettleResult, totalMS float64) []byte {
	name := [...]string{SettleAck: "acked", SettleNack: "nacked", SettleExtend: "extended"}[kind]
	dst = appendTopic(dst, topic)
	dst = appendNamed(dst, name, uint64(r.Done))
	dst = append(dst, `,"skipped":`...)
	dst = appendUints(dst, r.Skipped)
	if kind == SettleExtend {
		dst = appendDeadlines(dst, r.Deadlines)
	} else {
		dst = appendNamed(dst, "ready", r.Ready)
		dst = appendNamed(dst, "in_flight", r.InFlight)
	}
	return appendEnd(dst, &Performance{TotalMS: totalMS, HasSync: r.Synced, SyncMS: r.SyncMS})
}

func appendDeadlines(dst []byte, deadlines []Deadline) []byte {
	dst = append(dst, `,"deadlines":{`...)
	for i, d := range deadlines {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = appendUint(dst, d.Seq)
		dst = append(dst, '"', ':')
		dst = appendInt(dst, d.At)
	}
	return append(dst, '}')
}
