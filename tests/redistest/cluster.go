package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	masters = 3
	slots   = 16384
)

// Cluster is three masters that share the slots, a replica for each of the
// first of them if asked for, and masters that have joined.
type Cluster struct {
	Masters  []*Server
	Replicas []*Server // Replicas[i] follows Masters[i] at the start
	opt      Options   // of each
	t        TB
}

// StartCluster starts three masters and replicas (0 to 3) replicas, waits until
// every node knows every other and serves, and ends them with the test. A master
// that does not answer for a second is replaced by its replica. Without replicas it is
// waited for, since the others would refuse everything and nobody takes over.
func StartCluster(t TB, replicas int, opt Options) *Cluster {
	t.Helper()
	patience := "1000"
	if replicas == 0 {
		patience = "60000"
	}
	opt.Args = append([]string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", patience,
		"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
	}, opt.Args...)
	c := &Cluster{opt: opt, t: t}
	for i := range masters + replicas {
		opt.Dir = "" // each has its own
		s := prepare(t, opt)
		s.args = s.serverArgs
		if err := s.launch(freePort); err != nil {
			t.Fatalf("redistest: node %d: %v", i, err)
		}
		if i < masters {
			c.Masters = append(c.Masters, s)
		} else {
			c.Replicas = append(c.Replicas, s)
		}
	}
	c.form()
	return c
}

// Nodes are all servers.
func (c *Cluster) Nodes() []*Server {
	return append(append([]*Server(nil), c.Masters...), c.Replicas...)
}

// URL names all nodes, without a stream: redis://a:1,b:2,c:3/0.
func (c *Cluster) URL() string {
	var addrs []string
	for _, s := range c.Nodes() {
		addrs = append(addrs, s.Addr())
	}
	return "redis://" + strings.Join(addrs, ",") + "/0"
}

func (c *Cluster) form() {
	c.t.Helper()
	ctx := context.Background()
	first := c.Masters[0]
	for i, s := range c.Masters {
		client := s.Client()
		c.must(s, client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		c.must(s, client.ClusterAddSlotsRange(ctx, slots*i/masters, slots*(i+1)/masters-1).Err())
	}
	for _, s := range c.Nodes() {
		c.must(s, s.Client().ClusterMeet(ctx, "127.0.0.1", strconv.Itoa(first.port)).Err())
	}
	c.awaitMet()
	for i, r := range c.Replicas {
		c.must(r, r.Client().ClusterReplicate(ctx, c.id(c.Masters[i])).Err())
	}
	if len(c.Replicas) > 0 {
		c.awaitReplicas(ctx)
	}
}

// awaitMet waits until every node knows every other and serves.
func (c *Cluster) awaitMet() {
	c.t.Helper()
	nodes := len(c.Nodes())
	c.awaitAll("cluster", func(s *Server, info string) error {
		if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", nodes)) {
			return errors.New(info)
		}
		return nil
	})
}

// awaitReplicas waits until replicas have their master's data and every node
// knows about them: only then they can take over.
func (c *Cluster) awaitReplicas(ctx context.Context) {
	c.t.Helper()
	for _, r := range c.Replicas {
		awaitLink(c.t, r)
	}
	c.awaitAll("replicas", func(s *Server, _ string) error {
		list, err := s.Client().ClusterNodes(ctx).Result()
		if err == nil && strings.Count(list, "slave") < len(c.Replicas) {
			err = errors.New(list)
		}
		return err
	})
}

func awaitLink(t TB, replica *Server) {
	t.Helper()
	client := replica.Client()
	eventually(t, "replication", func() error {
		info, err := client.Info(context.Background(), "replication").Result()
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = errors.New(info)
		}
		return err
	})
}

func (c *Cluster) awaitAll(what string, check func(s *Server, info string) error) {
	c.t.Helper()
	for _, s := range c.Nodes() {
		client := s.Client()
		eventually(c.t, what, func() error {
			info, err := client.ClusterInfo(context.Background()).Result()
			if err != nil {
				return err
			}
			return check(s, info)
		})
	}
}

func (c *Cluster) must(s *Server, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("redistest: cluster node %s: %v", s.Addr(), err)
	}
}

func (c *Cluster) id(s *Server) string {
	c.t.Helper()
	id, err := s.Client().ClusterMyID(context.Background()).Result()
	c.must(s, err)
	return id
}

// Owner returns the node that serves key now, asking a node other than skip,
// which may be nil.
func (c *Cluster) Owner(key string, skip *Server) *Server {
	c.t.Helper()
	for _, s := range c.Nodes() {
		if s == skip {
			continue
		}
		if owner := c.ownerBy(s, key); owner != nil {
			return owner
		}
	}
	c.t.Fatalf("redistest: nobody serves the slot of %q", key)
	return nil
}

// ownerBy returns the node that serves key in the view of s, nil for none.
func (c *Cluster) ownerBy(s *Server, key string) *Server {
	c.t.Helper()
	client := s.Client()
	slot, err := client.ClusterKeySlot(context.Background(), key).Result()
	c.must(s, err)
	ranges, err := client.Do(context.Background(), "CLUSTER", "SLOTS").Slice()
	c.must(s, err)
	for _, r := range ranges {
		// First slot, last slot, and the master as host, port and more.
		r := r.([]any)
		if slot >= r[0].(int64) && slot <= r[1].(int64) {
			return c.at(fmt.Sprintf("127.0.0.1:%d", r[2].([]any)[1]))
		}
	}
	return nil
}

func (c *Cluster) at(addr string) *Server {
	for _, s := range c.Nodes() {
		if s.Addr() == addr {
			return s
		}
	}
	c.t.Fatalf("redistest: no node of the cluster is at %s", addr)
	return nil
}

// MoveSlot gives the slot of key to another master, with every key in it, while
// clients go on. It returns the new owner once every node that runs knows it.
func (c *Cluster) MoveSlot(key string) *Server {
	c.t.Helper()
	to := c.Masters[0]
	if to == c.Owner(key, nil) {
		to = c.Masters[1]
	}
	m := c.BeginMove(key, to)
	m.Rest()
	m.Finish()
	return to
}
