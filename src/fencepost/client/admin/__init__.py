"""The admin client, by subject: topics, configurations, groups and their offsets, records, nodes, transactions."""

from fencepost.client.admin.client import Admin
from fencepost.client.admin.topics import create_topic
from fencepost.client.admin.transactions import TransactionDescription, describe_transactions

__all__ = ["Admin", "TransactionDescription", "create_topic", "describe_transactions"]
