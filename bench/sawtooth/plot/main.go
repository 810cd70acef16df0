// Command plot draws the pictures of the sawtooth study from its CSV files: how
// the backlog and what is being worked on went over time, one SVG for each arm.
package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"image/color"
	"log"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// titles of the arms, in the order of docs/BACKPRESSURE.md.
var titles = []struct {
	name, title string
	top         float64 // of the vertical axis; 0: whatever comes
}{
	{"off", "off", 0},
	{"onoff", "on/off: stop above 200 unread, go below", 1200},
	{"static", "static: soft 50, hard 200, pending", 0},
	{"proportional", "proportional: soft 50, hard 200, pending", 1200},
	{"backlog", "proportional: soft 50, hard 200, backlog", 1200},
}

func main() {
	log.SetFlags(0)
	dir := flag.String("dir", "docs/sawtooth", "folder of the CSV files and the pictures")
	format := flag.String("format", "svg", "svg or png")
	flag.Parse()
	for _, t := range titles {
		if err := draw(filepath.Join(*dir, t.name), *format, t.title, t.top); err != nil {
			log.Fatalf("plot: %s: %v", t.name, err)
		}
	}
}

func draw(base, format, title string, top float64) error {
	backlog, pending, err := read(base + ".csv")
	if err != nil {
		return err
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "seconds", "messages"
	p.BackgroundColor = color.White
	p.Add(plotter.NewGrid())
	for _, l := range []struct {
		name   string
		points plotter.XYs
		colour color.Color
	}{
		{"backlog", backlog, color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 0xff}},
		{"of it pending", pending, color.RGBA{R: 0x2c, G: 0x5a, B: 0xa0, A: 0xff}},
	} {
		line, err := plotter.NewLine(l.points)
		if err != nil {
			return err
		}
		line.Color, line.Width = l.colour, vg.Points(1.2)
		p.Add(line)
		p.Legend.Add(l.name, line)
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.Y.Min, p.X.Min = 0, 0
	p.X.Max = math.Ceil(backlog[len(backlog)-1].X)
	p.X.Tick.Marker, p.Y.Tick.Marker = whole{}, whole{}
	if top > 0 {
		p.Y.Max = max(top, p.Y.Max)
	}
	return p.Save(16*vg.Centimeter, 7*vg.Centimeter, base+"."+format)
}

// whole puts marks at whole numbers: about five, at 1, 2 or 5 times a power of ten.
type whole struct{}

func (whole) Ticks(low, high float64) (ticks []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/2)))
	for _, more := range []float64{2, 2.5, 2} {
		if (high-low)/step > 8 {
			step *= more
		}
	}
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
	}
	return ticks
}

// read returns the backlog and the pending messages over time.
func read(name string) (backlog, pending plotter.XYs, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, nil, err
	}
	for i, row := range rows[1:] {
		var n [3]float64
		for c := range n {
			if n[c], err = strconv.ParseFloat(row[c], 64); err != nil {
				return nil, nil, fmt.Errorf("line %d: %w", i+2, err)
			}
		}
		pending = append(pending, plotter.XY{X: n[0], Y: n[1]})
		backlog = append(backlog, plotter.XY{X: n[0], Y: n[1] + n[2]})
	}
	return backlog, pending, nil
}
