"""The authoritative state: one store interface, its implementations, and typed records on top."""
