import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
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

    private Client() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader jobs = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = jobs.readLine(); line != null; line = jobs.readLine()) {
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
