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
	dst = AppendWriteResult(dst, topic, r, withSeqs, totalMS)
	copy(dst[mark:], dst[mark+1:]) // its members belong in this object
	dst = dst[:len(dst)-1]
	if !withSeqs {
		dst = append(dst[:len(dst)-1], `,"seqs":null}`...)
	}
	return dst
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
