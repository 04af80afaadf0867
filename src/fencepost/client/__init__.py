"""Clients: producer, consumer and admin.  asyncio here; the same without it in `fencepost.client.blocking`."""

from fencepost.client.admin import Admin, TransactionDescription
from fencepost.client.admin.brokers import BrokerDescription, ClusterDescription, LogDirectory, ReplicaInfo
from fencepost.client.admin.configs import ConfigChange, ConfigEntry, ConfigSynonym
from fencepost.client.admin.features import FeatureDescription
from fencepost.client.admin.groups import GroupDescription, GroupListing, MemberDescription
from fencepost.client.admin.hanging import HangingTransaction
from fencepost.client.admin.partitions import OffsetSpec, ProducerState
from fencepost.client.admin.topics import NewTopic, PartitionDescription, TopicDescription
from fencepost.client.batches import RecordMetadata
from fencepost.client.commit_order.partition import OpenTransaction
from fencepost.client.consumer import Consumer
from fencepost.client.errors import (
    AbortableBrokerError,
    AbortableError,
    ApplicationRecoverableError,
    AuthenticationError,
    BrokerError,
    ClientError,
    ClosedError,
    CommitFailedError,
    CommitInDoubtError,
    ConnectionLostError,
    DamagedRecordsError,
    DeliveryError,
    FatalBrokerError,
    FatalError,
    FencedInstanceIdError,
    LogTruncatedError,
    MisuseError,
    NoOffsetError,
    OffsetsMissingError,
    OutcomeUnknownError,
    PartlyRefusedError,
    PositionMetadataError,
    ProducerFencedError,
    RecordTooLargeError,
    RecoverableBrokerError,
    RetriableBrokerError,
    RetriableError,
    SpillError,
    TimedOutError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionError,
    TransactionTimedOutError,
    UnreachableError,
    UnsupportedByBrokerError,
)
from fencepost.client.exactly_once import ExactlyOnce, Transaction
from fencepost.client.interceptors import ProducerInterceptor, ProducerRecord
from fencepost.client.partition_batch import PartitionBatch
from fencepost.client.positions import ListedOffset
from fencepost.client.prepared import PreparedTxnState
from fencepost.client.producer import Producer
from fencepost.client.rebalance_listener import RebalanceListener
from fencepost.client.records import ConsumerRecord
from fencepost.client.security import SecurityOptions
from fencepost.client.statistics import ProducerStatistics
from fencepost.client.subscription import SubscriptionPattern
from fencepost.client.together import ManyMetadata
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import TopicPartition

__all__ = [
    "AbortableBrokerError",
    "AbortableError",
    "Admin",
    "ApplicationRecoverableError",
    "AuthenticationError",
    "BrokerDescription",
    "BrokerError",
    "ClientError",
    "ClosedError",
    "ClusterDescription",
    "CommitFailedError",
    "CommitInDoubtError",
    "ConfigChange",
    "ConfigEntry",
    "ConfigSynonym",
    "ConnectionLostError",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "DamagedRecordsError",
    "DeliveryError",
    "ErrorCode",
    "ExactlyOnce",
    "FatalBrokerError",
    "FatalError",
    "FeatureDescription",
    "FencedInstanceIdError",
    "GroupDescription",
    "GroupListing",
    "HangingTransaction",
    "ListedOffset",
    "LogDirectory",
    "LogTruncatedError",
    "ManyMetadata",
    "MemberDescription",
    "MisuseError",
    "NewTopic",
    "NoOffsetError",
    "OffsetAndMetadata",
    "OffsetSpec",
    "OffsetsMissingError",
    "OpenTransaction",
    "OutcomeUnknownError",
    "PartitionBatch",
    "PartitionDescription",
    "PartlyRefusedError",
    "PositionMetadataError",
    "PreparedTxnState",
    "Producer",
    "ProducerFencedError",
    "ProducerInterceptor",
    "ProducerRecord",
    "ProducerState",
    "ProducerStatistics",
    "RebalanceListener",
    "RecordMetadata",
    "RecordTooLargeError",
    "RecoverableBrokerError",
    "ReplicaInfo",
    "RetriableBrokerError",
    "RetriableError",
    "SecurityOptions",
    "SpillError",
    "SubscriptionPattern",
    "TimedOutError",
    "TopicDescription",
    "TopicPartition",
    "Transaction",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionDescription",
    "TransactionError",
    "TransactionTimedOutError",
    "UnreachableError",
    "UnsupportedByBrokerError",
]
