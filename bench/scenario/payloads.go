package scenario

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"

	"github.com/weirmq/weir/bench/load"
)

// Rows of bodies that are not the JSON object.
var payloadRatios = []ratio{
	{name: "write-raw", title: "1 record, 64 conns, disk", unit: "records", weirName: "octet-stream",
		peer: "JSON", goal: 1, setup: rawWrites},
	{name: "write-raw-same", title: "the same record, 64 conns", unit: "records", weirName: "octet-stream",
		peer: "base64 in JSON", goal: 1, setup: rawAndEncoded},
	{name: "upload-lines", title: "upload of 1,000,000 lines, 1 conn", unit: "records", weirName: "x-ndjson",
		peer: "JSON, 1,000 each", goal: 0.8, setup: lineUploads},
}

const (
	uploadTopic = "uploads"
	uploadPiece = 1_000 // lines that are sent at a time, and records of the batches beside them
	bytesType   = "application/octet-stream"
)

// rawWrites compares records whose payload is the body with the same bytes in JSON. What is
// stored is 415 bytes beside 256, since the bytes are in base64 and have a type.
func rawWrites(ctx context.Context, s *session) (measure, measure, error) {
	return s.rawBeside(ctx, writeRequest(writeTopic, 1))
}

// rawAndEncoded compares them with JSON that stores the same record.
func rawAndEncoded(ctx context.Context, s *session) (measure, measure, error) {
	body := fmt.Appendf(nil, `{"records":[{"data":%q,"meta":{"$content_type":%q,"weir-encoding":"base64"}}]}`,
		base64.StdEncoding.EncodeToString(recordData()), bytesType)
	return s.rawBeside(ctx, load.Request("POST", "/v0/topics/"+writeTopic, body))
}

// rawBeside compares writes of a raw body with another request, on a topic of its own each.
func (s *session) rawBeside(ctx context.Context, other []byte) (measure, measure, error) {
	w, err := s.freshTopic(ctx, writeTopic, "log", "disk")
	if err != nil {
		return nil, nil, err
	}
	if err := w.createTopic(ctx, uploadTopic, "log", "disk"); err != nil {
		return nil, nil, err
	}
	raw := load.AppendRequestAs(nil, "POST", "/v0/topics/"+uploadTopic, bytesType, recordData())
	of := func(request []byte) measure {
		return over(w.proc, s.timed(w.addr, manyConns, everywhere(repeatRequest(request, 1))))
	}
	return of(raw), of(other), nil
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
