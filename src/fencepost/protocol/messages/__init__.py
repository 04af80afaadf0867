"""The requests and responses, one module per API."""

from typing import Any

from fencepost.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from fencepost.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from fencepost.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fencepost.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from fencepost.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from fencepost.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from fencepost.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from fencepost.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from fencepost.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from fencepost.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from fencepost.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from fencepost.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from fencepost.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from fencepost.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from fencepost.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from fencepost.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from fencepost.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from fencepost.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from fencepost.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from fencepost.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from fencepost.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from fencepost.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fencepost.protocol.messages.fetch import FetchRequest, FetchResponse
from fencepost.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fencepost.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fencepost.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fencepost.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from fencepost.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from fencepost.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from fencepost.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from fencepost.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from fencepost.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fencepost.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fencepost.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from fencepost.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from fencepost.protocol.messages.produce import ProduceRequest, ProduceResponse
from fencepost.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from fencepost.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from fencepost.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fencepost.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from fencepost.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from fencepost.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


def _by_key(messages: list[Any]) -> dict[int, Any]:
    return {message.__schema__.api: message for message in messages}


REQUESTS: dict[int, Any] = _by_key(
    [
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        AlterConfigsRequest,
        ApiVersionsRequest,
        ConsumerGroupDescribeRequest,
        ConsumerGroupHeartbeatRequest,
        CreateAclsRequest,
        CreatePartitionsRequest,
        CreateTopicsRequest,
        DeleteAclsRequest,
        DeleteGroupsRequest,
        DeleteRecordsRequest,
        DeleteTopicsRequest,
        DescribeAclsRequest,
        DescribeClientQuotasRequest,
        DescribeClusterRequest,
        DescribeConfigsRequest,
        DescribeGroupsRequest,
        DescribeLogDirsRequest,
        DescribeProducersRequest,
        DescribeTopicPartitionsRequest,
        DescribeTransactionsRequest,
        ElectLeadersRequest,
        EndTxnRequest,
        FetchRequest,
        FindCoordinatorRequest,
        HeartbeatRequest,
        IncrementalAlterConfigsRequest,
        InitProducerIdRequest,
        JoinGroupRequest,
        LeaveGroupRequest,
        ListGroupsRequest,
        ListOffsetsRequest,
        ListPartitionReassignmentsRequest,
        ListTransactionsRequest,
        MetadataRequest,
        OffsetCommitRequest,
        OffsetDeleteRequest,
        OffsetFetchRequest,
        OffsetForLeaderEpochRequest,
        ProduceRequest,
        SaslAuthenticateRequest,
        SaslHandshakeRequest,
        SyncGroupRequest,
        TxnOffsetCommitRequest,
        UpdateFeaturesRequest,
        WriteTxnMarkersRequest,
    ]
)
"""API key -> request class."""

FLEXIBLE: dict[int, int] = {key: request.__schema__.flexible for key, request in REQUESTS.items()}
"""API key -> the version from which on the header of its requests has tagged fields."""

RESPONSES: dict[int, Any] = _by_key(
    [
        AddOffsetsToTxnResponse,
        AddPartitionsToTxnResponse,
        AlterConfigsResponse,
        ApiVersionsResponse,
        ConsumerGroupDescribeResponse,
        ConsumerGroupHeartbeatResponse,
        CreateAclsResponse,
        CreatePartitionsResponse,
        CreateTopicsResponse,
        DeleteAclsResponse,
        DeleteGroupsResponse,
        DeleteRecordsResponse,
        DeleteTopicsResponse,
        DescribeAclsResponse,
        DescribeClientQuotasResponse,
        DescribeClusterResponse,
        DescribeConfigsResponse,
        DescribeGroupsResponse,
        DescribeLogDirsResponse,
        DescribeProducersResponse,
        DescribeTopicPartitionsResponse,
        DescribeTransactionsResponse,
        ElectLeadersResponse,
        EndTxnResponse,
        FetchResponse,
        FindCoordinatorResponse,
        HeartbeatResponse,
        IncrementalAlterConfigsResponse,
        InitProducerIdResponse,
        JoinGroupResponse,
        LeaveGroupResponse,
        ListGroupsResponse,
        ListOffsetsResponse,
        ListPartitionReassignmentsResponse,
        ListTransactionsResponse,
        MetadataResponse,
        OffsetCommitResponse,
        OffsetDeleteResponse,
        OffsetFetchResponse,
        OffsetForLeaderEpochResponse,
        ProduceResponse,
        SaslAuthenticateResponse,
        SaslHandshakeResponse,
        SyncGroupResponse,
        TxnOffsetCommitResponse,
        UpdateFeaturesResponse,
        WriteTxnMarkersResponse,
    ]
)
"""API key -> response class."""

__all__ = [
    "FLEXIBLE",
    "REQUESTS",
    "RESPONSES",
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AlterConfigsRequest",
    "AlterConfigsResponse",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "CreateAclsRequest",
    "CreateAclsResponse",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeAclsRequest",
    "DescribeAclsResponse",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "EndTxnRequest",
    "EndTxnResponse",
    "FetchRequest",
    "FetchResponse",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "MetadataRequest",
    "MetadataResponse",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetDeleteRequest",
    "OffsetDeleteResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "ProduceRequest",
    "ProduceResponse",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitResponse",
    "UpdateFeaturesRequest",
    "UpdateFeaturesResponse",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
]
