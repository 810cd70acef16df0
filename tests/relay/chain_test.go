package relay

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// A relay has nothing that another one could subscribe to. One that is put in front of another is
// not ready and says why, rather than being found out by those who want to listen.
func TestARelayInFrontOfARelaySaysSo(t *testing.T) {
	t.Parallel()
	p := start(t, 1, 1)
	second := weirtest.Start(t, weirtest.Options{NoWait: true, Args: []string{"--upstream", p.relays[0].URL}})
	weirtest.Eventually(t, "its log says so", func() bool {
		return strings.Contains(second.Stderr(), "the upstream is a relay itself, in front of "+p.server.URL)
	})
	resp, err := http.Get(second.URL + "/v0/ready")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("it is ready: %s", resp.Status)
	}
}
