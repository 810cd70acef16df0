package queue

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

var _ backend.ShardKeeper = (*Backend)(nil)

// shardsSuffix names the log that says into how many queues a sharded one is divided.
const shardsSuffix = ".shards"

// shardsRecord is one record of that log: the first has the number it began with, the
// highest is the current one.
type shardsRecord struct {
	Shards int `json:"shards"`
}

// Shards keeps the numbers in a log beside this queue, which has a record for each
// growth.
func (b *Backend) Shards(ctx context.Context, least int) (backend.Shards, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return backend.Shards{}, err
	}
	defer leave()
	found, err := b.readShards(ctx)
	if err != nil || found.Now >= least {
		return found, b.fail(err, false)
	}
	data, err := json.Marshal(shardsRecord{least})
	if err != nil {
		return backend.Shards{}, err
	}
	log := b.opt.Topic + shardsSuffix
	if found.Now == 0 {
		_, err = b.svc.Topic(ctx, log)
		if api.IsCode(err, api.CodeTopicNotFound) {
			err = b.svc.PutTopic(ctx, log, b.configFor(false))
		}
	}
	if err == nil {
		_, err = b.svc.Write(ctx, log, &api.WriteRequest{Records: []api.Record{{Data: data}}})
	}
	if err != nil {
		return backend.Shards{}, b.fail(err, true)
	}
	found, err = b.readShards(ctx) // somebody else may have been first
	return found, b.fail(err, false)
}

func (b *Backend) readShards(ctx context.Context) (found backend.Shards, err error) {
	for from := uint64(0); ; {
		records, res, err := b.svc.Diff(ctx, b.opt.Topic+shardsSuffix, &api.DiffRequest{
			FromSeq: from, Limit: maxPage, MaxBatchBytes: api.DefaultDiffBytes,
		})
		switch {
		case api.IsCode(err, api.CodeTopicNotFound):
			return backend.Shards{}, nil
		case err != nil:
			return backend.Shards{}, err
		}
		for i := range records {
			var r shardsRecord
			if json.Unmarshal(records[i].Data, &r) != nil || r.Shards < 1 {
				return backend.Shards{}, errors.New("the log " + b.opt.Topic + shardsSuffix + " has a record that weir did not write")
			}
			if found.First == 0 {
				found.First = r.Shards
			}
			found.Now = max(found.Now, r.Shards)
		}
		if res.CaughtUp() || len(records) == 0 {
			return found, nil
		}
		from = res.NextFromSeq
	}
}
