"""Clients: producer, consumer and admin.  asyncio here; the same without it in `fencepost.client.blocking`."""

from fencepost.client.admin import Admin, TransactionDescription
from fencepost.client.batches import RecordMetadata
from fencepost.client.commit_order.partition import OpenTransaction
from fencepost.client.consumer import Consumer
from fencepost.client.errors import (
    AuthenticationError,
    BrokerError,
    ClientError,
    ClosedError,
    CommitInDoubtError,
    FencedInstanceIdError,
    OutcomeUnknownError,
    PositionMetadataError,
    ProducerFencedError,
    RecordTooLargeError,
    SpillError,
    TransactionAbortableError,
    TransactionTimedOutError,
)
from fencepost.client.exactly_once import ExactlyOnce, Transaction
from fencepost.client.producer import Producer
from fencepost.client.rebalance_listener import RebalanceListener
from fencepost.client.records import ConsumerRecord
from fencepost.client.security import SecurityOptions
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.types import TopicPartition

__all__ = [
    "Admin",
    "AuthenticationError",
    "BrokerError",
    "ClientError",
    "ClosedError",
    "CommitInDoubtError",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "ExactlyOnce",
    "FencedInstanceIdError",
    "OffsetAndMetadata",
    "OpenTransaction",
    "OutcomeUnknownError",
    "PositionMetadataError",
    "Producer",
    "ProducerFencedError",
    "RebalanceListener",
    "RecordMetadata",
    "RecordTooLargeError",
    "SecurityOptions",
    "SpillError",
    "TopicPartition",
    "Transaction",
    "TransactionAbortableError",
    "TransactionDescription",
    "TransactionTimedOutError",
]
