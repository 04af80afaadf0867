"""Partitions on disk in Apache Kafka's file formats, and the commit log that makes what they are given durable."""
