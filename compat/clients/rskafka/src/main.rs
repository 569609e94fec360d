//! rskafka as a client program: jobs in JSON on standard input, answers on standard output. What a
//! job looks like is written down in compat/clients/job.py.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{stdin, BufRead};
use std::time::Duration;

use base64::prelude::{Engine, BASE64_STANDARD};
use chrono::{DateTime, Utc};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::{Record, RecordAndOffset};
use serde_json::{json, Value};

const VERSION: &str = "0.6.0";
const CASE_TIMEOUT: Duration = Duration::from_secs(20);
const TIMEOUT_MS: i32 = 20_000;
const FETCH_BYTES: i32 = 10_000_000;

type Answer = Result<Value, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    for line in stdin().lock().lines() {
        let job: Value = serde_json::from_str(&line?)?;
        let answer = match tokio::time::timeout(CASE_TIMEOUT, run(&job)).await {
            Ok(Ok(answer)) => json!({ "ok": answer }),
            Ok(Err(error)) => json!({ "error": error.to_string() }),
            Err(_) => json!({ "error": "no answer in time" }),
        };
        println!("{answer}");
    }
    Ok(())
}

async fn run(job: &Value) -> Answer {
    let case = &job["case"];
    if job["do"] == "about" {
        return Ok(about());
    }
    let bootstrap = text(&job["bootstrap"]);
    let client = ClientBuilder::new(vec![bootstrap]).build().await?;
    let topic = text(&case["topic"]);
    match text(&job["do"]).as_str() {
        "create" => {
            let partitions = number(&case["partitions"]) as i32;
            let controller = client.controller_client()?;
            controller.create_topic(topic, partitions, 1, TIMEOUT_MS).await?;
            Ok(Value::Null)
        }
        "describe" => {
            let found = client.list_topics().await?;
            let found = found.iter().find(|each| each.name == topic);
            Ok(found.map_or(Value::Null, |each| json!({ "partitions": each.partitions.len() })))
        }
        "produce" => produce(&client, case).await,
        "consume" => consume(&client, case).await,
        "offsets" => {
            let client = partition(&client, case, number(&case["partition"])).await?;
            Ok(json!({
                "earliest": client.get_offset(OffsetAt::Earliest).await?,
                "latest": client.get_offset(OffsetAt::Latest).await?,
                "at": client.get_offset(OffsetAt::Timestamp(time(&case["timestamp"]))).await?,
            }))
        }
        "delete_records" => {
            let client = partition(&client, case, number(&case["partition"])).await?;
            client.delete_records(number(&case["before"]), TIMEOUT_MS).await?;
            Ok(Value::Null)
        }
        "delete" => {
            client.controller_client()?.delete_topic(topic, TIMEOUT_MS).await?;
            Ok(Value::Null)
        }
        other => Err(format!("no such job: {other}").into()),
    }
}

fn about() -> Value {
    let no_configs = "rskafka has no requests for configs or partitions";
    json!({
        "version": VERSION,
        "compressions": ["none", "gzip", "snappy", "lz4", "zstd"],
        "create_configs": false,
        "null_headers": false,
        "repeated_headers": false,
        "cannot": {
            "describe cluster": "rskafka shows no brokers",
            "describe configs": no_configs,
            "alter configs": no_configs,
            "create partitions": no_configs,
            "produce acks=0": "rskafka always sends acks=all",
            "produce acks=1": "rskafka always sends acks=all",
            "produce idempotent": "rskafka has no idempotent producer",
        },
    })
}

/// rskafka sends a batch to one partition at a time.
async fn produce(client: &Client, case: &Value) -> Answer {
    let compression = match text(&case["compression"]).as_str() {
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => Compression::NoCompression,
    };
    let sent = list(&case["records"]);
    let mut offsets = vec![Value::Null; sent.len()];
    let mut places: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (index, record) in sent.iter().enumerate() {
        places.entry(number(&record["partition"])).or_default().push(index);
    }
    for (place, indexes) in places {
        let to = partition(client, case, place).await?;
        for some in indexes.chunks(7) {
            let records = some.iter().map(|index| record(&sent[*index])).collect();
            let found = to.produce(records, compression).await?;
            for (index, offset) in some.iter().zip(found) {
                offsets[*index] = json!(offset);
            }
        }
    }
    Ok(json!(offsets))
}

async fn consume(client: &Client, case: &Value) -> Answer {
    let mut found = vec![];
    for (place, count) in list(&case["counts"]).iter().enumerate() {
        let mut next = number(&case["starts"][place]);
        let end = next + number(count);
        let from = partition(client, case, place as i64).await?;
        while next < end {
            let (records, _) = from.fetch_records(next, 1..FETCH_BYTES, 500).await?;
            for each in records {
                next = each.offset + 1;
                found.push(shown(place, each));
            }
        }
    }
    Ok(json!(found))
}

async fn partition(
    client: &Client,
    case: &Value,
    place: i64,
) -> Result<PartitionClient, Box<dyn Error>> {
    let unknown = UnknownTopicHandling::Error;
    Ok(client.partition_client(text(&case["topic"]), place as i32, unknown).await?)
}

fn record(from: &Value) -> Record {
    let pairs = list(&from["headers"]).iter();
    Record {
        key: bytes(&from["key"]),
        value: bytes(&from["value"]),
        headers: pairs.map(|pair| (text(&pair[0]), bytes(&pair[1]).unwrap_or_default())).collect(),
        timestamp: time(&from["timestamp"]),
    }
}

fn shown(place: usize, from: RecordAndOffset) -> Value {
    let record = from.record;
    let headers: Vec<Value> =
        record.headers.iter().map(|(name, value)| json!([name, packed(Some(value))])).collect();
    json!({
        "partition": place,
        "offset": from.offset,
        "key": packed(record.key.as_ref()),
        "value": packed(record.value.as_ref()),
        "headers": headers,
        "timestamp": record.timestamp.timestamp_millis(),
    })
}

fn packed(data: Option<&Vec<u8>>) -> Value {
    data.map_or(Value::Null, |data| json!(BASE64_STANDARD.encode(data)))
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.as_str().and_then(|text| BASE64_STANDARD.decode(text).ok())
}

fn time(value: &Value) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(number(value)).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], |list| list)
}
