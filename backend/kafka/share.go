package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
)

// Settings of a share group.
const (
	groupReset = "share.auto.offset.reset"
	groupLimit = "share.delivery.count.limit"
	// groupIsolation keeps from a group what belongs to a transaction that was given up.
	groupIsolation = "share.isolation.level"
	groupRenew     = "share.renew.acknowledge.enable"
	mostLimit      = 10 // brokers accept no more by default
)

// prepareGroup sets what a share group needs before its first member joins and nobody has
// set: that it begins at the first record, and how often the broker delivers. It returns
// the most deliveries that a claim may ask for.
func (b *Backend) prepareGroup(ctx context.Context) (int, error) {
	set, err := b.groupConfigs(ctx)
	if err != nil {
		return 0, err
	}
	if set[groupRenew].value == "false" {
		return 0, fmt.Errorf("share group %q has %s=false, and weir renews the locks of what it holds: set it to true", b.set.group, groupRenew)
	}
	if limit, known := set[groupLimit]; known && !limit.own {
		if err := b.setGroup(ctx, groupLimit, strconv.Itoa(mostLimit)); err == nil {
			set[groupLimit] = groupSetting{value: strconv.Itoa(mostLimit), own: true}
		} else if !errors.Is(err, kerr.InvalidConfig) {
			return 0, err
		}
	}
	if !set[groupReset].own {
		if err := b.setGroup(ctx, groupReset, "earliest"); err != nil {
			return 0, err
		}
	}
	if level, known := set[groupIsolation]; known && !level.own {
		if err := b.setGroup(ctx, groupIsolation, "read_committed"); err != nil {
			return 0, err
		}
	}
	return mostOf(set), nil
}

// mostOf is the most deliveries that a claim may ask for.
func mostOf(set map[string]groupSetting) int {
	limit, err := strconv.Atoi(set[groupLimit].value)
	if err != nil {
		limit = 5 // of brokers that do not say: the default
	}
	return limit - spare
}

// followLimit reads the limit of deliveries again: what fails more often than a lower one allows would be
// dropped by the brokers, unseen.
func (m *member) followLimit() {
	if time.Since(m.limitRead) < layoutAge {
		return
	}
	m.limitRead = time.Now()
	ctx, cancel := context.WithTimeout(m.b.closing, callTimeout)
	defer cancel()
	set, err := m.b.groupConfigs(ctx)
	if err != nil {
		return // the next time
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most = mostOf(set)
}

// groupSetting is a value, and whether somebody has set it for this group.
type groupSetting struct {
	value string
	own   bool
}

func (b *Backend) groupConfigs(ctx context.Context) (map[string]groupSetting, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, b.set.group
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(ctx, b.requests())
	if err != nil {
		return nil, err
	}
	set := map[string]groupSetting{}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return nil, b.onGroup(err, rightReadConfigs)
		}
		for _, c := range r.Configs {
			if c.Value != nil {
				set[c.Name] = groupSetting{*c.Value, c.Source == kmsg.ConfigSourceGroupConfig}
			}
		}
	}
	return set, nil
}

func (b *Backend) setGroup(ctx context.Context, key, value string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, b.set.group
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = key, &value
	resource.Configs = append(resource.Configs, config)
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(ctx, b.requests())
	if err != nil {
		return err
	}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return fmt.Errorf("set %s of share group %q: %w", key, b.set.group, b.onGroup(err, rightWriteConfigs))
		}
	}
	return nil
}

// progress asks the coordinator.
func (m *member) progress(ctx context.Context) (map[int32]progress, error) {
	b := m.b
	l, err := b.layout(ctx)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	group, topic := kmsg.NewDescribeShareGroupOffsetsRequestGroup(), kmsg.NewDescribeShareGroupOffsetsRequestGroupTopic()
	group.GroupID, topic.Topic = b.set.group, b.set.topic
	for p := range l.leaders {
		topic.Partitions = append(topic.Partitions, p)
	}
	group.Topics = append(group.Topics, topic)
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, b.requests())
	if err != nil {
		return nil, b.explain(b.onGroup(err, rightDescribe))
	}
	all, begun := map[int32]progress{}, false
	for _, g := range resp.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return nil, b.explain(b.onGroup(err, rightDescribe))
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil && l.leaders[p.Partition] < 0 {
					continue
				} else if err != nil {
					return nil, b.explain(b.onTopic(err, rightDescribe, b.set.topic))
				}
				all[p.Partition] = progress{start: p.StartOffset, left: p.Lag, known: unseen}
				begun = begun || p.StartOffset >= 0
			}
		}
	}
	if !begun { // the coordinator says so of groups that it does not know, too
		if err := b.groupThere(ctx); err != nil {
			return all, err
		}
	}
	m.placeUnbegun(ctx, all)
	return all, nil
}

// placeUnbegun notes of partitions without a start whether the group will begin at their
// ends.
func (m *member) placeUnbegun(ctx context.Context, all map[int32]progress) {
	for p, at := range all {
		if at.start < 0 {
			at.atEnd = m.beginsAtEnd(ctx)
			all[p] = at
		}
	}
}

// beginsAtEnd reports whether the group begins anywhere but at the first record. If it may
// not be looked at, it is taken for one that weir has set up.
func (m *member) beginsAtEnd(ctx context.Context) bool {
	m.mu.Lock()
	atEnd, at := m.atEnd, m.atEndRead
	m.mu.Unlock()
	if time.Since(at) < layoutAge {
		return atEnd
	}
	set, err := m.b.groupConfigs(ctx)
	atEnd = err == nil && set[groupReset].value != "earliest"
	m.mu.Lock()
	defer m.mu.Unlock()
	m.atEnd, m.atEndRead = atEnd, time.Now()
	return atEnd
}

// findings looks at the settings of the group that decide what is lost.
func (m *member) findings(ctx context.Context, add func(backend.Finding)) {
	b := m.b
	set, err := b.groupConfigs(ctx)
	if err != nil {
		return // not permitted to look
	}
	if reset := set[groupReset]; reset.own && reset.value == "latest" {
		add(backend.Finding{Code: "begins_late", Severity: backend.SeverityWarning, Concern: backend.OfLoss,
			Problem: fmt.Sprintf("share group %q begins at the end of a topic that it has not read before (%s)", b.set.group, groupReset),
			Advice:  "set it to earliest: otherwise what was published before the first worker joined is never delivered"})
	}
	groups, err := named(ctx, b, b.admin.DescribeShareGroups, b.set.group)
	if err != nil {
		return
	}
	if members := groups[b.set.group].Members; len(members) > 0 && !slices.ContainsFunc(members, hasPartitions) {
		add(backend.Finding{Code: "no_partitions", Severity: backend.SeverityError, Concern: backend.OfWorkers,
			Problem: fmt.Sprintf("share group %q has %d members, and the brokers have given none of them a partition: nothing is handed out", b.set.group, len(members)),
			Advice:  "wait for some seconds if the first of them has just joined; otherwise see whether the topic __share_group_state has enough in-sync replicas, and what the brokers log about it"})
	}
}

func hasPartitions(m kadm.ShareGroupMember) bool { return len(m.Assignment) > 0 }
