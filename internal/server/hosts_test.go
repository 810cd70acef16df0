package server

import (
	"strings"
	"testing"
)

func TestListsOfHostsThatMatchNoRequestAreRefused(t *testing.T) {
	for _, one := range []string{
		"https://weir.example", "weir.example/", "*", "*.example", "weir example", "bücher.example", "a@weir.example", "[::1", "weir.example:80:90", ":4000", "a\nb",
	} {
		if err := CheckHosts([]string{"good.example", one}); err == nil || !strings.Contains(err.Error(), "is no host") {
			t.Errorf("%q: %v", one, err)
		}
	}
	if err := CheckHosts([]string{"weir", "Weir.Example", "other.example:8080", "xn--bcher-kva.example.", "my_weir-1", "10.0.0.5", "10.0.0.5:4000", "fd00::5", "[fd00::5]:4000"}); err != nil {
		t.Error(err)
	}
}
