package slots_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/dir"
	"github.com/weirmq/weir/internal/replica/replicatest"
	"github.com/weirmq/weir/internal/replica/slots"
)

// faulty is objects whose changes suffer faults.
type faulty struct {
	*dir.Store
	plan *replicatest.Plan
}

func (f faulty) Create(ctx context.Context, name string, data []byte) error {
	return f.plan.Through(ctx, func() error { return f.Store.Create(context.WithoutCancel(ctx), name, data) })
}

func TestLogInADirectory(t *testing.T) {
	root := t.TempDir()
	open := func(t testing.TB, name string) *dir.Store {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		store, err := dir.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	opt := slots.Options{Grace: time.Nanosecond, Keep: 8}
	replicatest.Run(t, replicatest.Harness{
		Keeps: 8,
		Log:   func(t testing.TB, name string) replica.Log { return slots.New(open(t, name), opt) },
		Files: func(t testing.TB, name string) replica.Files { return open(t, name) },
		Faulty: func(t testing.TB, name string) (replica.Log, replicatest.Inject) {
			plan := &replicatest.Plan{}
			return slots.New(faulty{open(t, name), plan}, opt), plan.Inject
		},
	})
}
