package openapi

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/contract"
)

const (
	page     = "../../internal/server/openapi.json"
	examples = "../../docs/API.md"
)

func readPage(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func load(t *testing.T, text []byte) *Document {
	t.Helper()
	d, err := Load(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// lint returns what makes a text no valid OpenAPI document, or an example in it or a schema
// no valid one.
func lint(text []byte) (wrong []string) {
	_, errs := newLibrary(text)
	for _, err := range errs {
		wrong = append(wrong, err.Error())
	}
	d, err := Load(text)
	if err != nil {
		return append(wrong, err.Error())
	}
	for _, name := range d.names("schemas") {
		if err := d.said.compile("/components/schemas/" + name); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	return append(wrong, d.examples()...)
}

func TestTheDocumentIsValid(t *testing.T) {
	text := readPage(t)
	for _, wrong := range lint(text) {
		t.Error(wrong)
	}
	d := load(t, text)
	if version, _ := d.root["openapi"].(string); !strings.HasPrefix(version, "3.1.") {
		t.Errorf("openapi is %q", version)
	}
	for _, name := range d.names("schemas") {
		if !bytes.Contains(text, []byte(`"#/components/schemas/`+name+`"`)) {
			t.Errorf("nothing is a %s", name)
		}
	}
	fmt.Printf("openapi: %d operations and %d schemas are valid OpenAPI 3.1\n", len(d.operations), len(d.names("schemas")))
}

func readExamples(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(examples)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func pageProblems(t *testing.T, text []byte) []string {
	t.Helper()
	j := NewJudge(load(t, readPage(t)))
	if _, err := j.Page("docs/API.md", text); err != nil {
		t.Fatal(err)
	}
	return j.Problems
}

func TestExamplesOfTheReferenceAreWhatTheDocumentSays(t *testing.T) {
	j := NewJudge(load(t, readPage(t)))
	n, err := j.Page("docs/API.md", readExamples(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range j.Problems {
		t.Error(p)
	}
	if n.Requests < 96 || n.Answers < 56 || n.Events < 11 || n.Messages < 12 || n.Objects < 2 {
		t.Errorf("%+v: not all of the examples were read", n)
	}
	fmt.Printf("openapi: docs/API.md has %d requests, %d answers, %d events, %d messages and %d objects, all as described\n", n.Requests, n.Answers, n.Events, n.Messages, n.Objects)
}

// recorded returns the files of a run of the contract.
func recorded(t *testing.T) []string {
	t.Helper()
	dir := os.Getenv(contract.RecordVariable)
	if dir == "" {
		dir = t.TempDir()
		run := exec.Command("go", "test", "-count=1", "-run", "^(TestContract|TestExamplesOfTheReference)$", ".")
		run.Dir, run.Env = "../contract", append(os.Environ(), contract.RecordVariable+"="+dir)
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no exchanges: %v", dir, err)
	}
	return files
}

// shown is how many problems a test shows.
const shown = 40

// unasked are the operations that no case has answered with success: they are tested
// where what they send can be judged.
var unasked = []string{"POST /admin/backup", "POST /admin/bundle"}

func TestTheContractIsWhatTheDocumentSays(t *testing.T) {
	j := NewJudge(load(t, readPage(t)))
	if err := j.Ask(readPage(t)); err != nil {
		t.Fatal(err)
	}
	for _, name := range recorded(t) {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		err = j.Record(file)
		if err = cmp.Or(err, file.Close()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for i, p := range j.Problems {
		if i == shown {
			t.Errorf("and %d more", len(j.Problems)-shown)
			break
		}
		t.Error(p)
	}
	answers, said := 0, 0
	for _, o := range j.doc.operations {
		good := false
		for status := range object(o.node["responses"]) {
			n := j.seen[o.name+" "+status]
			good = good || n > 0 && status[0] < '4'
			if said++; n > 0 {
				answers++
			}
		}
		if good == slices.Contains(unasked, o.name) {
			t.Errorf("%s: a case was answered with success: %v", o.name, good)
		}
	}
	c := &j.Counts
	for what, n := range map[string]int{"requests": c.Requests - 5000, "events": c.Events - 1000, "messages": c.Messages - 250, "confirmed": c.Confirmed - 10000, "other bodies": c.Other - 80, "preflights": c.Preflight - 6} {
		if n < 0 {
			t.Errorf("there are %d %s too few: the record is not whole", -n, what)
		}
	}
	fmt.Printf("openapi: %d requests, of which the document forbids %d, all refused (and %d were refused with 400 for more than it says)\n", c.Requests, c.Refused, c.Beyond)
	fmt.Printf("openapi: %d answers, %d of them errors, are as described: %d of the %d kinds that there are\n", c.Answers, c.Errors, answers, said)
	fmt.Printf("openapi: %d bodies of other types than JSON, and %d answers to preflights\n", c.Other, c.Preflight)
	fmt.Printf("openapi: %d events, %d messages from WebSockets and %d to them, of which %d were refused as described\n", c.Events, c.Messages, c.Sent, c.Unfit)
	fmt.Printf("openapi: %d of these requests and answers were judged by libopenapi-validator, too\n", c.Confirmed)
	fmt.Printf("openapi: beside them %d errors of paths that are no calls, %d of the HTTP layer, %d exchanges of the dashboard, %d too long to be kept\n", c.Stray, c.Bare, c.Dashboard, c.Long)
}
