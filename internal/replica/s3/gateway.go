package s3

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// gateways makes an error, after which the store is asked again, of a 404 that the store has not
// said, and of a list that is none: what stands in front of the store answers so while it knows no
// way. The client would make of it that the object, or the bucket, or all of the list, is not there.
type gateways struct{ http.RoundTripper }

const (
	// mostError is how much is read of an answer that should be an error of the store.
	mostError = 1 << 20
	// listHead is in how much of its beginning a list says that it is one.
	listHead = 1 << 10
)

func (g gateways) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := g.RoundTripper.RoundTrip(r)
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode == http.StatusOK && r.Method == http.MethodGet && r.URL.Query().Has("list-type"):
		return asList(res)
	case res.StatusCode != http.StatusNotFound || r.Method == http.MethodHead:
		return res, nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, mostError))
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(body, []byte("<Error>")) && !bytes.Contains(body, []byte("<Error ")) {
		return nil, foreign(res, body)
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}

// asList returns the answer if it begins as a list does.
func asList(res *http.Response) (*http.Response, error) {
	body := bufio.NewReaderSize(res.Body, listHead)
	head, err := body.Peek(listHead)
	if err == nil || errors.Is(err, io.EOF) {
		if !bytes.Contains(head, []byte("ListBucketResult")) {
			err = foreign(res, head)
		} else {
			err = nil
		}
	}
	if err != nil {
		return nil, errors.Join(err, res.Body.Close())
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{body, res.Body}
	return res, nil
}

func foreign(res *http.Response, body []byte) error {
	text, _, _ := strings.Cut(strings.TrimSpace(string(body[:min(len(body), 80)])), "\n")
	return fmt.Errorf("the answer %s is not that of an S3 store, but of something in front of it: %q", res.Status, text)
}
