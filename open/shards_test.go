package open

import (
	"net/url"
	"testing"
)

// Each shard has what belongs to it alone under a name of its own, and nothing else.
func TestAShardsURLHasItsNumberInItsNames(t *testing.T) {
	for whole, want := range map[string]string{
		"mem://orders":                          "mem://orders.2",
		"file:///var/lib/weir?topic=orders":     "file:///var/lib/weir?topic=orders.2",
		"http://:k@h:4000/orders/":              "http://:k@h:4000/orders.2",
		"http://h/a%3Ab?standby=h2":             "http://h/a:b.2?standby=h2",
		"redis://h/0?group=g&stream=orders":     "redis://h/0?group=g&stream=orders.2",
		"redis://h/0?signal=load&stream=orders": "redis://h/0?signal=load.2&stream=orders.2",
	} {
		u, err := url.Parse(whole)
		if err != nil {
			t.Fatal(err)
		}
		if renamed(u, ".2"); u.String() != want {
			t.Errorf("%s: %s, want %s", whole, u, want)
		}
	}
}
