package dash

import (
	"mime"
	"net/http/httptest"
	"testing"
)

// A machine may have types of its own for the ends of names, and no browser runs a script that is
// sent as text.
func TestThePageDoesNotGoByTheMachinesTypes(t *testing.T) {
	was := mime.TypeByExtension(".js")
	if err := mime.AddExtensionType(".js", "text/plain"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := mime.AddExtensionType(".js", was); err != nil {
			t.Error(err)
		}
	}()
	for name, f := range load() {
		if f.kind == "" {
			t.Errorf("%s has no type", name)
		}
	}
	for name, want := range map[string]string{"": "text/html; charset=utf-8", "app.js": "text/javascript; charset=utf-8", "style.css": "text/css; charset=utf-8"} {
		w := httptest.NewRecorder()
		if !ServeFile(w, httptest.NewRequest("GET", "/", nil), name) || w.Header().Get("Content-Type") != want || load()[name].kind != want {
			t.Errorf("%q is %s, want %s", name, w.Header().Get("Content-Type"), want)
		}
	}
}
