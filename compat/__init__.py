"""Real servers and real clients, each in its own process.

``compat.run`` checks that every client gets back what it wrote; ``compat.bench`` measures Dray
against Apache Kafka. Nothing here imports Dray: a broker is only ever a process and a port.
"""
