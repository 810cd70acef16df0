package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/embedded"
	"github.com/weirmq/weir/internal/board"
)

// bury puts n messages m0, m1 … into the dead letters of a queue.
func (s *testServer) bury(queue string, n int) {
	s.t.Helper()
	b, err := embedded.On(s.t.Context(), s.engine.Load(), queue)
	if err != nil {
		s.t.Fatal(err)
	}
	defer b.Close()
	msgs := make([]backend.Message, n)
	for i := range msgs {
		msgs[i] = backend.Message{Data: fmt.Append(nil, "m", i), Headers: map[string]string{"tenant": "acme"}}
	}
	if _, err := b.Append(s.t.Context(), msgs); err != nil {
		s.t.Fatal(err)
	}
	got, err := b.Claim(s.t.Context(), backend.ClaimRequest{Consumer: "w", Max: n, ReclaimAfter: 60e9})
	if err != nil || len(got.Deliveries) != n {
		s.t.Fatalf("%d claimed, %v", len(got.Deliveries), err)
	}
	for _, d := range got.Deliveries {
		if err := b.DeadLetter(s.t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison, Error: "cannot do " + string(d.Data)}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// letters lists the dead letters of a queue.
func (s *testServer) lettersOf(queue string, head header) board.LetterPage {
	s.t.Helper()
	r := s.ask("GET", "/ui/letters/"+queue, "", head)
	var page board.LetterPage
	if err := json.Unmarshal([]byte(r.body), &page); err != nil || r.status != 200 {
		s.t.Fatalf("%d %s", r.status, r.body)
	}
	return page
}

// redrive sends dead letters back and returns the last thing that is said of it.
func (s *testServer) redrive(queue, body string, head header) (last board.Progress) {
	s.t.Helper()
	r := s.ask("POST", "/ui/redrive/"+queue, body, head)
	i := strings.LastIndex(r.body, "data: ")
	if r.status != 200 || i < 0 {
		s.t.Fatalf("%d %s", r.status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body[i+len("data: "):]), &last); err != nil || !last.Done {
		s.t.Fatalf("%s: %v", r.body, err)
	}
	return last
}

// What the page does to dead letters is done once, as it was asked, and is in the log with the
// place of the key and without the key.
func TestDeadLettersAreSentBackAndPurgedFromThePage(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys = parseKeys(t, "reader-key:r,actor-key:r+w+d:jobs,admin-key") })
	page := &logPage{}
	s.log = slog.New(slog.NewJSONHandler(page, nil))
	actor := header{"Authorization": "Bearer actor-key"}
	s.bury("jobs", 5)
	list := s.lettersOf("jobs", header{"Authorization": "Bearer reader-key"})
	if len(list.Letters) != 5 || list.Name != "jobs.dlq" || *list.Letters[1].Data != "m1" || list.Letters[1].Error != "cannot do m1" || list.Letters[1].Headers["tenant"] != "acme" {
		t.Fatalf("%+v", list)
	}
	if r := s.ask("GET", "/ui/letters/jobs/"+list.Letters[2].ID, "", actor); r.status != 200 || !strings.Contains(r.body, `"data":"m2"`) {
		t.Errorf("one letter: %d %s", r.status, r.body)
	}
	s.want(s.ask("GET", "/ui/letters/jobs/999", "", actor), 404, "not_found")
	s.want(s.ask("GET", "/ui/letters/jobs-none", "", actor), 404, "topic_not_found")
	for _, body := range []string{`{}`, `{"ids":["1"],"all":true}`, `{"all":true,"rate":-1}`, `{"ids":"1"}`} {
		s.want(s.ask("POST", "/ui/redrive/jobs", body, actor), 400, "invalid_request")
	}
	if p := s.redrive("jobs", `{"all":true,"dry_run":true}`, actor); p.Sent != 5 || len(s.lettersOf("jobs", actor).Letters) != 5 {
		t.Errorf("dry run: %+v", p)
	}
	if p := s.redrive("jobs", fmt.Sprintf(`{"ids":[%q,%q],"rate":50}`, list.Letters[3].ID, list.Letters[1].ID), actor); p.Sent != 2 || p.Error != "" {
		t.Errorf("two of them: %+v", p)
	}
	left := s.lettersOf("jobs", actor).Letters
	if len(left) != 3 || *left[1].Data != "m2" {
		t.Errorf("left: %+v", left)
	}
	if r := s.ask("POST", "/ui/purge/jobs", fmt.Sprintf(`{"ids":[%q]}`, left[1].ID), actor); r.status != 200 || !strings.Contains(r.body, `"removed":1`) {
		t.Errorf("purge: %d %s", r.status, r.body)
	}
	s.want(s.ask("POST", "/ui/purge/jobs", `{}`, actor), 400, "invalid_request")
	if r := s.ask("POST", "/ui/purge/jobs", `{"all":true,"older_than_ms":3600000}`, actor); r.status != 200 || !strings.Contains(r.body, `"removed":0`) {
		t.Errorf("purge of what died before the last hour: %d %s", r.status, r.body)
	}
	if r := s.ask("POST", "/ui/purge/jobs", `{"all":true}`, actor); r.status != 200 || !strings.Contains(r.body, `"removed":2`) || len(s.lettersOf("jobs", actor).Letters) != 0 {
		t.Errorf("purge of the rest: %d %s", r.status, r.body)
	}
	done := map[string]int{}
	for _, l := range page.lines(t) {
		if l["key"] == "entry 2 (read+write+delete)" && l["stream"] == "jobs" && l["dead_letter"] == "jobs.dlq" {
			done[l["msg"].(string)]++
		}
		if strings.Contains(fmt.Sprint(l), "actor-key") {
			t.Errorf("a key is in the log: %v", l)
		}
	}
	if done["dead letters are sent back"] != 1 || done["dead letters are purged"] != 3 {
		t.Errorf("the log says %v of %v", done, page.lines(t))
	}
}

// Nobody acts through the page on what the key may not: not by a topic of dead letters that
// several queues share, not on a queue that is gone, and not from another page.
func TestThePageOpensNoWayAroundAKey(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys = parseKeys(t, "admin,some:r+w+d:in.|shared,half:r+w+d:in.q") })
	admin, some := header{"Authorization": "Bearer admin"}, header{"Authorization": "Bearer some"}
	for _, queue := range []string{"in.q", "in.gone", "out.q"} {
		s.ask("PUT", "/v0/topics/"+queue, `{"type":"queue"}`, admin)
		s.bury(queue, 2)
		for _, l := range s.lettersOf(queue, admin).Letters { // moved to where both share
			meta := fmt.Sprintf(`{"weir-dead-stream":%q,"weir-dead-id":"1","weir-dead-reason":"poison"}`, queue)
			s.ask("POST", "/v0/topics/shared", fmt.Sprintf(`{"records":[{"data":%q,"meta":%s,"tag":"weir-dlq:%s:%s"}]}`, *l.Data, meta, queue, l.ID), admin)
		}
	}
	s.ask("PUT", "/v0/topics/in.all", `{"type":"queue","max_deliveries":3,"dead_letter":"shared"}`, admin)
	s.ask("DELETE", "/v0/topics/in.gone", "", admin)
	if all := s.lettersOf("in.all", admin).Letters; len(all) != 6 || all[0].Stream != "in.q" {
		t.Fatalf("%+v", all)
	}
	mine := s.lettersOf("in.all", some)
	if len(mine.Letters) != 2 || mine.Letters[0].Stream != "in.q" {
		t.Errorf("a key for in. sees %+v", mine.Letters)
	}
	theirs := s.lettersOf("in.all", admin).Letters[5].ID
	if p := s.redrive("in.all", fmt.Sprintf(`{"ids":[%q]}`, theirs), some); p.Sent != 0 {
		t.Errorf("a letter of out.q was sent back by a key for in.: %+v", p)
	}
	if r := s.ask("POST", "/ui/purge/in.all", fmt.Sprintf(`{"ids":[%q]}`, theirs), some); !strings.Contains(r.body, `"removed":0`) {
		t.Errorf("a letter of out.q was purged by a key for in.: %s", r.body)
	}
	if p := s.redrive("in.all", `{"all":true}`, some); p.Sent != 2 || s.engine.Load().TopicExists("in.gone") {
		t.Errorf("all: %+v", p)
	}
	if left := s.lettersOf("in.all", admin).Letters; len(left) != 4 {
		t.Errorf("left: %+v", left)
	}
	s.want(s.ask("GET", "/ui/letters/in.all", "", header{"Authorization": "Bearer half"}), 403, "forbidden")

	cookie := signedIn(s, "admin")
	for name, head := range map[string]header{
		"without an origin": {"Cookie": cookie}, "from another page": {"Cookie": cookie, "Origin": "http://evil.example"},
		"from a sibling": {"Cookie": cookie, "Sec-Fetch-Site": "same-site"},
	} {
		for _, path := range []string{"/ui/purge/in.all", "/ui/redrive/in.all"} {
			if r := s.ask("POST", path, `{"all":true}`, head); r.status != 401 && r.status != 403 {
				t.Errorf("%s %s: %d %s", path, name, r.status, r.body)
			}
		}
	}
	if r := s.ask("POST", "/ui/purge/in.all", `{"all":true}`, header{"Cookie": cookie, "Origin": "http://" + s.addr}); r.status != 200 || !strings.Contains(r.body, `"removed":4`) {
		t.Errorf("from the page itself: %d %s", r.status, r.body)
	}
}

// signedIn returns the cookie of a session.
func signedIn(s *testServer, key string) string {
	s.t.Helper()
	r := s.ask("POST", "/ui/session", fmt.Sprintf(`{"key":%q}`, key), nil)
	cookie, _, _ := strings.Cut(r.header.Get("Set-Cookie"), ";")
	return cookie
}
