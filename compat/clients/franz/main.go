// franz-go as a client program: one job in JSON on standard input, the answer on standard output.
// What a job looks like is written down in compat/clients/job.py.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const caseTimeout = 20 * time.Second

type job struct {
	Do        string     `json:"do"`
	Bootstrap string     `json:"bootstrap"`
	Cases     []testCase `json:"cases"`
}

type testCase struct {
	Topic       string   `json:"topic"`
	Partitions  int32    `json:"partitions"`
	Compression string   `json:"compression"`
	Acks        string   `json:"acks"`
	Idempotent  bool     `json:"idempotent"`
	Records     []record `json:"records"`
	Ends        []int    `json:"ends"`
	Partition   int32    `json:"partition"`
	Timestamp   int64    `json:"timestamp"`
}

// A nil []byte is null in JSON and a byte slice is base64: just what the job format says.
type record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
	Timestamp int64    `json:"timestamp"`
}

// A header is a pair in JSON.
type header struct {
	name  string
	value []byte
}

func (h *header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.name, &h.value})
}

func (h header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.name, h.value})
}

func main() {
	var asked job
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	results := make([]map[string]any, 0, len(asked.Cases))
	for _, each := range asked.Cases {
		answer, err := do(asked, each)
		if err != nil {
			results = append(results, map[string]any{"error": err.Error()})
		} else {
			results = append(results, map[string]any{"ok": answer})
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"results": results}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func do(asked job, each testCase) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	defer cancel()
	switch asked.Do {
	case "describe":
		return map[string]any{
			"version":      version(),
			"compressions": []string{"none", "gzip", "snappy", "lz4", "zstd"},
		}, nil
	case "create":
		return nil, create(ctx, asked.Bootstrap, each)
	case "produce":
		return produce(ctx, asked.Bootstrap, each)
	case "consume":
		return consume(ctx, asked.Bootstrap, each)
	case "offsets":
		return offsets(ctx, asked.Bootstrap, each)
	}
	return nil, fmt.Errorf("no such job: %s", asked.Do)
}

func create(ctx context.Context, bootstrap string, each testCase) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	answer, err := kadm.NewClient(client).CreateTopic(ctx, each.Partitions, 1, nil, each.Topic)
	if err != nil {
		return err
	}
	return answer.Err
}

func produce(ctx context.Context, bootstrap string, each testCase) ([]*int64, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	options = append(options, kgo.RequiredAcks(acks[each.Acks]))
	if !each.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	codecs := map[string]kgo.CompressionCodec{
		"none":   kgo.NoCompression(),
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}
	options = append(options, kgo.ProducerBatchCompression(codecs[each.Compression]))
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, len(each.Records))
	failures := make(chan error, len(records))
	for i, from := range each.Records {
		to := &kgo.Record{
			Topic:     each.Topic,
			Partition: from.Partition,
			Key:       from.Key,
			Value:     from.Value,
			Timestamp: time.UnixMilli(from.Timestamp),
		}
		for _, h := range from.Headers {
			to.Headers = append(to.Headers, kgo.RecordHeader{Key: h.name, Value: h.value})
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
	if each.Acks != "0" {
		for i, r := range records {
			found[i] = &r.Offset
		}
	}
	return found, nil
}

func consume(ctx context.Context, bootstrap string, each testCase) ([]record, error) {
	places := map[int32]kgo.Offset{}
	wanted := 0
	for partition, count := range each.Ends {
		places[int32(partition)] = kgo.NewOffset().At(0)
		wanted += count
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{each.Topic: places}),
		kgo.FetchMaxWait(500*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []record{}
	for len(found) < wanted {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%d of %d records", len(found), wanted)
		}
		for _, failed := range fetches.Errors() {
			return nil, failed.Err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			to := record{
				Partition: r.Partition,
				Offset:    r.Offset,
				Key:       r.Key,
				Value:     r.Value,
				Headers:   []header{},
				Timestamp: r.Timestamp.UnixMilli(),
			}
			for _, h := range r.Headers {
				to.Headers = append(to.Headers, header{h.Key, h.Value})
			}
			found = append(found, to)
		})
	}
	return found, nil
}

func offsets(ctx context.Context, bootstrap string, each testCase) (map[string]int64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	earliest, err := admin.ListStartOffsets(ctx, each.Topic)
	if err != nil {
		return nil, err
	}
	latest, err := admin.ListEndOffsets(ctx, each.Topic)
	if err != nil {
		return nil, err
	}
	at, err := admin.ListOffsetsAfterMilli(ctx, each.Timestamp, each.Topic)
	if err != nil {
		return nil, err
	}
	answer := map[string]int64{}
	for name, listed := range map[string]kadm.ListedOffsets{
		"earliest": earliest, "latest": latest, "at": at,
	} {
		one, there := listed.Lookup(each.Topic, each.Partition)
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

func version() string {
	info, there := debug.ReadBuildInfo()
	if there {
		for _, dependency := range info.Deps {
			if dependency.Path == "github.com/twmb/franz-go" {
				return dependency.Version
			}
		}
	}
	return "unknown"
}
