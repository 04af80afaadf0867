"""Transactional messaging: a log that speaks the Kafka protocol, its clients, and Spark pipelines that commit to it."""

__version__ = "0.1.0"
