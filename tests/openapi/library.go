package openapi

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi/datamodel"

	"github.com/weirmq/weir/tests/contract"
)

// library is what others make of the document: proxies and clients read it with a library,
// which knows neither the contract nor this judge.
type library struct{ v validator.Validator }

// newLibrary returns one for a document that is valid, or what is wrong about it.
func newLibrary(text []byte) (*library, []error) {
	doc, err := libopenapi.NewDocumentWithConfiguration(text, &datamodel.DocumentConfiguration{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, []error{err}
	}
	if _, err := doc.BuildV3Model(); err != nil {
		return nil, []error{err}
	}
	// Most cases are of servers without keys.
	v, wrong := validator.NewValidator(doc, config.WithoutSecurityValidation())
	if len(wrong) > 0 {
		return nil, wrong
	}
	if _, invalid := v.ValidateDocument(); len(invalid) > 0 {
		for _, err := range invalid {
			wrong = append(wrong, err)
		}
		return nil, wrong
	}
	return &library{v}, nil
}

// Ask has a library for OpenAPI judge, too.
func (j *Judge) Ask(text []byte) error {
	l, wrong := newLibrary(text)
	j.library = l
	return errors.Join(wrong...)
}

// maxAsked is the longest body that the library is asked about.
const maxAsked = 64 << 10

// confirm judges a call by the library: a request that was not refused, and any answer.
func (j *Judge) confirm(x *contract.Exchange) {
	u, err := url.Parse("http://127.0.0.1:4000" + x.Path)
	body, berr := unpacked(x)
	if j.library == nil || err != nil || berr != nil || x.Method == http.MethodHead || max(len(x.Answer), len(body)) > maxAsked {
		return
	}
	header := x.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Del("Content-Encoding")
	req := &http.Request{Method: x.Method, URL: u, Host: u.Host, Header: header}
	if x.Status < http.StatusBadRequest && usual(x, u) {
		req.Body = io.NopCloser(bytes.NewReader(body))
		_, wrong := j.library.v.ValidateHttpRequest(req)
		for _, err := range wrong {
			j.wrong(x, "the library: the request: %s: %s\n\tbody: %.600s", err.Message, err.Reason, body)
		}
		j.Confirmed++
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	answers := x.Answers.Clone()
	answers.Del("Content-Encoding")
	_, wrong := j.library.v.ValidateHttpResponse(req, &http.Response{StatusCode: x.Status, Header: answers, Body: io.NopCloser(bytes.NewReader(x.Answer)), Request: req})
	for _, err := range wrong {
		j.wrong(x, "the library: %s: %s\n\tanswer: %d %.600s", err.Message, err.Reason, x.Status, x.Answer)
	}
	j.Confirmed++
}

// forms are the other types of bodies that a write may have. Lines are not among them: the
// library takes each body whose type has json in its name for one value.
var forms = []string{"application/octet-stream", "text/plain", "application/cloudevents+json", "application/cloudevents-batch+json"}

// usual reports whether a request is written as clients do that go by a document. The server
// takes more: an empty parameter as absent, and any content type that begins rightly. What
// ce-specversion makes of a JSON body is in no document: OpenAPI has no body that depends on a
// header.
func usual(x *contract.Exchange, u *url.URL) bool {
	for _, values := range u.Query() {
		if slices.Contains(values, "") {
			return false
		}
	}
	kind, _, _ := strings.Cut(x.Header.Get("Content-Type"), ";")
	if x.Header.Get("Ce-Specversion") != "" {
		return false
	}
	return kind == "" || kind == typeJSON || slices.Contains(forms, kind)
}
