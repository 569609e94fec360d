"""The oracle: the same raw requests to Apache Kafka and to Dray, and their answers compared.

README.md says how a scenario is written; `allowed.py` lists every difference that is allowed.
"""
