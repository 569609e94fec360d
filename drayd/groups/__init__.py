"""The state machines of consumer groups: pure, so that time, ids and topics come in as arguments.

`machine.py` is what the coordinator's runtime and the machines agree on.
"""
