package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestANewerFormatIsRefusedWithBothNumbers(t *testing.T) {
	fs := vfs.NewMem()
	if err := openOn(t, fs, "a").Close(); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(fs, "/data", "FORMAT", fmt.Appendf(nil, `{"format":%d,"boot":"a","clean":true}`, FormatVersion+7)); err != nil {
		t.Fatal(err)
	}
	_, err := Open(bg, Options{Dir: "/data", FS: fs, BootID: "a"})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(FormatVersion+7)) || !strings.Contains(err.Error(), fmt.Sprint(FormatVersion)) {
		t.Fatal(err)
	}
}

func TestADirectoryInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir)
	if _, err := Open(bg, Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatal(err)
	}
	write(t, e, "t", "1")
}
