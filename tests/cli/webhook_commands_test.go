package cli

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// delivered is what a webhook has posted.
type delivered struct {
	body, at, signature string
}

// genuine checks a delivery as docs/WEBHOOKS.md tells receivers to.
func (d delivered) genuine(secret string) bool {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s.%s", d.at, d.body)
	return hmac.Equal([]byte("v1="+hex.EncodeToString(mac.Sum(nil))), []byte(d.signature))
}

func TestWebhooksAreCreatedListedAndDeleted(t *testing.T) {
	t.Parallel()
	got := make(chan delivered, 100)
	to := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is missing is not what was sent
		got <- delivered{string(body), r.Header.Get("Weir-Timestamp"), r.Header.Get("Weir-Signature")}
	}))
	defer to.Close()
	srv := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_WEBHOOKS=on", "WEIR_WEBHOOK_ALLOW_HTTP=true", "WEIR_WEBHOOK_ALLOW_PRIVATE=127.0.0.1"}})
	ship := srv.URL + "/ship"

	fails(t, "orders", "webhook", "create", "--topic", "orders", "--to", to.URL, ship) // which is not there
	must(t, "topic", "create", "--type", "queue", srv.URL+"/orders")
	must(t, "topic", "create", srv.URL+"/log")
	fails(t, `topic "log" is a log`, "webhook", "create", "--topic", "log", "--to", to.URL, ship)
	fails(t, "url", "webhook", "create", "--topic", "orders", "--to", "ftp://127.0.0.1/x", ship)

	text := must(t, "webhook", "create", "--topic", "orders", "--to", to.URL+"/jobs", "--concurrency", "2", "--rate", "50", "--timeout", "1500ms", ship)
	first, secret, ok := strings.Cut(strings.TrimSpace(text), "\nsecret ")
	if !ok || first != "created ship from orders to "+to.URL+"/jobs" || !strings.HasPrefix(secret, "whsec_") {
		t.Fatalf("create printed %q", text)
	}
	fails(t, `webhook "ship" exists`, "webhook", "create", "--topic", "orders", "--to", to.URL, ship)

	must(t, "publish", "--ndjson", srv.URL+"/orders", writeLines(t, []string{`{"n":1}`}))
	if d := <-got; d.body != `{"n":1}` || !d.genuine(secret) || d.genuine(secret+"x") {
		t.Errorf("delivered was %+v", d)
	}

	own := "a-secret-of-our-own"
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(own+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "topic", "create", "--type", "queue", srv.URL+"/bills")
	if text := must(t, "webhook", "create", "--topic", "bills", "--to", to.URL, "--secret-file", file, srv.URL+"/bill"); text != "created bill from bills to "+to.URL+"\n" {
		t.Errorf("create with a secret printed %q", text)
	}
	must(t, "publish", "--ndjson", srv.URL+"/bills", writeLines(t, []string{`2`}))
	if d := <-got; d.body != "2" || !d.genuine(own) {
		t.Errorf("delivered was %+v", d)
	}

	var info struct {
		Webhook, Topic, URL string
	}
	text = must(t, "webhook", "info", "--json", ship)
	if err := json.Unmarshal([]byte(text), &info); err != nil || info.Webhook != "ship" || info.Topic != "orders" || info.URL != to.URL+"/jobs" ||
		!strings.Contains(text, `"concurrency":2,"rate":50,"timeout_ms":1500`) || strings.Contains(text, secret) {
		t.Errorf("info printed %s, %v", text, err)
	}
	if text := must(t, "webhook", "info", ship); !strings.Contains(text, "50/s") || !strings.Contains(text, "delivering") {
		t.Errorf("info printed %s", text)
	}
	names := func(args ...string) (all []string) {
		for i, line := range strings.Split(strings.TrimSpace(must(t, append([]string{"webhook", "ls"}, args...)...)), "\n") {
			if i > 0 {
				all = append(all, strings.Fields(line)[0])
			}
		}
		return all
	}
	if all := names(srv.URL); fmt.Sprint(all) != "[bill ship]" {
		t.Errorf("listed are %v", all)
	}
	if all := names("--prefix", "sh", srv.URL); fmt.Sprint(all) != "[ship]" {
		t.Errorf("listed are %v", all)
	}

	said := func(want string, args ...string) {
		t.Helper()
		if text := must(t, args...); text != want+"\n" {
			t.Errorf("weir %s printed %q, want %q", strings.Join(args, " "), text, want)
		}
	}
	said("ship would be deleted, from orders to "+to.URL+"/jobs", "webhook", "rm", "--dry-run", ship)
	said("ship deleted, from orders to "+to.URL+"/jobs", "webhook", "rm", "--yes", ship)
	fails(t, `webhook "ship" does not exist`, "webhook", "rm", "--yes", ship)
	fails(t, `webhook "ship" does not exist`, "webhook", "info", ship)
	if all := names(srv.URL); fmt.Sprint(all) != "[bill]" {
		t.Errorf("listed are %v", all)
	}
}
