package kafka

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ruledOut are the options of a client that weir's use of it rules out.
var ruledOut = []struct {
	option any
	why    string
}{
	{kgo.DisableIdempotentWrite, "appends have to be idempotent: a repeat on the wire would store a message twice"},
	{kgo.AllowIdempotentProduceCancellation, "a record whose outcome is unknown is never taken back"},
	{kgo.TransactionalID, "weir writes outside of transactions"},
	{kgo.ManualFlushing, "appends are sent at once"},
	{kgo.AllowAutoTopicCreation, "a missing topic is an error; partitions=N in the URL creates it"},
	{kgo.ConsumerGroup, "the URL names the group"},
	{kgo.ShareGroup, "the URL names the group"},
	{kgo.ConsumeTopics, "weir reads for itself"},
	{kgo.ConsumePartitions, "weir reads for itself"},
}

// checkOptions refuses a client with an option that is ruled out.
func checkOptions(c *kgo.Client) error {
	for _, o := range ruledOut {
		if v := c.OptValue(o.option); v != nil && !reflect.ValueOf(v).IsZero() {
			return fmt.Errorf("kafka: option %s cannot be used: %s", optionName(o.option), o.why)
		}
	}
	return nil
}

func optionName(option any) string {
	name := runtime.FuncForPC(reflect.ValueOf(option).Pointer()).Name()
	return name[strings.LastIndex(name, "/")+1:]
}
