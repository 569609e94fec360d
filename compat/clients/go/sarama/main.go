// Sarama as a client program.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"dray/compat/job"

	"github.com/IBM/sarama"
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
		"offsets":           offsets,
		"delete_records":    administer(deleteRecords),
		"delete":            administer(deleteTopic),
	})
}

func about(context.Context, string, job.Case) (any, error) {
	return map[string]any{
		"version":      job.Version("github.com/IBM/sarama"),
		"compressions": job.Compressions,
	}, nil
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.AllowAutoTopicCreation = false
	return config
}

func administer(act func(sarama.ClusterAdmin, job.Case) (any, error)) job.Doer {
	return func(_ context.Context, bootstrap string, c job.Case) (any, error) {
		admin, err := sarama.NewClusterAdmin([]string{bootstrap}, settings())
		if err != nil {
			return nil, err
		}
		defer admin.Close()
		return act(admin, c)
	}
}

func create(admin sarama.ClusterAdmin, c job.Case) (any, error) {
	configs := map[string]*string{}
	for name, value := range c.Configs {
		configs[name] = &value
	}
	detail := &sarama.TopicDetail{
		NumPartitions: c.Partitions, ReplicationFactor: 1, ConfigEntries: configs,
	}
	return nil, admin.CreateTopic(c.Topic, detail, false)
}

func describe(admin sarama.ClusterAdmin, c job.Case) (any, error) {
	found, err := admin.DescribeTopics([]string{c.Topic})
	if err != nil {
		return nil, err
	}
	switch found[0].Err {
	case sarama.ErrNoError:
		return map[string]any{"partitions": len(found[0].Partitions)}, nil
	case sarama.ErrUnknownTopicOrPartition:
		return nil, nil
	}
	return nil, found[0].Err
}

func cluster(admin sarama.ClusterAdmin, _ job.Case) (any, error) {
	brokers, _, err := admin.DescribeCluster()
	if err != nil {
		return nil, err
	}
	ports := []int{}
	for _, broker := range brokers {
		port, err := strconv.Atoi(broker.Addr()[strings.LastIndex(broker.Addr(), ":")+1:])
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	slices.Sort(ports)
	return map[string]any{"ports": ports}, nil
}

func describeConfigs(admin sarama.ClusterAdmin, c job.Case) (any, error) {
	entries, err := admin.DescribeConfig(sarama.ConfigResource{
		Type: sarama.TopicResource, Name: c.Topic,
	})
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, entry := range entries {
		found[entry.Name] = entry.Value
	}
	return found, nil
}

func alterConfigs(admin sarama.ClusterAdmin, c job.Case) (any, error) {
	changes := map[string]sarama.IncrementalAlterConfigsEntry{}
	for name, value := range c.Configs {
		changes[name] = sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value,
		}
	}
	return nil, admin.IncrementalAlterConfig(sarama.TopicResource, c.Topic, changes, false)
}

func createPartitions(admin sarama.ClusterAdmin, c job.Case) (any, error) {
	return nil, admin.CreatePartitions(c.Topic, c.Partitions, nil, false)
}

func deleteRecords(admin sarama.ClusterAdmin, c job.Case) (any, error) {
	return nil, admin.DeleteRecords(c.Topic, map[int32]int64{c.Partition: c.Before})
}

func deleteTopic(admin sarama.ClusterAdmin, c job.Case) (any, error) {
	return nil, admin.DeleteTopic(c.Topic)
}

func produce(ctx context.Context, bootstrap string, c job.Case) (any, error) {
	config := settings()
	config.Producer.RequiredAcks = map[string]sarama.RequiredAcks{
		"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
	}[c.Acks]
	config.Producer.Compression = map[string]sarama.CompressionCodec{
		"none":   sarama.CompressionNone,
		"gzip":   sarama.CompressionGZIP,
		"snappy": sarama.CompressionSnappy,
		"lz4":    sarama.CompressionLZ4,
		"zstd":   sarama.CompressionZSTD,
	}[c.Compression]
	config.Producer.Idempotent = c.Idempotent
	config.Producer.MaxMessageBytes = int(c.MaxBytes)
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = 20 * time.Millisecond
	// One request at a time keeps the order: Sarama's retries may reorder otherwise.
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewAsyncProducer([]string{bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer producer.AsyncClose()
	go func() {
		for i, from := range c.Records {
			producer.Input() <- message(c.Topic, i, from)
		}
	}()
	found := make([]*int64, len(c.Records))
	for range c.Records {
		select {
		case sent := <-producer.Successes():
			if c.Acks != "0" {
				found[sent.Metadata.(int)] = &sent.Offset
			}
		case failed := <-producer.Errors():
			return nil, failed.Err
		case <-ctx.Done():
			return nil, errors.New("not every record was acknowledged in time")
		}
	}
	return found, nil
}

func message(topic string, i int, from job.Record) *sarama.ProducerMessage {
	to := &sarama.ProducerMessage{
		Topic:     topic,
		Partition: from.Partition,
		Timestamp: time.UnixMilli(from.Timestamp),
		Metadata:  i,
	}
	// A ByteEncoder of nil is an empty value, no Encoder a null one.
	if from.Key != nil {
		to.Key = sarama.ByteEncoder(from.Key)
	}
	if from.Value != nil {
		to.Value = sarama.ByteEncoder(from.Value)
	}
	for _, h := range from.Headers {
		to.Headers = append(to.Headers, sarama.RecordHeader{Key: []byte(h.Name), Value: h.Value})
	}
	return to
}

func consume(ctx context.Context, bootstrap string, c job.Case) (any, error) {
	config := settings()
	config.Consumer.Return.Errors = true
	consumer, err := sarama.NewConsumer([]string{bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	found := []job.Record{}
	for partition, start := range c.Starts {
		reading, err := consumer.ConsumePartition(c.Topic, int32(partition), start)
		if err != nil {
			return nil, err
		}
		for range c.Counts[partition] {
			select {
			case got := <-reading.Messages():
				found = append(found, record(got))
			case failed := <-reading.Errors():
				return nil, failed.Err
			case <-ctx.Done():
				return nil, fmt.Errorf("%d of %d records", len(found), c.Wanted())
			}
		}
		reading.AsyncClose()
	}
	return found, nil
}

func record(got *sarama.ConsumerMessage) job.Record {
	to := job.Record{
		Partition: got.Partition,
		Offset:    got.Offset,
		Key:       got.Key,
		Value:     got.Value,
		Headers:   []job.Header{},
		Timestamp: got.Timestamp.UnixMilli(),
	}
	for _, h := range got.Headers {
		to.Headers = append(to.Headers, job.Header{Name: string(h.Key), Value: h.Value})
	}
	return to
}

func offsets(_ context.Context, bootstrap string, c job.Case) (any, error) {
	client, err := sarama.NewClient([]string{bootstrap}, settings())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	answer := map[string]int64{}
	for name, at := range map[string]int64{
		"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest, "at": c.Timestamp,
	} {
		found, err := client.GetOffset(c.Topic, c.Partition, at)
		if err != nil {
			return nil, err
		}
		answer[name] = found
	}
	return answer, nil
}
