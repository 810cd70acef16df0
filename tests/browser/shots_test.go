package browser

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/weirmq/weir/tests/weirtest"
)

var (
	shots = flag.String("shots", "", "directory for the pictures of the docs; a temporary one if empty")
	burn  = flag.Duration("burn", 0, "how long the server burns before its pictures are taken")
)

// maxShot is how large a picture in the docs may be.
const maxShot = 250 << 10

// shoot stores what the page shows as NAME.png.
func (b *tab) shoot(dir, name string) {
	b.t.Helper()
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if len(picture) > maxShot {
		b.t.Errorf("%s takes %d bytes, want at most %d", name, len(picture), maxShot)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// story is the load of the queue orders in the pictures: it rises above what two workers do,
// messages wait and are refused, one worker dies, another takes its place, and the load falls.
type story struct {
	t             *testing.T
	server        *weirtest.Server
	began         time.Time
	takes         time.Duration
	dying, rescue *weirtest.Process
}

// tell begins a story; it is told as far as until says.
func tell(t *testing.T, server *weirtest.Server, takes time.Duration) *story {
	t.Helper()
	write(t, server, "orders", object{"type": "queue", "wait_slo_ms": 20000}, object{"data": "first"})
	s := &story{t: t, server: server, began: time.Now(), takes: takes}
	s.hire(220)
	s.dying = s.hire(120)
	return s
}

// hire starts a worker.
func (s *story) hire(handlers int) *weirtest.Process {
	return weirtest.Go(s.t, nil, "work", s.server.URL+"/orders", "--workers", fmt.Sprint(handlers), "--batch", "60", "--", "sleep", "2.6")
}

// load is how many messages come per second, when a part of the story has been told.
func load(told float64) float64 {
	switch {
	case told < 0.15:
		return 40
	case told < 0.4:
		return 40 + (told-0.15)/0.25*180
	case told < 0.78:
		return 220
	}
	return 70
}

func (s *story) until(end float64) {
	const every = 250 * time.Millisecond
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for told := 0.0; told < end; told = float64(time.Since(s.began)) / float64(s.takes) {
		<-ticks.C
		for priority, part := range map[string]float64{"high": 0.2, "normal": 0.5, "bulk": 0.3} {
			records := make([]object, int(part*load(told)*every.Seconds()))
			for i := range records {
				records[i] = object{"data": object{"order": 4711 + i}, "priority": priority}
			}
			if len(records) > 0 {
				post(s.t, s.server.URL+"/v0/topics/orders", object{"records": records})
			}
		}
		switch {
		case told > 0.5 && s.dying.Running():
			s.dying.Signal(syscall.SIGKILL)
			<-s.dying.Exited()
		case told > 0.72 && s.rescue == nil:
			s.rescue = s.hire(160)
		}
	}
}

// Too much load, poison, a queue without a worker and a disk that fills up: the page names each, on
// one screen. The pictures of the docs are taken of it, a story long:
//
//	go test -run Fire -shots ../../docs -burn 9m -timeout 20m
func TestAServerOnFireSaysWhatBurns(t *testing.T) {
	t.Parallel()
	dir := *shots
	if dir == "" {
		dir = t.TempDir()
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(t.TempDir(), &disk); err != nil {
		t.Fatal(err)
	}
	reserve := disk.Bavail * uint64(disk.Bsize) / 10 * 6
	s := weirtest.Start(t, weirtest.Options{Env: []string{fmt.Sprintf("WEIR_DISK_RESERVE=%d", reserve)}})
	b := newTab(t)
	b.dress("light")
	b.open(s.URL)
	b.sees(".empty", "no stream yet")
	b.shoot(dir, "dashboard-empty")

	publish(t, s.URL+"/mail", many(40, "letter to a customer")...)
	publish(t, s.URL+"/invoices", `{"customer":17,"total":"12,50"}`, `{"customer":18,"total":null}`)
	fail(t, s.URL+"/invoices")
	end := func() {}
	if *burn > 0 {
		story := tell(t, s, *burn)
		story.until(0.7)
		end = func() { story.until(1) }
	} else {
		slow := newGate(t)
		weirtest.Go(t, nil, append([]string{"work", s.URL + "/orders", "--workers", "220", "--batch", "100", "--"}, slow.handler()...)...)
		slow.shut()
		publish(t, s.URL+"/orders", many(600, `{"order":4711}`)...)
	}
	for _, what := range []string{"no worker asks for", "dead letter", "at or above lag_pause", "disk"} {
		b.sees(".findings", what)
	}
	b.sees("tbody tr", "backpressure")
	b.size(1280, 1060)
	b.sees("figcaption", "Waiting")
	b.shoot(dir, "dashboard-fire")
	b.dress("dark")
	b.shoot(dir, "dashboard-dark")
	b.size(400, 860)
	b.shoot(dir, "dashboard-narrow")
	b.size(1280, 960)
	b.dress("light")
	b.open(s.URL + "/#/s/orders")
	b.sees(".card", "Lag")
	end()
	b.sees("figcaption", "Lag")
	b.shoot(dir, "dashboard-stream")
}
