package scenario

import (
	"bytes"
	"fmt"

	"github.com/weirmq/weir/bench/load"
)

// recordSize is the length of a record's data in every scenario.
const recordSize = 256

// recordData is one record's data: a JSON object of recordSize bytes.
func recordData() []byte {
	const front = `{"id":"7f3a9c41","type":"order.created","user":48213,"amount":19.99,"paid":true,"note":"`
	const back = `"}`
	pad := bytes.Repeat([]byte("abcdefghijklmno "), recordSize/16)
	return fmt.Appendf(nil, "%s%s%s", front, pad[:recordSize-len(front)-len(back)], back)
}

// writeBody is the body of a write of n records.
func writeBody(n int) []byte {
	item := fmt.Appendf(nil, `{"data":%s}`, recordData())
	return fmt.Appendf(nil, `{"records":[%s]}`, bytes.Join(repeat(item, n), []byte{','}))
}

func repeat(item []byte, n int) [][]byte {
	items := make([][]byte, n)
	for i := range items {
		items[i] = item
	}
	return items
}

// writeRequest is a whole write of n records to a topic.
func writeRequest(topic string, n int) []byte {
	return load.Request("POST", "/v0/topics/"+topic, writeBody(n))
}

// repeatRequest is the step that sends one request over and over; each is
// worth so many units, and any answer but a success is an error.
func repeatRequest(request []byte, units int) load.Step {
	return func(c *load.Conn) (int, error) {
		status, err := c.Do(request)
		if err != nil {
			return 0, err
		}
		return units, checkStatus(status)
	}
}

func checkStatus(status int) error {
	if status != 200 && status != 201 {
		return fmt.Errorf("status %d", status)
	}
	return nil
}

// everywhere gives every connection the same step.
func everywhere(s load.Step) func(int) load.Step { return func(int) load.Step { return s } }
