package s3

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// gateways makes an error, after which the store is asked again, of a 404 that the store has not
// said: what stands in front of it answers so while it knows no way. The client would make
// of it that the object, or the bucket, is not there.
type gateways struct{ http.RoundTripper }

// mostError is how much is read of an answer that should be an error of the store.
const mostError = 1 << 20

func (g gateways) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := g.RoundTripper.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusNotFound || r.Method == http.MethodHead {
		return res, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, mostError))
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(body, []byte("<Error>")) && !bytes.Contains(body, []byte("<Error ")) {
		text, _, _ := strings.Cut(strings.TrimSpace(string(body[:min(len(body), 80)])), "\n")
		return nil, fmt.Errorf("the answer %s is not that of an S3 store, but of something in front of it: %q", res.Status, text)
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}
