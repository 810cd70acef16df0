package kafka_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"
)

// TestOldBrokersAskForMoreReplicasThanThereAre: before 3.7 a topic whose min.insync.replicas is more than it has
// replicas takes nothing, and the doctor says so.
func TestOldBrokersAskForMoreReplicasThanThereAre(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		brokers *kversion.Versions
		finds   bool
	}{{kversion.V3_6_0(), true}, {kversion.V3_7_0(), false}} {
		f := newFake(t, kfake.MaxVersions(c.brokers))
		if err := f.CreateTopic("few", 1, map[string]string{"min.insync.replicas": "2"}); err != nil {
			t.Fatal(err)
		}
		b := open(t, "kafka://"+f.ListenAddrs()[0]+"/few?group_type=classic")
		defer b.Close()
		found, err := b.Examine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		advice := ""
		for _, f := range found {
			if f.Code == "too_few_replicas" {
				advice = f.Advice
			}
		}
		if c.finds != strings.Contains(advice, "as many replicas as its min.insync.replicas says") {
			t.Errorf("brokers of %s: the doctor advises %q", c.brokers.VersionGuess(), advice)
		}
	}
}
