package server

import (
	"strings"
	"testing"
)

func TestARouterIsMadeShownListedAndEnded(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/routers/in-%3Eout", `{"source":"in","dest":"out","filter":"a*"}`, header{
		"router": `"in->out"`, "created": "true", "source": `"in"`, "dest": `"out"`, "preserve_node": "true", "preserve_tag": "true",
		"filter": `["tag","Glob","a*"]`, "allow_cycle": "false", "guarantee": `"at_least_once"`})
	s.expect(200, "PUT", "/v0/routers/in-%3Eout", `{"source":"in","dest":"out","filter":null,"guarantee":"exactly_once"}`,
		header{"created": "false", "filter": "null", "guarantee": `"exactly_once"`})
	s.expect(200, "POST", "/v0/topics/in", `{"records":[{"data":1},{"data":2}]}`, nil)
	s.expect(200, "GET", "/v0/routers/in-%3Eout", "", header{"forwarded_total": "2", "created": ""})
	s.expect(200, "POST", "/v0/topics/out/diff", "", header{"next_from_seq": "2"})
	s.expect(201, "PUT", "/v0/routers/second", `{"source":"in","dest":"other"}`, nil)
	s.expect(200, "GET", "/v0/routers?dest=other", "", header{
		"routers": `[{"router":"second","source":"in","dest":"other","guarantee":"at_least_once","forwarded_total":0}]`, "next_cursor": ""})
	if r := s.ask("GET", "/v0/routers?page_size=1", "", nil); !strings.Contains(r.body, `"next_cursor"`) || strings.Contains(r.body, "second") {
		t.Error(r.body)
	}
	s.expect(200, "DELETE", "/v0/routers/second", "", header{"router": `"second"`, "deleted": "true"})
	s.expect(200, "DELETE", "/v0/routers/second", "", header{"deleted": "false"})
	s.expect(404, "GET", "/v0/routers/second", "", nil)
	s.expect(200, "DELETE", "/v0/topics/in", "", header{"routers_removed": `["in->out"]`})
}

func TestARefusedRouterSaysWhy(t *testing.T) {
	s := serveEngine(t, nil)
	for _, body := range []string{`{}`, `{"source":"a"}`, `{"source":"a","dest":"a"}`, `{"source":"a","dest":"?"}`, `{"source":"a","dest":null}`,
		`{"source":"a","dest":"b","filter":["tag","Eq"]}`, `{"source":"a","dest":"b","guarantee":"none"}`, `{"source":"a","dest":"b","dest":"b"}`} {
		s.expect(400, "PUT", "/v0/routers/r", body, nil)
	}
	s.expect(400, "PUT", "/v0/routers/%3Er", `{"source":"a","dest":"b"}`, nil)
	s.expect(404, "PUT", "/v0/routers/r", `{"source":"a","dest":"b","create_dest":false}`, nil)
	s.expect(404, "GET", "/v0/topics/a", "", nil)
	s.expect(201, "PUT", "/v0/routers/r", `{"source":"a","dest":"b"}`, nil)
	r := s.ask("PUT", "/v0/routers/back", `{"source":"b","dest":"a"}`, nil)
	if s.want(r, 409, "router_cycle"); !strings.Contains(r.body, `"cycle":["b","a","b"]`) {
		t.Error(r.body)
	}
}

func TestARouterOutsideThePrefixesIsHidden(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys = parseKeys(t, "all,lim::in") })
	all, lim := header{"Authorization": "Bearer all"}, header{"Authorization": "Bearer lim"}
	s.want(s.ask("PUT", "/v0/routers/in.r", `{"source":"in.a","dest":"out"}`, all), 201, "")
	for _, r := range []*reply{
		s.ask("PUT", "/v0/routers/in.s", `{"source":"in.a","dest":"out"}`, lim),
		s.ask("GET", "/v0/routers/in.r", "", lim),
		s.ask("DELETE", "/v0/routers/in.r", "", lim),
	} {
		if s.want(r, 403, "forbidden"); !strings.Contains(r.body, `"topic":"out"`) {
			t.Error(r.body)
		}
	}
	if r := s.ask("GET", "/v0/routers", "", lim); !strings.Contains(r.body, `"routers":[]`) {
		t.Error(r.body)
	}
}
