// Command saturation gives a weir server more work than the machine can do and
// prints how it slows down: a line every 250 ms with pressure, rung, coalescing
// and commit window, resident set and push delay per band. Afterwards it checks
// that nothing acknowledged is missing, that every gap a reader saw was
// announced, that no topic waited too long, that memory was bounded and that
// the pressure is gone two seconds after the load. It ends with 1 if not.
//
//	go run ./tests/push/saturation -d 20s
//
// With -writers it shows the ladder instead: a line every 100 ms while so many
// connections write without pause, and whether the governor saw it coming.
//
//	go run ./tests/push/saturation -d 8s -writers 600 -slots 64
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weirmq/weir/tests/push/runs"
)

func main() {
	length := flag.Duration("d", 20*time.Second, "length of the load")
	low := flag.Int("low", 1000, "topics of negative priority")
	bulk := flag.Int("bulk", 48, "connections that write batches without pause")
	routers := flag.Int("routers", 4, "routers, each with a source and a destination of its own")
	memory := flag.Float64("mib", 1024, "bound of the resident set in MiB")
	pressure := flag.String("pressure", "", "pin the pressure to this value between 0 and 1")
	writers := flag.Int("writers", 0, "instead: so many connections that write without pause, and how the ladder answers")
	class := flag.String("class", "fsync", "with -writers: durability of what they write")
	pad := flag.Int("pad", 80, "with -writers: bytes in each of their records")
	slots := flag.String("slots", "", "WEIR_INGEST_QUEUE of the server")
	binary := flag.String("weir", "", "binary to run (default: built from the tree)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var env []string
	if *pressure != "" {
		env = append(env, "WEIR_TEST_PRESSURE="+*pressure)
	}
	if *slots != "" {
		env = append(env, "WEIR_INGEST_QUEUE="+*slots)
	}
	err := runs.WithServer(ctx, *binary, env, func(t runs.Target) error {
		if *writers > 0 {
			return runs.Overload(ctx, t, runs.OverloadOptions{Writers: *writers, Class: *class, Pad: *pad, Length: *length, Out: os.Stdout})
		}
		return runs.Saturate(ctx, t, runs.SaturateOptions{
			Length: *length, Low: *low, Bulk: *bulk, Routers: *routers, MaxMiB: *memory, Pinned: *pressure != "", Out: os.Stdout,
		})
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "saturation:", err)
		os.Exit(1)
	}
	fmt.Println("every promise was kept")
}
