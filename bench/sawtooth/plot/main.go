// Command plot draws the pictures of the sawtooth study from its CSV files: how
// the backlog and what is being worked on went over time, one SVG for each arm.
package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"image/color"
	"log"
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
	{"onoff", "on/off, written by hand: stop above 200 unread", 700},
	{"static", "static: soft 50, hard 200, pending", 700},
	{"proportional", "proportional: soft 50, hard 200, pending", 700},
	{"backlog", "proportional: soft 50, hard 200, backlog", 700},
}

func main() {
	log.SetFlags(0)
	dir := flag.String("dir", "docs/sawtooth", "folder of the CSV files and the pictures")
	flag.Parse()
	for _, t := range titles {
		if err := draw(filepath.Join(*dir, t.name), t.title, t.top); err != nil {
			log.Fatalf("plot: %s: %v", t.name, err)
		}
	}
}

func draw(base, title string, top float64) error {
	backlog, pending, err := read(base + ".csv")
	if err != nil {
		return err
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "seconds", "messages"
	p.Y.Min, p.BackgroundColor = 0, color.White
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
	p.Y.Min = 0
	if top > 0 {
		p.Y.Max = max(top, p.Y.Max)
	}
	return p.Save(16*vg.Centimeter, 7*vg.Centimeter, base+".svg")
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
