package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/crashfs"
)

// sealedSeveralTimes makes a directory whose store came about in many steps,
// and returns it with its answers.
func sealedSeveralTimes(t *testing.T) (image, map[string]*answer) {
	t.Helper()
	fs := vfs.NewMem()
	for life := range 2 {
		e, err := Open(bg, rotOptions(fs))
		if err != nil {
			t.Fatal(err)
		}
		put(t, e, "log", configOf(api.Fsync))
		put(t, e, "jobs", configOf(api.Fsync, queueConfig))
		for part := range 3 {
			for i := range 4 {
				data := fmt.Sprintf(`"%d %d %d"`, life, part, i)
				write(t, e, "log", data)
				write(t, e, "jobs", data)
			}
			sealNow(t, e)
		}
		write(t, e, "log", `"not sealed"`)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	im := imageOf(t, fs, "/data")
	return im, im.mustAnswer(t)
}

// sealedButNotReleased makes a directory as a kill leaves it between the last
// step of the store and that of the log: both hold the same operations.
func sealedButNotReleased(t *testing.T) (image, map[string]*answer) {
	t.Helper()
	fs := crashfs.New()
	e, err := Open(bg, rotOptions(fs))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	picture := func(dir string) image {
		return imageOf(t, fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), dir)
	}
	put(t, e, "log", configOf(api.Fsync))
	write(t, e, "log", `"first"`)
	sealNow(t, e)
	write(t, e, "log", `"second"`)
	im := picture("/data")
	sealNow(t, e)
	for p, b := range picture("/data/kv") {
		im[p] = b
	}
	return im, im.mustAnswer(t)
}

func (im image) mustAnswer(t *testing.T) map[string]*answer {
	t.Helper()
	answers, err := im.answers("", nil)
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

// sameAnswers compares what two engines say, times included.
func sameAnswers(want, got map[string]*answer) error {
	if len(want) != len(got) {
		return fmt.Errorf("%d topics, want %d", len(got), len(want))
	}
	for name, w := range want {
		g := got[name]
		if g == nil {
			return fmt.Errorf("topic %s does not answer", name)
		}
		if g.text != w.text {
			return fmt.Errorf("topic %s answers otherwise: %.400s, want %.400s", name, g.text, w.text)
		}
	}
	return nil
}

// sameFiles compares a directory with the image it was made of. Who holds it is
// no part of it.
func (im image) sameFiles(fs vfs.FS, changed string, content []byte) error {
	for p, want := range im {
		if base := path.Base(p); base == "LOCK" || base == "PID" {
			continue
		}
		if p == changed {
			want = content
		}
		if got, err := readFile(fs, p); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("%s was changed (%v)", p, err)
		}
	}
	return nil
}

// manifest returns the path of the MANIFEST in use, which Pebble names by an
// empty file beside it.
func (im image) manifest() string {
	for p := range im {
		if _, name, ok := strings.Cut(path.Base(p), "marker.manifest."); ok {
			_, name, _ = strings.Cut(name, ".")
			return path.Join(path.Dir(p), name)
		}
	}
	return ""
}

// answersOf opens a directory and asks for everything.
func answersOf(fs vfs.FS) (map[string]*answer, error) {
	e, err := Open(bg, rotOptions(fs))
	if err != nil {
		return nil, &refusal{err, fs}
	}
	all := map[string]*answer{}
	for _, t := range e.Topics("", "", 1000, false, nil).Topics {
		if all[t.Topic], err = ask(e, t.Topic); err != nil {
			break
		}
	}
	return all, errors.Join(err, e.Close())
}

// checkManifest looks through a directory with a damaged MANIFEST, or starts on
// it, undoes the damage and starts again: nothing may be missing. started says
// that the damage did not stop the start.
func (r rot) checkManifest(im image, want map[string]*answer, repair bool) (started bool, err error) {
	fs, err := im.with(r.file, r.content)
	if err != nil {
		return false, err
	}
	if repair {
		err = r.onlyLooks(im, fs)
	} else {
		started, err = r.startsOrChangesNothing(im, fs, want)
	}
	if err != nil {
		return started, err
	}
	if err := writeFile(fs, r.file, im[r.file]); err != nil {
		return started, err
	}
	got, err := answersOf(fs)
	if err == nil {
		err = sameAnswers(want, got)
	}
	if err != nil {
		return started, fmt.Errorf("once the damage is undone: %w", err)
	}
	return started, nil
}

func (r rot) onlyLooks(im image, fs vfs.FS) error {
	var report strings.Builder
	n, err := Repair(bg, rotOptions(fs), false, &report)
	said := report.String() + fmt.Sprint(err)
	if err := im.sameFiles(fs, r.file, r.content); err != nil {
		return fmt.Errorf("repair only looks, but %w", err)
	}
	if n == 0 && err == nil {
		// A torn end is no damage if the log has what it would have said.
		if _, err := answersOf(fs); err != nil {
			return fmt.Errorf("repair says that nothing is damaged, but %w", err)
		}
		return nil
	}
	if !strings.Contains(said, path.Base(r.file)) {
		return fmt.Errorf("repair does not name the file: %s", said)
	}
	return nil
}

func (r rot) startsOrChangesNothing(im image, fs vfs.FS, want map[string]*answer) (started bool, err error) {
	got, err := answersOf(fs)
	if err == nil {
		return true, sameAnswers(want, got)
	}
	var no *refusal
	if !errors.As(err, &no) {
		return false, err
	}
	if !strings.Contains(err.Error(), path.Base(r.file)) {
		return false, fmt.Errorf("the refusal does not name the file: %w", err)
	}
	if err := im.sameFiles(fs, r.file, r.content); err != nil {
		return false, fmt.Errorf("the start was refused (%v), but %w", no, err)
	}
	return false, nil
}

func writeFile(fs vfs.FS, name string, content []byte) error {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(bytes.Clone(content))
	return errors.Join(err, f.Close())
}

// A damaged MANIFEST looks like a torn one to Pebble, which then removes the
// tables of the newer version. Neither a look at the damage nor a start over it
// may cost anything.
func TestADamagedManifestCostsNothing(t *testing.T) {
	for name, build := range map[string]func(*testing.T) (image, map[string]*answer){
		"released": sealedSeveralTimes, "not released": sealedButNotReleased,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			im, want := build(t)
			file := im.manifest()
			n, started := 0, 0
			for _, r := range rots(file, im[file], sweepShare) {
				for _, repair := range []bool{false, true} {
					n++
					ok, err := r.checkManifest(im, want, repair)
					if err != nil {
						t.Fatalf("%s: %s: repair=%t: %v", r.file, r.what, repair, err)
					}
					if ok {
						started++
					}
				}
			}
			t.Logf("%d damages, %d starts went well", n, started)
			if n < 300/sweepShare || (started > 0) != (name == "not released") {
				t.Error("the damages did not meet what they should")
			}
		})
	}
}
