"""The bytes in the object store: where they lie, how they look, how they get there and back.

- `objectstore`: the interface that every store satisfies, its errors, and `open_store`
- `local`, `remote`: a durable local directory; S3, GCS, Azure and memory through obstore
- `delayed`, `faulty`, `observed`: wrappers for latency, faults and measurements
- `paths`: the only place where object paths are built
- `format`: the DRAYWO1 codec; `inspect` prints an object for a person

Nothing here knows Kafka's error codes or the metadata store.
"""
