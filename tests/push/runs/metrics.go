package runs

import (
	"bytes"
	"strconv"
)

// metrics are the samples of /v0/metrics without those of single topics, by
// name and labels.
type metrics map[string]float64

func (c *caller) metrics() (metrics, error) {
	page, err := c.do("GET", "/v0/metrics", nil)
	if err != nil {
		return nil, err
	}
	m := metrics{}
	for line := range bytes.Lines(page) {
		if line[0] == '#' || bytes.HasPrefix(line, []byte("weir_topic_")) {
			continue
		}
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte{' '})
		if v, err := strconv.ParseFloat(string(value), 64); err == nil {
			m[string(name)] = v
		}
	}
	return m, nil
}

// sum adds up the samples of a name over all its labels.
func (m metrics) sum(name string) (total float64) {
	for key, v := range m {
		if len(key) >= len(name) && key[:len(name)] == name && (len(key) == len(name) || key[len(name)] == '{') {
			total += v
		}
	}
	return total
}
