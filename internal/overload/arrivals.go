package overload

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ReadArrivals reads recorded offers, one per line: CSV, "time" or "time,tier", with or
// without a header; or JSON, a time or {"at":time,"tier":n}. A time is a number of
// seconds or RFC 3339, a tier 0 (the top one) to 3; one that is absent is drawn. The
// lines may be in any order.
func ReadArrivals(r io.Reader) ([]Arrival, error) {
	type moment struct {
		at   float64 // seconds
		tier int
	}
	var all []moment
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		at, tier, err := readArrival(text)
		switch {
		case err == nil:
			all = append(all, moment{at, tier})
		case n > 1 || text[0] == '{':
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("no times in it")
	}
	slices.SortStableFunc(all, func(a, b moment) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	arrivals := make([]Arrival, len(all))
	for i, m := range all {
		d := m.at - all[0].at
		if d > float64(math.MaxInt64/2)/1e9 {
			return nil, fmt.Errorf("the times are %v s apart", d)
		}
		arrivals[i] = Arrival{At: time.Duration(math.Round(d * 1e9)), Tier: m.tier}
	}
	return arrivals, nil
}

// readArrival reads one line.
func readArrival(text string) (at float64, tier int, err error) {
	first, second, _ := strings.Cut(text, ",")
	if text[0] == '{' {
		var line struct {
			At   json.RawMessage `json:"at"`
			Tier *int            `json:"tier"`
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.At == nil {
			return 0, 0, fmt.Errorf(`%.80q is not an object like {"at":12.5,"tier":0}`, text)
		}
		first, second = string(line.At), ""
		if line.Tier != nil {
			second = strconv.Itoa(*line.Tier)
		}
	}
	if at, err = readTime(strings.Trim(strings.TrimSpace(first), `"`)); err != nil {
		return 0, 0, err
	}
	second = strings.TrimSpace(second)
	if second == "" {
		return at, -1, nil
	}
	if tier, err = strconv.Atoi(second); err != nil || tier < 0 || tier >= len(Tiers) {
		return 0, 0, fmt.Errorf("tier %.20q is not a whole number from 0 to %d", second, len(Tiers)-1)
	}
	return at, tier, nil
}

// readTime returns seconds since any fixed moment.
func readTime(text string) (float64, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(n) && !math.IsInf(n, 0) {
		return n, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, fmt.Errorf("%.40q is neither a number of seconds nor a time like 2026-03-01T12:00:00.5Z", text)
	}
	return float64(t.Unix()) + float64(t.Nanosecond())/1e9, nil
}
