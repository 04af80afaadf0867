"""What a caller is told who may not: Apache Kafka's code for each request and resource."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.broker.apis.test_every_version import sample
from tests.broker.group_talk import commit, find_group, join, sync_request, txn_commit
from tests.broker.wire import (
    Client,
    add,
    batch,
    end,
    fetch,
    find_coordinator,
    init,
    init_answer,
    list_offset,
    new_topic,
    produce,
    serving,
)

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.registry import SERVED
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    JoinGroupResponse,
    ListGroupsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    UpdateFeaturesRequest,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopic
from fencepost.protocol.messages.update_features import FeatureUpdateKey
from fencepost.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from fencepost.protocol.types import ProducerIdAndEpoch

NO_TOPIC, NO_GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER, NO_ID = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class Denies:
    """Refuses what it is told to refuse, and nothing else."""

    def __init__(self) -> None:
        self.denied: set[tuple[Resource, Operation]] = set()
        self.only: str | None = None
        """The one name of which that is so, if not of all."""
        self.asked: set[tuple[Resource, Operation]] = set()

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        assert (principal, host) == ("User:ANONYMOUS", "/127.0.0.1")
        assert name or resource is Resource.GROUP
        self.asked.add((resource, operation))
        return (resource, operation) not in self.denied or self.only not in (None, name)


class Scene:
    """A topic, a producer and a group, made while everything was allowed."""

    def __init__(self, client: Client, denies: Denies) -> None:
        self.client, self.denies = client, denies
        self.topic = new_topic(client)
        self.pair: ProducerIdAndEpoch = init(client, "t")
        find_group(client)

    def deny(self, resource: Resource, *operations: Operation) -> None:
        self.denies.denied = {(resource, operation) for operation in operations or Operation}


@pytest.fixture
def scene() -> Iterator[Scene]:
    denies = Denies()
    with serving(denies) as broker:
        client = Client(broker)
        yield Scene(client, denies)
        client.close()


def write(scene: Scene) -> int:
    data = batch("v", pair=scene.pair, sequence=0, transactional=True)
    return produce(scene.client, scene.topic, data, "t").error_code


def create(scene: Scene) -> int:
    wanted = CreatableTopic(name="n", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return int(scene.client.ask(CreateTopicsRequest(topics=[wanted])).topics[0].error_code)


def delete(scene: Scene) -> int:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=scene.topic)], timeout_ms=1000)
    return int(scene.client.ask(request).responses[0].error_code)


def show(scene: Scene) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=scene.topic)])
    return int(scene.client.ask(request).topics[0].error_code)


def add_offsets(scene: Scene) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id="t", producer_id=scene.pair.producer_id, producer_epoch=scene.pair.producer_epoch, group_id="g"
    )
    return int(scene.client.ask(request).error_code)


def committed_offsets(scene: Scene) -> int:
    asked = OffsetFetchRequestGroup(group_id="g", topics=None)
    return int(scene.client.ask(OffsetFetchRequest(groups=[asked]), 9).groups[0].error_code)


def sync(scene: Scene) -> int:
    joined = JoinGroupResponse(
        error_code=0, leader="", member_id="m", members=[], protocol_type="consumer", protocol_name="range"
    )
    return int(scene.client.ask(sync_request(joined, {})).error_code)


def marker(scene: Scene) -> int:
    topics = [WritableTxnMarkerTopic(name=scene.topic, partition_indexes=[0])]
    wanted = WritableTxnMarker(
        producer_id=50, producer_epoch=0, transaction_result=False, topics=topics, coordinator_epoch=0
    )
    answer = scene.client.ask(WriteTxnMarkersRequest(markers=[wanted]))
    return int(answer.markers[0].topics[0].partitions[0].error_code)


def level(scene: Scene) -> int:
    key = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
    return int(scene.client.ask(UpdateFeaturesRequest(feature_updates=[key])).error_code)


def find(kind: int) -> Callable[[Scene], int]:
    def ask(scene: Scene) -> int:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["k"])
        return int(scene.client.ask(request, 4).coordinators[0].error_code)

    return ask


TOPIC, GROUP, CLUSTER, ID = Resource.TOPIC, Resource.GROUP, Resource.CLUSTER, Resource.TRANSACTIONAL_ID
CASES: list[tuple[str, Resource, Operation, Callable[[Scene], int], ErrorCode]] = [
    ("Produce", TOPIC, Operation.WRITE, write, NO_TOPIC),
    ("Produce", ID, Operation.WRITE, write, NO_ID),
    ("Fetch", TOPIC, Operation.READ, lambda s: fetch(s.client, s.topic).error_code, NO_TOPIC),
    ("ListOffsets", TOPIC, Operation.DESCRIBE, lambda s: list_offset(s.client, s.topic, -1).error_code, NO_TOPIC),
    ("Metadata", TOPIC, Operation.DESCRIBE, show, NO_TOPIC),
    ("DeleteTopics", TOPIC, Operation.DELETE, delete, NO_TOPIC),
    ("InitProducerId", ID, Operation.WRITE, lambda s: init_answer(s.client, "t").error_code, NO_ID),
    ("AddPartitions", ID, Operation.WRITE, lambda s: add(s.client, "t", s.pair, s.topic), NO_ID),
    ("AddPartitions", TOPIC, Operation.WRITE, lambda s: add(s.client, "t", s.pair, s.topic), NO_TOPIC),
    ("AddOffsets", ID, Operation.WRITE, add_offsets, NO_ID),
    ("AddOffsets", GROUP, Operation.READ, add_offsets, NO_GROUP),
    ("EndTxn", ID, Operation.WRITE, lambda s: end(s.client, "t", s.pair).error_code, NO_ID),
    ("TxnOffsetCommit", ID, Operation.WRITE, lambda s: txn_commit(s.client, "t", s.pair, s.topic, 1)[0], NO_ID),
    ("TxnOffsetCommit", GROUP, Operation.READ, lambda s: txn_commit(s.client, "t", s.pair, s.topic, 1)[0], NO_GROUP),
    ("TxnOffsetCommit", TOPIC, Operation.READ, lambda s: txn_commit(s.client, "t", s.pair, s.topic, 1)[0], NO_TOPIC),
    ("OffsetCommit", GROUP, Operation.READ, lambda s: commit(s.client, s.topic, 1)[0], NO_GROUP),
    ("OffsetCommit", TOPIC, Operation.READ, lambda s: commit(s.client, s.topic, 1)[0], NO_TOPIC),
    ("OffsetFetch", GROUP, Operation.DESCRIBE, committed_offsets, NO_GROUP),
    ("JoinGroup", GROUP, Operation.READ, lambda s: join(s.client).error_code, NO_GROUP),
    ("SyncGroup", GROUP, Operation.READ, sync, NO_GROUP),
    ("FindCoordinator", GROUP, Operation.DESCRIBE, find(0), NO_GROUP),
    ("FindCoordinator", ID, Operation.DESCRIBE, find(1), NO_ID),
    ("WriteTxnMarkers", CLUSTER, Operation.ALTER, marker, NO_CLUSTER),
    ("UpdateFeatures", CLUSTER, Operation.ALTER, level, NO_CLUSTER),
]


@pytest.mark.parametrize(
    ("operation", "resource", "ask", "error"),
    [(operation, resource, ask, error) for _, resource, operation, ask, error in CASES],
    ids=[f"{name}-{resource.name}" for name, resource, *_ in CASES],
)
def test_who_may_not(
    scene: Scene, operation: Operation, resource: Resource, ask: Callable[[Scene], int], error: ErrorCode
) -> None:
    operations = [operation]
    if ask is marker:
        operations.append(Operation.CLUSTER_ACTION)  # either of the two is enough
    scene.deny(resource, *operations)
    assert ask(scene) == error
    scene.deny(resource, *[other for other in Operation if other not in operations])
    assert ask(scene) != error


def test_either_right_makes_a_topic(scene: Scene) -> None:
    scene.denies.denied = {(TOPIC, Operation.CREATE), (CLUSTER, Operation.CREATE)}
    assert create(scene) == NO_TOPIC
    scene.deny(CLUSTER)
    assert create(scene) == ErrorCode.NONE


def test_either_right_writes_markers(scene: Scene) -> None:
    """An admin who ends a hanging transaction need not be a broker."""
    both = [(CLUSTER, Operation.ALTER), (CLUSTER, Operation.CLUSTER_ACTION)]
    for denied, refused in [(both, True), (both[:1], False), (both[1:], False)]:
        scene.denies.denied = set(denied)
        assert (marker(scene) == NO_CLUSTER) is refused, denied


def test_two_phase_commits_take_a_right_beside_that_to_write() -> None:
    """KIP-939: who has one of the two alone is refused."""
    denies = Denies()
    with serving(denies, transaction_two_phase_commit_enable=True) as broker:
        client = Client(broker)
        find_coordinator(client, "t")
        rights = [(ID, Operation.WRITE), (ID, Operation.TWO_PHASE_COMMIT)]
        for denied, error in [(rights, NO_ID), (rights[:1], NO_ID), (rights[1:], NO_ID), ([], ErrorCode.NONE)]:
            denies.denied = set(denied)
            request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1, enable2_pc=True)
            assert client.ask(request, 6).error_code == error, denied
        client.close()


def test_either_right_makes_an_idempotent_producer(scene: Scene) -> None:
    """Facts §2.2, 3."""
    both = [(CLUSTER, Operation.IDEMPOTENT_WRITE), (TOPIC, Operation.WRITE)]
    for denied, error in [(both, NO_CLUSTER), (both[:1], ErrorCode.NONE), (both[1:], ErrorCode.NONE)]:
        scene.denies.denied = set(denied)
        assert init_answer(scene.client, None).error_code == error


@pytest.mark.promise("890.brokers-only")
def test_brokers_only(scene: Scene) -> None:
    scene.deny(CLUSTER, Operation.CLUSTER_ACTION)
    answer = scene.client.ask(AddPartitionsToTxnRequest(), 5)
    assert (answer.error_code, answer.results_by_transaction) == (NO_CLUSTER, [])


def test_groups_and_ids_that_may_not_be_seen(scene: Scene) -> None:
    client = scene.client
    assert commit(client, scene.topic, 1) == [0]
    scene.deny(GROUP)
    assert client.ask(ListGroupsRequest()).groups == []
    assert client.ask(DescribeGroupsRequest(groups=["g"])).groups[0].error_code == NO_GROUP
    assert client.ask(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == NO_GROUP
    scene.deny(ID)
    assert client.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[])).transaction_states == []
    (found,) = client.ask(DescribeTransactionsRequest(transactional_ids=["t"])).transaction_states
    assert (found.error_code, found.transaction_state) == (NO_ID, "")


def test_topics_that_may_not_be_seen_are_left_out(scene: Scene) -> None:
    client = scene.client
    assert add(client, "t", scene.pair, scene.topic) == ErrorCode.NONE
    scene.deny(TOPIC, Operation.DESCRIBE)
    assert client.ask(MetadataRequest(topics=None)).topics == []
    (found,) = client.ask(DescribeTransactionsRequest(transactional_ids=["t"])).transaction_states
    assert (found.transaction_state, found.topics) == ("Ongoing", [])


@pytest.mark.parametrize("version", [2, 7, 9, 10])
def test_all_that_a_group_committed_is_told_without_topics_that_may_not_be_seen(scene: Scene, version: int) -> None:
    client, hidden = scene.client, new_topic(scene.client)
    assert commit(client, scene.topic, 1) == commit(client, hidden, 2) == [0]
    scene.deny(TOPIC, Operation.DESCRIBE)
    scene.denies.only = hidden
    answer = client.ask(OffsetFetchRequest(group_id="g", groups=[OffsetFetchRequestGroup(group_id="g")]), version)
    told = answer if version < 8 else answer.groups[0]
    assert (told.error_code, len(told.topics)) == (ErrorCode.NONE, 1)
    assert [each.committed_offset for each in told.topics[0].partitions] == [1]


def test_who_may_not_commit_begins_no_group_with_nothing(scene: Scene) -> None:
    scene.deny(GROUP, Operation.READ)
    nothing = OffsetCommitRequest(group_id="new", member_id="", generation_id_or_member_epoch=-1, topics=[])
    assert scene.client.ask(nothing, 9).topics == []
    assert scene.client.ask(ListGroupsRequest()).groups == []


@pytest.mark.parametrize(("resource", "kind"), [(GROUP, 0), (ID, 1)])
def test_who_may_not_ask_for_a_coordinator_does_not_have_its_topic_made(resource: Resource, kind: int) -> None:
    denies = Denies()
    denies.denied = {(resource, Operation.DESCRIBE)}
    with serving(denies) as broker:
        client = Client(broker)
        for version in (3, 4):
            client.ask(FindCoordinatorRequest(key="k", key_type=kind, coordinator_keys=["k"]), version)
        assert broker.node.topics.by_name == {}
        client.close()


@pytest.mark.parametrize(("resource", "kind"), [(GROUP, 0), (ID, 1)])
def test_whoever_may_ask_for_one_of_several_coordinators_has_its_topic_made(resource: Resource, kind: int) -> None:
    denies = Denies()
    denies.denied, denies.only = {(resource, Operation.DESCRIBE)}, "a"
    with serving(denies, offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1) as broker:
        client = Client(broker)
        found = client.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["a", "b"]), 4).coordinators
        assert {each.key: each.error_code for each in found} == {
            "a": NO_GROUP if resource is GROUP else NO_ID,
            "b": ErrorCode.NONE,
        }
        client.close()


def test_who_may_not_see_its_settings_may_make_a_topic(scene: Scene) -> None:
    scene.deny(TOPIC, Operation.DESCRIBE_CONFIGS)
    wanted = CreatableTopic(name="made", num_partitions=3, replication_factor=1, assignments=[], configs=[])
    (made,) = scene.client.ask(CreateTopicsRequest(topics=[wanted])).topics
    assert (made.error_code, made.topic_config_error_code) == (ErrorCode.NONE, NO_TOPIC)
    assert (made.num_partitions, made.replication_factor, made.configs) == (-1, -1, [])
    assert made.topic_id == scene.client.broker.node.topics.by_name["made"].topic_id


#: They tell what a client has to know before it can ask for anything, as Apache Kafka tells it to all.
FOR_ALL = {"ApiVersions", "DescribeCluster"}


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: SERVED[key].request.__name__.removesuffix("Request"))
def test_every_api_asks_whether_the_caller_may(scene: Scene, key: int) -> None:
    served = SERVED[key]
    assert commit(scene.client, scene.topic, 1) == [0]
    scene.denies.denied = {(resource, operation) for resource in Resource for operation in Operation}
    scene.denies.asked.clear()
    newest = served.newest(scene.client.broker.node.settings)
    for version in range(served.first, newest + 1):
        for count in (0, 1):
            scene.client.ask(sample(served.request, version, count), version)
    name = served.request.__name__.removesuffix("Request")
    assert bool(scene.denies.asked) == (name not in FOR_ALL)


def test_the_oldest_clients_are_told_of_each_partition_that_they_may_not_see_its_group(scene: Scene) -> None:
    """Version 1 has no error of the whole answer."""
    scene.deny(GROUP)
    wanted = OffsetFetchRequestTopic(name=scene.topic, partition_indexes=[0, 1])
    answer = scene.client.ask(OffsetFetchRequest(group_id="g", topics=[wanted]), 1)
    assert [each.error_code for each in answer.topics[0].partitions] == [NO_GROUP] * 2
