package server

import (
	_ "embed" // for the document
	"net/http"
)

// openAPI describes the routes, but those of the dashboard. It is written by hand:
// tests compare it with the table of routes, with the fields that internal/api knows,
// and (tests/openapi) with what servers send and take.
//
//go:embed openapi.json
var openAPI []byte

// getOpenAPI answers with the description of the API.
func (q *request) getOpenAPI() error {
	q.w.Header()["Content-Type"] = headerJSON
	own := q.out
	q.out = openAPI
	err := q.sendAs(http.StatusOK)
	q.out = own // the next answer must not be written into the document
	return err
}
