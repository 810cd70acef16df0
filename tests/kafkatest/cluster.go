package kafkatest

import (
	"maps"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cluster is three brokers, each of them a controller too. Topics have three replicas,
// two of which have to be in sync.
type Cluster struct {
	t       TB
	Brokers []*Broker
}

// StartCluster starts three brokers and waits until all of them answer.
func StartCluster(t TB, opt Options) *Cluster {
	t.Helper()
	settings := map[string]string{
		"default.replication.factor": "3", "min.insync.replicas": "2", "offsets.topic.replication.factor": "3",
		"share.coordinator.state.topic.replication.factor": "3", "share.coordinator.state.topic.min.isr": "2",
		"controller.quorum.fetch.timeout.ms": "1500", "broker.session.timeout.ms": "1500",
	}
	maps.Copy(settings, opt.Settings)
	opt.Settings = settings
	c := &Cluster{t: t}
	var voters []string
	for id := 1; id <= 3; id++ {
		b := newBroker(t, id, opt)
		if err := b.choosePorts(); err != nil {
			t.Fatalf("kafkatest: %v", err)
		}
		c.Brokers, voters = append(c.Brokers, b), append(voters, b.voter())
	}
	failures := make([]error, len(c.Brokers))
	var all sync.WaitGroup
	for i, b := range c.Brokers {
		b.voters = strings.Join(voters, ",")
		all.Go(func() { failures[i] = b.create(opt.ShareVersion) })
	}
	all.Wait()
	for i, err := range failures {
		if err != nil {
			t.Fatalf("kafkatest: broker %d: %v", i+1, err)
		}
	}
	return c
}

// Addrs are the addresses of all brokers.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, b := range c.Brokers {
		addrs = append(addrs, b.Addr())
	}
	return addrs
}

// URL is the addresses as a URL without a topic.
func (c *Cluster) URL() string { return "kafka://" + strings.Join(c.Addrs(), ",") }

// Broker returns the broker with a node ID, 1 to 3.
func (c *Cluster) Broker(id int32) *Broker { return c.Brokers[id-1] }

// Controller returns the node ID of the controller that leads the others.
func (c *Cluster) Controller(client *kgo.Client) int32 {
	c.t.Helper()
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic, partition := kmsg.NewDescribeQuorumRequestTopic(), kmsg.NewDescribeQuorumRequestTopicPartition()
	topic.Topic, topic.Partitions = "__cluster_metadata", append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(client.Context(), client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		c.t.Fatalf("kafkatest: who is the controller: %+v, %v", resp, err)
	}
	return resp.Topics[0].Partitions[0].LeaderID
}
