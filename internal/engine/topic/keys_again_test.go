package topic

import (
	"testing"

	"github.com/weirmq/weir/internal/op"
)

// A key that is used again after its window has a window of its own: the end of the first one
// takes nothing from it.
func TestAKeyThatIsUsedAgainOutlivesItsFirstUse(t *testing.T) {
	var k Keys
	other, hash := op.KeyHash{1}, op.KeyHash{2}
	k.Put(other, Key{First: 1, N: 1, At: 0})
	k.Put(hash, Key{First: 2, N: 1, At: 0})
	if _, ok := k.Get(hash, 1001, 1000); ok {
		t.Fatal("the key holds longer than its window")
	}
	k.Put(hash, Key{First: 3, N: 1, At: 1001})
	k.Expire(1001, 1000, 10)
	if e, ok := k.Get(hash, 1500, 1000); !ok || e.First != 3 || k.Len() != 1 {
		t.Errorf("%+v %v, %d keys; want the second use alone", e, ok, k.Len())
	}
	k.Expire(2002, 1000, 10)
	if k.Len() != 0 {
		t.Errorf("%d keys are left", k.Len())
	}
}

// The key of a write that is on its way to the disk does not expire before the write has an end:
// its repeat would be stored beside it.
func TestTheKeyOfAPendingWriteDoesNotExpire(t *testing.T) {
	var k Keys
	hash := op.KeyHash{1}
	k.Put(hash, Key{First: 1, N: 1, At: 0, Pending: true})
	k.Expire(5000, 1000, 10)
	if _, ok := k.Get(hash, 5000, 1000); !ok {
		t.Error("the key is free while its write is on its way")
	}
	k.Publish(hash, Key{First: 1, N: 1, At: 0})
	if k.Expire(5000, 1000, 10); k.Len() != 0 {
		t.Error("the key stays for ever")
	}
}
