package overload

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRecordedArrivalsOfEveryForm(t *testing.T) {
	want := []Arrival{{0, 0}, {500 * time.Millisecond, -1}, {2 * time.Second, 3}}
	for name, text := range map[string]string{
		"seconds, header, any order": "time,tier\n12.5,3\n10.5,0\n\n11\n",
		"RFC 3339":                   "2026-03-01T12:00:00Z,0\r\n2026-03-01T12:00:00.5Z\n2026-03-01T13:00:02+01:00,3\n",
		"JSON":                       `{"at":10.5,"tier":0}` + "\n" + `{"at":"11"}` + "\n" + `{"tier":3,"at":12.5}`,
		"JSON times":                 "\"2026-03-01T12:00:00Z\",0\n\"2026-03-01T12:00:00.5Z\"\n\"2026-03-01T12:00:02Z\",3",
	} {
		got, err := ReadArrivals(strings.NewReader(text))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                    "no times",
		"time,tier\n":         "no times",
		"1\n2,4\n":            `line 2: tier "4" is not a whole number from 0 to 3`,
		"1\nsoon\n":           `line 2: "soon" is neither`,
		"1\nNaN\n":            `line 2: "NaN" is neither`,
		"{\"when\":1}\n":      `line 1: "{\"when\":1}" is not an object`,
		"1\n{\"at\":1,}\n":    "line 2: ",
		"0\n100000000000\n":   "s apart",
		"{\"at\":1}{\"at\":2": "line 1",
	} {
		if got, err := ReadArrivals(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", text, got, err, want)
		}
	}
}

// A recording is the whole plateau, and its load is what it was.
func TestTwinOfARecording(t *testing.T) {
	s := Scenario{Workers: 2, Phases: [3]float64{9, 9, 2}}
	for i := range 400 {
		s.Recorded = append(s.Recorded, Arrival{At: time.Duration(i) * 10 * time.Millisecond, Tier: i % 4})
	}
	r := inBubble(t, s, "off")
	near(t, "load", r.Scenario.Load, 2, 0.01)
	near(t, "length", float64(r.Scenario.Length()), float64(6*time.Second), 1e8)
	if r.Offered != 400 || r.Stored != 400 || r.Goodput > 0.8 || r.Goodput < 0.2 {
		t.Errorf("offered %d, stored %d, goodput %s", r.Offered, r.Stored, r.Goodput.percent())
	}
	clean(t, r)
}

// A run that is too short to measure anything says so, and no goal is judged by it.
func TestATableOfARunWithoutOffers(t *testing.T) {
	r := inBubble(t, Scenario{Load: 0.01, Phases: [3]float64{0, 0.01, 0}}, "off")
	var table strings.Builder
	if err := Table(&table, []*Result{r}); err != nil {
		t.Fatal(err)
	}
	if r.Offered != 0 || strings.Contains(table.String(), "NaN") || strings.Contains(table.String(), "missed") {
		t.Errorf("%d offers:\n%s", r.Offered, table.String())
	}
}

func TestTheFilesOfAResultCanBeRead(t *testing.T) {
	results := []*Result{
		inBubble(t, Scenario{Load: 2, Phases: [3]float64{1, 3, 2}}, "off"),
		inBubble(t, Scenario{Load: 0.1, Phases: [3]float64{0, 1, 0}}, "static?lag_pause=100&lag_warn=10"),
	}
	text, err := json.Marshal(NewReport(results))
	if err != nil {
		t.Fatal(err)
	}
	var back struct {
		Results []struct {
			Arm     string
			Goodput float64
			Refusal struct{ P99 *float64 }
			Goals   map[string]struct {
				Figure      string
				Met, Judged bool
			}
			Samples []struct{ Waiting int }
		}
	}
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	first := back.Results[0]
	if first.Arm != "off" || first.Goodput != float64(results[0].Goodput) || first.Refusal.P99 != nil || len(first.Samples) < 100 ||
		!first.Goals["goodput"].Judged || first.Goals["goodput"].Met || !first.Goals["lost"].Met {
		t.Errorf("%+v", first)
	}
	var picture strings.Builder
	Draw(&picture, results)
	d := xml.NewDecoder(strings.NewReader(picture.String()))
	lines := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != len(panels)*len(results) || strings.Contains(picture.String(), "NaN") || strings.Contains(picture.String(), "Inf") {
		t.Errorf("%d curves in\n%s", lines, &picture)
	}
	var table strings.Builder
	if err := Table(&table, results); err != nil || !strings.Contains(table.String(), "missed") {
		t.Errorf("%v\n%s", err, &table)
	}
}
