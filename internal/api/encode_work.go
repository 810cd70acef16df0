package api

// AppendWorkFrame appends the event that pushes a job of the queue topic.
func AppendWorkFrame(dst []byte, topic string, j *Job) []byte {
	dst = append(dst, "id: "...)
	dst = appendUint(dst, j.Seq)
	dst = append(dst, "\nevent: job\ndata: {\"topic\":"...)
	dst = AppendString(dst, topic)
	dst = append(dst, ',')
	dst = appendJobMembers(dst, j, nil)
	return append(dst, "}\n\n"...)
}

// AppendWorkEnd appends the last event of a work stream whose queue is gone.
func AppendWorkEnd(dst []byte, topic, why string) []byte {
	dst = append(dst, "event: error\ndata: {\"code\":409,\"error\":"...)
	return appendWorkTopic(AppendString(dst, why), topic)
}

// AppendWorkGoodbye appends the last event of a work stream that ends with the
// server.
func AppendWorkGoodbye(dst []byte, topic, why string) []byte {
	dst = append(dst, "event: error\ndata: {\"code\":\"server_shutting_down\",\"error\":"...)
	dst = AppendString(dst, why)
	dst = append(dst, `,"message":`...)
	return appendWorkTopic(AppendString(dst, why), topic)
}

func appendWorkTopic(dst []byte, topic string) []byte {
	dst = append(dst, `,"topic":`...)
	dst = AppendString(dst, topic)
	return append(dst, "}\n\n"...)
}
