"""Clients, each a program of its own: `python -m compat.clients.NAME`, or built from source."""
