// KafkaJS as a client program: jobs in JSON on standard input, answers on standard output. What a
// job looks like is written down in compat/clients/job.py.
//
// KafkaJS reads only as a member of a group, so a consumer here joins a group of its own and seeks.
// It has gzip itself and leaves the other codecs to plug-ins.
'use strict';

const readline = require('node:readline');
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } =
  require('kafkajs');
const snappy = require('kafkajs-snappy');
const lz4 = require('lz4js');
const zstd = require('@bokuweb/zstd-wasm');
const { version } = require('kafkajs/package.json');

const CASE_TIMEOUT_MS = 20_000;
const COMPRESSIONS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};
const UNKNOWN_TOPIC = 3;
const LZ4_BLOCK_BYTES = 65_536;
const LZ4_STORED = 0x80000000;

function codec(compress, decompress) {
  return () => ({
    compress: async (encoder) => Buffer.from(compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(decompress(buffer)),
  });
}

// Kafka wants blocks that don't refer to one another; lz4js writes only frames whose blocks may.
function lz4Frame(data) {
  const pieces = [Buffer.from('04224d18604082', 'hex')]; // independent blocks of up to 64 KiB
  for (let at = 0; at < data.length; at += LZ4_BLOCK_BYTES) {
    const block = data.subarray(at, at + LZ4_BLOCK_BYTES);
    const packed = Buffer.alloc(lz4.compressBound(block.length));
    const size = lz4.compressBlock(block, packed, 0, block.length, new Uint32Array(1 << 16));
    const stored = size === 0 || size >= block.length;
    const head = Buffer.alloc(4);
    head.writeUInt32LE(stored ? (block.length | LZ4_STORED) >>> 0 : size);
    pieces.push(head, stored ? block : packed.subarray(0, size));
  }
  pieces.push(Buffer.alloc(4)); // a block of no bytes ends the frame
  return Buffer.concat(pieces);
}

CompressionCodecs[CompressionTypes.Snappy] = snappy;
CompressionCodecs[CompressionTypes.LZ4] = codec(lz4Frame, lz4.decompress);
CompressionCodecs[CompressionTypes.ZSTD] = codec(zstd.compress, zstd.decompress);

const pack = (data) => (data === null || data === undefined ? null : data.toString('base64'));
const unpack = (text) => (text === null ? null : Buffer.from(text, 'base64'));

function connect(bootstrap) {
  return new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING });
}

function administer(act) {
  return async (bootstrap, each) => {
    const admin = connect(bootstrap).admin();
    await admin.connect();
    try {
      return await act(admin, each);
    } finally {
      await admin.disconnect();
    }
  };
}

async function about() {
  return {
    version,
    compressions: Object.keys(COMPRESSIONS),
    null_headers: false,
    repeated_headers: false,
  };
}

const create = administer(async (admin, { topic, partitions, configs }) => {
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }));
  const created = { topic, numPartitions: partitions, replicationFactor: 1, configEntries };
  await admin.createTopics({ topics: [created], timeout: CASE_TIMEOUT_MS });
  return null;
});

const describe = administer(async (admin, { topic }) => {
  if (!(await admin.listTopics()).includes(topic)) {
    return null;
  }
  try {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    return { partitions: topics[0].partitions.length };
  } catch (error) {
    if (error.code === UNKNOWN_TOPIC) {
      return null;
    }
    throw error;
  }
});

const cluster = administer(async (admin) => {
  const { brokers } = await admin.describeCluster();
  return { ports: brokers.map((broker) => broker.port).sort((a, b) => a - b) };
});

const describeConfigs = administer(async (admin, { topic }) => {
  const { resources } = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }],
  });
  const entries = resources[0].configEntries;
  return Object.fromEntries(entries.map((entry) => [entry.configName, entry.configValue]));
});

const alterConfigs = administer(async (admin, { topic, configs }) => {
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }));
  await admin.alterConfigs({
    validateOnly: false,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }],
  });
  return null;
});

const createPartitions = administer(async (admin, { topic, partitions }) => {
  await admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] });
  return null;
});

const deleteRecords = administer(async (admin, { topic, partition, before }) => {
  // Without this KafkaJS doesn't know the topic's leaders, and fails.
  await admin.fetchTopicOffsets(topic);
  await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] });
  return null;
});

const deleteTopic = administer(async (admin, { topic }) => {
  await admin.deleteTopics({ topics: [topic], timeout: CASE_TIMEOUT_MS });
  return null;
});

const offsets = administer(async (admin, { topic, partition, timestamp }) => {
  const ends = (await admin.fetchTopicOffsets(topic)).find((one) => one.partition === partition);
  const times = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp);
  const at = times.find((one) => one.partition === partition);
  return { earliest: Number(ends.low), latest: Number(ends.high), at: Number(at.offset) };
});

async function produce(bootstrap, each) {
  const producer = connect(bootstrap).producer({
    idempotent: each.idempotent,
    maxInFlightRequests: 1,
    allowAutoTopicCreation: false,
    retry: each.idempotent ? {} : { retries: 3 },
  });
  await producer.connect();
  try {
    const found = each.records.map(() => null);
    // An answer names the first offset of each partition; the rest follow on.
    const messages = each.records.map((record) => ({
      partition: record.partition,
      key: unpack(record.key),
      value: unpack(record.value),
      headers: Object.fromEntries(record.headers.map(([name, value]) => [name, unpack(value)])),
      timestamp: String(record.timestamp),
    }));
    const answers = await producer.send({
      topic: each.topic,
      acks: { 0: 0, 1: 1, all: -1 }[each.acks],
      compression: COMPRESSIONS[each.compression],
      messages,
    });
    const next = new Map(answers.map((one) => [one.partition, Number(one.baseOffset)]));
    each.records.forEach((record, index) => {
      if (each.acks !== '0') {
        found[index] = next.get(record.partition);
        next.set(record.partition, found[index] + 1);
      }
    });
    return found;
  } finally {
    await producer.disconnect();
  }
}

let groups = 0;

async function consume(bootstrap, each) {
  groups += 1;
  const groupId = `kafkajs-${process.pid}-${groups}`;
  const consumer = connect(bootstrap).consumer({
    groupId,
    allowAutoTopicCreation: false,
    maxWaitTimeInMs: 500,
  });
  const wanted = each.counts.reduce((sum, count) => sum + count, 0);
  const found = [];
  await consumer.connect();
  try {
    await consumer.subscribe({ topic: each.topic, fromBeginning: true });
    await new Promise((resolve, reject) => {
      const late = () => reject(new Error(`${found.length} of ${wanted} records`));
      setTimeout(late, CASE_TIMEOUT_MS).unref();
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
      const next = [...each.starts];
      const eachMessage = async ({ partition, message }) => {
        // What came before the seek took effect is of no interest; what it skips would show.
        if (Number(message.offset) < next[partition]) {
          return;
        }
        next[partition] = Number(message.offset) + 1;
        found.push({
          partition,
          offset: Number(message.offset),
          key: pack(message.key),
          value: pack(message.value),
          headers: Object.entries(message.headers).map(([name, value]) => [name, pack(value)]),
          timestamp: Number(message.timestamp),
        });
        if (found.length === wanted) {
          resolve();
        }
      };
      consumer.run({ autoCommit: false, eachMessage }).catch(reject);
      each.starts.forEach((offset, partition) => {
        consumer.seek({ topic: each.topic, partition, offset: String(offset) });
      });
    });
  } finally {
    await consumer.disconnect();
  }
  return found;
}

const DOERS = {
  about,
  create,
  describe,
  cluster,
  describe_configs: describeConfigs,
  alter_configs: alterConfigs,
  create_partitions: createPartitions,
  produce,
  consume,
  offsets,
  delete_records: deleteRecords,
  delete: deleteTopic,
};

async function main() {
  await zstd.init();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const job = JSON.parse(line);
    let answer;
    try {
      answer = { ok: await DOERS[job.do](job.bootstrap, job.case) };
    } catch (error) {
      answer = { error: `${error.name}: ${error.message}` };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
