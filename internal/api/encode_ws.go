package api

// The answers of a WebSocket. requestID is compact JSON, nil for none.

func appendAnswer(dst []byte, op string, requestID []byte) []byte {
	dst = append(dst, `{"op":"`...)
	dst = append(dst, op...)
	dst = append(dst, `","request_id":`...)
	if len(requestID) == 0 {
		return append(dst, "null"...)
	}
	return append(dst, requestID...)
}

// AppendSubscribed appends the answer to a subscribe.
func AppendSubscribed(dst, requestID []byte, topics []WatchPosition) []byte {
	dst = appendAnswer(dst, "subscribed", requestID)
	dst = append(dst, `,"topics":`...)
	dst = appendPositions(dst, topics)
	return append(dst, '}')
}

// AppendUnsubscribed appends the answer to an unsubscribe: the names asked for.
func AppendUnsubscribed(dst, requestID []byte, names []string) []byte {
	dst = appendAnswer(dst, "unsubscribed", requestID)
	dst = append(dst, `,"topics":`...)
	dst = appendStrings(dst, names)
	return append(dst, '}')
}

// AppendSocketAck appends the answer to a publish; without withSeqs the numbers
// are null.
func AppendSocketAck(dst, requestID []byte, topic string, r *WriteResult, withSeqs bool, totalMS float64) []byte {
	dst = appendAnswer(dst, "ack", requestID)
	dst = append(dst, ',')
	mark := len(dst)
	dst = unwrap(AppendWriteResult(dst, topic, r, withSeqs, totalMS), mark)
	if !withSeqs {
		dst = append(dst[:len(dst)-1], `,"seqs":null}`...)
	}
	return dst
}

// unwrap makes members of the object around it of those of the object that begins at mark.
func unwrap(dst []byte, mark int) []byte {
	copy(dst[mark:], dst[mark+1:])
	return dst[:len(dst)-1]
}

// AppendSocketClaimed appends the answer to a claim; answer is that over HTTP.
func AppendSocketClaimed(dst, requestID, answer []byte) []byte {
	return appendSocketAnswer(dst, "claimed", requestID, answer)
}

// AppendSocketSettled appends the answer to an ack, nack or extend.
func AppendSocketSettled(dst, requestID []byte, kind SettleKind, topic string, r *SettleResult, totalMS float64) []byte {
	name := [...]string{SettleAck: "acked", SettleNack: "nacked", SettleExtend: "extended"}[kind]
	return appendSocketAnswer(dst, name, requestID, AppendSettleResult(nil, kind, topic, r, totalMS))
}

// appendSocketAnswer appends an answer with the members of an object.
func appendSocketAnswer(dst []byte, op string, requestID, answer []byte) []byte {
	dst = append(appendAnswer(dst, op, requestID), ',')
	return append(dst, answer[1:]...)
}

// AppendPong appends the answer to a ping.
func AppendPong(dst, requestID []byte) []byte {
	return append(appendAnswer(dst, "pong", requestID), '}')
}

// AppendSocketError appends an error; the socket stays open unless the code says that
// the server is shutting down.
func AppendSocketError(dst, requestID []byte, e *Error) []byte {
	dst = appendAnswer(dst, "error", requestID)
	dst = append(dst, ',')
	return append(appendErrorMembers(dst, e), '}')
}
