package dir

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// formatName is the file by which a copy is told from others.
const formatName = "FORMAT"

// root is the directory that the copy was opened in. What is at its path may become another one:
// the mount point, once the file system that was mounted there is gone.
type root struct {
	path string

	mu     sync.Mutex
	info   fs.FileInfo
	format []byte // what FORMAT holds; nil: not known
}

// check returns an error unless what is at the path is the directory that it was, or, mounted
// anew, one with the same FORMAT. moved says that it is that.
func (r *root) check() (moved bool, err error) {
	info, err := os.Stat(r.path)
	if err != nil {
		return false, fmt.Errorf("the directory of the copy is gone: %v; mount what belongs there", err) // not %w: no name below it is known not to be there
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	same := os.SameFile(info, r.info)
	if same && r.format != nil {
		return false, nil
	}
	format, err := os.ReadFile(filepath.Join(r.path, formatName))
	switch {
	case same && err == nil:
		r.format = format
	case !same && (err != nil || !bytes.Equal(format, r.format)):
		return false, fmt.Errorf("%s is not the directory that the copy was opened in: mount what belongs there, or start the server again if this is where the copy is to go on", r.path)
	}
	r.info = info
	return !same, nil
}
