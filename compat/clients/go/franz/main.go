// franz-go as a client program, with kadm for administration.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"dray/compat/job"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	job.Serve(map[string]job.Doer{
		"about":             about,
		"create":            administer(create),
		"describe":          administer(describe),
		"cluster":           administer(cluster),
		"describe_configs":  administer(describeConfigs),
		"alter_configs":     administer(alterConfigs),
		"create_partitions": administer(createPartitions),
		"produce":           produce,
		"consume":           consume,
		"offsets":           administer(offsets),
		"delete_records":    administer(deleteRecords),
		"delete":            administer(deleteTopic),
		"member":            member,
	})
}

func about(context.Context, string, job.Case) (any, error) {
	return map[string]any{
		"version":      job.Version("github.com/twmb/franz-go"),
		"compressions": job.Compressions,
	}, nil
}

func administer(act func(context.Context, *kadm.Client, job.Case) (any, error)) job.Doer {
	return func(ctx context.Context, bootstrap string, c job.Case) (any, error) {
		client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
		if err != nil {
			return nil, err
		}
		defer client.Close()
		return act(ctx, kadm.NewClient(client), c)
	}
}

func create(ctx context.Context, admin *kadm.Client, c job.Case) (any, error) {
	configs := map[string]*string{}
	for name, value := range c.Configs {
		configs[name] = kadm.StringPtr(value)
	}
	answer, err := admin.CreateTopic(ctx, c.Partitions, 1, configs, c.Topic)
	if err != nil {
		return nil, err
	}
	return nil, answer.Err
}

func describe(ctx context.Context, admin *kadm.Client, c job.Case) (any, error) {
	found, err := admin.ListTopics(ctx, c.Topic)
	if err != nil {
		return nil, err
	}
	topic := found[c.Topic]
	if errors.Is(topic.Err, kerr.UnknownTopicOrPartition) {
		return nil, nil
	}
	return map[string]any{"partitions": len(topic.Partitions)}, topic.Err
}

func cluster(ctx context.Context, admin *kadm.Client, _ job.Case) (any, error) {
	found, err := admin.ListBrokers(ctx)
	if err != nil {
		return nil, err
	}
	ports := []int32{}
	for _, broker := range found {
		ports = append(ports, broker.Port)
	}
	slices.Sort(ports)
	return map[string]any{"ports": ports}, nil
}

func describeConfigs(ctx context.Context, admin *kadm.Client, c job.Case) (any, error) {
	found, err := admin.DescribeTopicConfigs(ctx, c.Topic)
	if err != nil {
		return nil, err
	}
	configs := map[string]*string{}
	for _, config := range found[0].Configs {
		configs[config.Key] = config.Value
	}
	return configs, found[0].Err
}

func alterConfigs(ctx context.Context, admin *kadm.Client, c job.Case) (any, error) {
	changes := []kadm.AlterConfig{}
	for name, value := range c.Configs {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	answers, err := admin.AlterTopicConfigs(ctx, changes, c.Topic)
	if err != nil {
		return nil, err
	}
	return nil, answers[0].Err
}

func createPartitions(ctx context.Context, admin *kadm.Client, c job.Case) (any, error) {
	answers, err := admin.UpdatePartitions(ctx, int(c.Partitions), c.Topic)
	if err != nil {
		return nil, err
	}
	return nil, answers.Error()
}

func deleteRecords(ctx context.Context, admin *kadm.Client, c job.Case) (any, error) {
	before := kadm.Offsets{}
	before.AddOffset(c.Topic, c.Partition, c.Before, -1)
	answers, err := admin.DeleteRecords(ctx, before)
	if err != nil {
		return nil, err
	}
	return nil, answers.Error()
}

func deleteTopic(ctx context.Context, admin *kadm.Client, c job.Case) (any, error) {
	answer, err := admin.DeleteTopic(ctx, c.Topic)
	if err != nil {
		return nil, err
	}
	return nil, answer.Err
}

func produce(ctx context.Context, bootstrap string, c job.Case) (any, error) {
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	codecs := map[string]kgo.CompressionCodec{
		"none":   kgo.NoCompression(),
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20 * time.Millisecond),
		kgo.ProducerBatchMaxBytes(c.MaxBytes),
		kgo.RequiredAcks(acks[c.Acks]),
		kgo.ProducerBatchCompression(codecs[c.Compression]),
	}
	if !c.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, len(c.Records))
	failures := make(chan error, len(records))
	for i, from := range c.Records {
		to := &kgo.Record{
			Topic:     c.Topic,
			Partition: from.Partition,
			Key:       from.Key,
			Value:     from.Value,
			Timestamp: time.UnixMilli(from.Timestamp),
		}
		for _, h := range from.Headers {
			to.Headers = append(to.Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
		}
		records[i] = to
		client.Produce(ctx, to, func(_ *kgo.Record, err error) {
			if err != nil {
				failures <- err
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return nil, err
	}
	select {
	case err := <-failures:
		return nil, err
	default:
	}
	found := make([]*int64, len(records))
	if c.Acks != "0" {
		for i, r := range records {
			found[i] = &r.Offset
		}
	}
	return found, nil
}

func consume(ctx context.Context, bootstrap string, c job.Case) (any, error) {
	places := map[int32]kgo.Offset{}
	for partition, start := range c.Starts {
		places[int32(partition)] = kgo.NewOffset().At(start)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: places}),
		kgo.FetchMaxWait(500*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []job.Record{}
	for len(found) < c.Wanted() {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%d of %d records", len(found), c.Wanted())
		}
		for _, failed := range fetches.Errors() {
			return nil, failed.Err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			to := job.Record{
				Partition: r.Partition,
				Offset:    r.Offset,
				Key:       r.Key,
				Value:     r.Value,
				Headers:   []job.Header{},
				Timestamp: r.Timestamp.UnixMilli(),
			}
			for _, h := range r.Headers {
				to.Headers = append(to.Headers, job.Header{Name: h.Key, Value: h.Value})
			}
			found = append(found, to)
		})
	}
	return found, nil
}

func offsets(ctx context.Context, admin *kadm.Client, c job.Case) (any, error) {
	earliest, err := admin.ListStartOffsets(ctx, c.Topic)
	if err != nil {
		return nil, err
	}
	latest, err := admin.ListEndOffsets(ctx, c.Topic)
	if err != nil {
		return nil, err
	}
	at, err := admin.ListOffsetsAfterMilli(ctx, c.Timestamp, c.Topic)
	if err != nil {
		return nil, err
	}
	answer := map[string]int64{}
	for name, listed := range map[string]kadm.ListedOffsets{
		"earliest": earliest, "latest": latest, "at": at,
	} {
		one, there := listed.Lookup(c.Topic, c.Partition)
		if !there {
			return nil, fmt.Errorf("no %s offset", name)
		}
		if one.Err != nil {
			return nil, one.Err
		}
		answer[name] = one.Offset
	}
	return answer, nil
}
