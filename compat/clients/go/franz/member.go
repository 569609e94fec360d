package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"dray/compat/job"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	sessionTimeout = 6 * time.Second
	heartbeat      = time.Second
	pollTime       = 200 * time.Millisecond
)

// owner is what a member has at the moment. franz-go calls back from several goroutines.
type owner struct {
	sync.Mutex
	partitions map[int32]bool
}

func (o *owner) change(topic string, to bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		o.Lock()
		defer o.Unlock()
		for _, partition := range changed[topic] {
			if to {
				o.partitions[partition] = true
			} else {
				delete(o.partitions, partition)
			}
		}
		owned := append([]int32{}, slices.Sorted(maps.Keys(o.partitions))...)
		job.Tell(map[string]any{"owned": owned})
	}
}

// member is a member of a group, until standard input ends.
func member(_ context.Context, bootstrap string, c job.Case) (any, error) {
	owned := &owner{partitions: map[int32]bool{}}
	balancer := kgo.CooperativeStickyBalancer()
	if c.Assignor == "range" {
		balancer = kgo.RangeBalancer()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(c.Group),
		kgo.ConsumeTopics(c.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(balancer),
		kgo.SessionTimeout(sessionTimeout),
		kgo.HeartbeatInterval(heartbeat),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(owned.change(c.Topic, true)),
		kgo.OnPartitionsRevoked(owned.change(c.Topic, false)),
		kgo.OnPartitionsLost(owned.change(c.Topic, false)),
	)
	if err != nil {
		return nil, err
	}
	ended := job.UntilEnd()
	for ended.Err() == nil {
		readAndCommit(ended, client)
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	job.Tell(map[string]any{"left": true})
	return nil, nil
}

func readAndCommit(ended context.Context, client *kgo.Client) {
	ctx, cancel := context.WithTimeout(ended, pollTime)
	fetches := client.PollFetches(ctx)
	cancel()
	ends := map[int32]int64{}
	fetches.EachPartition(func(batch kgo.FetchTopicPartition) {
		var start, next int64 = -1, -1
		for _, record := range batch.Records {
			if record.Offset != next {
				tellRead(batch.Partition, start, next)
				start = record.Offset
			}
			next = record.Offset + 1
		}
		tellRead(batch.Partition, start, next)
		if start >= 0 {
			ends[batch.Partition] = next
		}
	})
	if len(ends) == 0 {
		return
	}
	committing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := client.CommitRecords(committing, fetches.Records()...); err == nil {
		job.Tell(map[string]any{"committed": ends})
	}
}

func tellRead(partition int32, start, end int64) {
	if start >= 0 {
		job.Tell(map[string]any{"read": partition, "start": start, "end": end})
	}
}
