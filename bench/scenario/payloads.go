package scenario

import (
	"bytes"
	"context"

	"github.com/weirmq/weir/bench/load"
)

// Rows of bodies that are not the JSON object.
var payloadRatios = []ratio{
	{name: "write-raw", title: "1 record, 64 conns, disk", unit: "records", weirName: "octet-stream",
		peer: "JSON", goal: 1, setup: rawWrites},
	{name: "upload-lines", title: "upload of 1,000,000 lines, 1 conn", unit: "records", weirName: "x-ndjson",
		peer: "JSON, 1,000 each", goal: 0.8, setup: lineUploads},
}

const (
	uploadTopic = "uploads"
	uploadPiece = 1_000 // lines that are sent at a time, and records of the batches beside them
)

// rawWrites compares records whose payload is the body with the same bytes in JSON.
func rawWrites(ctx context.Context, s *session) (measure, measure, error) {
	w, err := s.freshTopic(ctx, writeTopic, "log", "disk")
	if err != nil {
		return nil, nil, err
	}
	if err := w.createTopic(ctx, uploadTopic, "log", "disk"); err != nil {
		return nil, nil, err
	}
	raw := load.AppendRequestAs(nil, "POST", "/v0/topics/"+uploadTopic, "application/octet-stream", recordData())
	plan := s.timed(w.addr, manyConns, everywhere(repeatRequest(raw, 1)))
	return over(w.proc, plan), over(w.proc, s.writers(w.addr, writeTopic, manyConns, 1)), nil
}

// lineUploads compares one long body of lines with the same records in batches, from one
// client that waits for each answer.
func lineUploads(ctx context.Context, s *session) (measure, measure, error) {
	w, err := s.freshTopic(ctx, writeTopic, "log", "disk")
	if err != nil {
		return nil, nil, err
	}
	if err := w.createTopic(ctx, uploadTopic, "log", "disk"); err != nil {
		return nil, nil, err
	}
	pieces := int(s.size.stored) / uploadPiece
	piece := bytes.Repeat(append(recordData(), '\n'), uploadPiece)
	upload := func(c *load.Conn) (int, error) {
		status, err := c.Upload("/v0/topics/"+uploadTopic, "application/x-ndjson", piece, pieces)
		if err != nil {
			return 0, err
		}
		return pieces * uploadPiece, checkStatus(status)
	}
	lines := load.Plan{Addr: w.addr, Conns: 1, Step: everywhere(upload), Units: s.size.stored}
	batches := s.writers(w.addr, writeTopic, 1, uploadPiece)
	batches.Warmup, batches.Length, batches.Units = 0, 0, s.size.stored
	return over(w.proc, lines), over(w.proc, batches), nil
}
