package api

import (
	"errors"
	"net/url"
	"strconv"
	"unicode/utf8"
)

// DecodeWork reads the query of a work stream and applies defaults and clamps.
func DecodeWork(query url.Values, lim *Limits) (ClaimRequest, error) {
	c := ClaimRequest{Node: query.Get("node"), Max: 1}
	if n := len(c.Node); n == 0 || n > lim.MaxNodeBytes || !utf8.ValidString(c.Node) {
		return ClaimRequest{}, Errorf(CodeInvalidRequest, "query parameter node must be the name of the worker: not empty, in UTF-8, at most %d bytes", lim.MaxNodeBytes)
	}
	if text := query.Get("max"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return ClaimRequest{}, errQueryNumber("max", text)
		}
		c.Max = int(max(1, min(n, int64(lim.MaxClaim))))
	}
	if text := query.Get("lease_ms"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return ClaimRequest{}, errQueryNumber("lease_ms", text)
		}
		c.LeaseMS, c.HasLease = clampLease(n), true
	}
	return c, nil
}

func errQueryNumber(name, text string) error {
	return Errorf(CodeInvalidRequest, "query parameter %s is %q; it must be a whole number", name, text)
}
