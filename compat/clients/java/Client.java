import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.BooleanNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Kafka's Java client as a client program: jobs in JSON on standard input, answers on
 * standard output. What a job looks like is written down in compat/clients/job.py.
 */
public final class Client {
    private static final long CASE_TIMEOUT_MS = 20_000;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TypeReference<Map<String, String>> STRINGS = new TypeReference<>() { };

    private static final BufferedReader JOBS = new BufferedReader(
        new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private Client() {
    }

    public static void main(String[] arguments) throws Exception {
        for (String line = JOBS.readLine(); line != null; line = JOBS.readLine()) {
            JsonNode job = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", run(
                    job.get("do").asText(), job.get("bootstrap").asText(), job.get("case")));
            } catch (Exception error) {
                answer.put("error", error.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
        System.exit(0);
    }

    private static JsonNode run(String what, String bootstrap, JsonNode each) throws Exception {
        return switch (what) {
            case "about" -> about();
            case "produce" -> produce(bootstrap, each);
            case "consume" -> consume(bootstrap, each);
            case "offsets" -> offsets(bootstrap, each);
            case "member" -> member(bootstrap, each);
            default -> {
                try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                    yield administer(admin, what, each);
                }
            }
        };
    }

    private static JsonNode about() {
        ObjectNode answer = JSON.createObjectNode();
        answer.put("version", AppInfoParser.getVersion());
        List.of("none", "gzip", "snappy", "lz4", "zstd")
            .forEach(answer.putArray("compressions")::add);
        return answer;
    }

    private static JsonNode administer(Admin admin, String what, JsonNode each) throws Exception {
        String topic = each.path("topic").asText();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        ObjectNode answer = JSON.createObjectNode();
        switch (what) {
            case "create" -> {
                NewTopic created = new NewTopic(topic, each.get("partitions").asInt(), (short) 1);
                created.configs(JSON.convertValue(each.get("configs"), STRINGS));
                wait(admin.createTopics(List.of(created)).all());
                return null;
            }
            case "describe" -> {
                try {
                    TopicDescription found =
                        wait(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic);
                    return answer.put("partitions", found.partitions().size());
                } catch (ExecutionException error) {
                    if (error.getCause() instanceof UnknownTopicOrPartitionException) {
                        return null;
                    }
                    throw error;
                }
            }
            case "cluster" -> {
                ArrayNode ports = answer.putArray("ports");
                wait(admin.describeCluster().nodes()).stream()
                    .map(Node::port).sorted().forEach(ports::add);
                return answer;
            }
            case "describe_configs" -> {
                wait(admin.describeConfigs(List.of(resource)).all()).get(resource).entries()
                    .forEach(entry -> answer.put(entry.name(), entry.value()));
                return answer;
            }
            case "alter_configs" -> {
                List<AlterConfigOp> changes = new ArrayList<>();
                JSON.convertValue(each.get("configs"), STRINGS).forEach((name, value) ->
                    changes.add(new AlterConfigOp(
                        new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
                wait(admin.incrementalAlterConfigs(Map.of(resource, changes)).all());
                return null;
            }
            case "create_partitions" -> {
                NewPartitions wanted = NewPartitions.increaseTo(each.get("partitions").asInt());
                wait(admin.createPartitions(Map.of(topic, wanted)).all());
                return null;
            }
            case "delete_records" -> {
                TopicPartition place = new TopicPartition(topic, each.get("partition").asInt());
                RecordsToDelete before =
                    RecordsToDelete.beforeOffset(each.get("before").asLong());
                wait(admin.deleteRecords(Map.of(place, before)).all());
                return null;
            }
            case "delete" -> {
                wait(admin.deleteTopics(List.of(topic)).all());
                return null;
            }
            default -> throw new IllegalArgumentException("no such job: " + what);
        }
    }

    private static <T> T wait(KafkaFuture<T> future) throws Exception {
        return future.get(CASE_TIMEOUT_MS, TimeUnit.MILLISECONDS);
    }

    private static JsonNode produce(String bootstrap, JsonNode each) throws Exception {
        String acks = each.get("acks").asText();
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "acks", acks,
            "enable.idempotence", each.get("idempotent").asBoolean(),
            "compression.type", each.get("compression").asText(),
            "max.request.size", each.get("max_bytes").asInt(),
            "linger.ms", 20,
            "request.timeout.ms", 10_000,
            "delivery.timeout.ms", (int) CASE_TIMEOUT_MS,
            "key.serializer", ByteArraySerializer.class,
            "value.serializer", ByteArraySerializer.class);
        ArrayNode offsets = JSON.createArrayNode();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : each.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode pair : record.get("headers")) {
                    headers.add(new RecordHeader(pair.get(0).asText(), bytes(pair.get(1))));
                }
                sent.add(producer.send(new ProducerRecord<>(
                    each.get("topic").asText(),
                    record.get("partition").asInt(),
                    record.get("timestamp").asLong(),
                    bytes(record.get("key")),
                    bytes(record.get("value")),
                    headers)));
            }
            for (Future<RecordMetadata> one : sent) {
                RecordMetadata at = one.get(CASE_TIMEOUT_MS, TimeUnit.MILLISECONDS);
                if (at.hasOffset()) {
                    offsets.add(at.offset());
                } else {
                    offsets.addNull();
                }
            }
        }
        return offsets;
    }

    private static JsonNode consume(String bootstrap, JsonNode each) {
        List<TopicPartition> places = new ArrayList<>();
        int wanted = 0;
        for (JsonNode count : each.get("counts")) {
            places.add(new TopicPartition(each.get("topic").asText(), places.size()));
            wanted += count.asInt();
        }
        ArrayNode found = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap)) {
            consumer.assign(places);
            places.forEach(place ->
                consumer.seek(place, each.get("starts").get(place.partition()).asLong()));
            long deadline = System.currentTimeMillis() + CASE_TIMEOUT_MS;
            while (found.size() < wanted) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException(found.size() + " of " + wanted + " records");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    ObjectNode one = found.addObject();
                    one.put("partition", record.partition());
                    one.put("offset", record.offset());
                    one.put("timestamp", record.timestamp());
                    one.put("key", text(record.key()));
                    one.put("value", text(record.value()));
                    ArrayNode headers = one.putArray("headers");
                    for (Header header : record.headers()) {
                        headers.addArray().add(header.key()).add(text(header.value()));
                    }
                }
            }
        }
        return found;
    }

    private static JsonNode offsets(String bootstrap, JsonNode each) {
        TopicPartition place =
            new TopicPartition(each.get("topic").asText(), each.get("partition").asInt());
        ObjectNode answer = JSON.createObjectNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap)) {
            OffsetAndTimestamp at =
                consumer.offsetsForTimes(Map.of(place, each.get("timestamp").asLong())).get(place);
            answer.put("earliest", consumer.beginningOffsets(List.of(place)).get(place));
            answer.put("latest", consumer.endOffsets(List.of(place)).get(place));
            answer.put("at", at == null ? -1 : at.offset());
        }
        return answer;
    }

    /** A member of a group; compat/clients/member.py says what it tells. */
    private static JsonNode member(String bootstrap, JsonNode each) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", each.get("group").asText(),
            "group.protocol", each.get("protocol").asText(),
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class));
        if (each.get("protocol").asText().equals("classic")) {
            settings.put("session.timeout.ms", 6000);
            settings.put("heartbeat.interval.ms", 1000);
            settings.put("partition.assignment.strategy",
                each.get("assignor").asText().equals("range")
                    ? "org.apache.kafka.clients.consumer.RangeAssignor"
                    : "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        }
        AtomicBoolean stopping = new AtomicBoolean();
        Thread waiting = new Thread(() -> awaitEnd(stopping));
        waiting.setDaemon(true);
        waiting.start();
        Set<Integer> owned = new TreeSet<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(each.get("topic").asText()), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> places) {
                    places.forEach(place -> owned.add(place.partition()));
                    tell("owned", JSON.valueToTree(owned));
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> places) {
                    places.forEach(place -> owned.remove(place.partition()));
                    tell("owned", JSON.valueToTree(owned));
                }
            });
            while (!stopping.get()) {
                ConsumerRecords<byte[], byte[]> batch = consumer.poll(Duration.ofMillis(200));
                Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                ObjectNode committed = JSON.createObjectNode();
                for (TopicPartition place : batch.partitions()) {
                    long next = -1;
                    long start = -1;
                    for (ConsumerRecord<byte[], byte[]> record : batch.records(place)) {
                        if (record.offset() != next) {
                            tellRead(place.partition(), start, next);
                            start = record.offset();
                        }
                        next = record.offset() + 1;
                    }
                    tellRead(place.partition(), start, next);
                    ends.put(place, new OffsetAndMetadata(next));
                    committed.put(String.valueOf(place.partition()), next);
                }
                if (!ends.isEmpty()) {
                    try {
                        consumer.commitSync(ends, Duration.ofSeconds(10));
                        tell("committed", committed);
                    } catch (KafkaException error) {
                        // The next batch's commit covers it.
                    }
                }
            }
        }
        tell("left", BooleanNode.TRUE);
        return null;
    }

    private static void tellRead(int partition, long start, long end) {
        if (start >= 0) {
            ObjectNode event = JSON.createObjectNode();
            event.put("read", partition).put("start", start).put("end", end);
            tell(event);
        }
    }

    private static void tell(String what, JsonNode value) {
        ObjectNode event = JSON.createObjectNode();
        event.set(what, value);
        tell(event);
    }

    private static void tell(ObjectNode event) {
        event.put("at", System.currentTimeMillis());
        System.out.println(event);
    }

    private static void awaitEnd(AtomicBoolean stopping) {
        try {
            JOBS.readLine();
        } catch (IOException error) {
            // The end as well.
        }
        stopping.set(true);
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap) {
        return new KafkaConsumer<>(Map.of(
            "bootstrap.servers", bootstrap,
            "enable.auto.commit", false,
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class));
    }

    private static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }
}
