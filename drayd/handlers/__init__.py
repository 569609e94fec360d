"""One module per API, named after its key: `KEY`, `NAME`, `VERSIONS` and `handle(call)`."""
