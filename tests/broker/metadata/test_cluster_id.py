"""Two clusters whose files get mixed up: each start is right or refused, with what to do, and changes nothing then."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.broker.directories import node
from tests.broker.wire import batch, fetch, new_topic, produce, values

from fencepost.log.checkpoint_files import CLUSTER_FILE
from fencepost.log.data_directory import DirectoryUnusable
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import MetadataRequest

METADATA = "metadata.sqlite"


def run_node(data: Path, topic: str = "", *, rebuild: bool = False) -> str:
    """Start a node, write to a topic (a new one, or read the one that is there), and stop it; the cluster's id."""
    with node(data, rebuild=rebuild) as client:
        if topic:
            assert values(fetch(client, topic)) == [data.name], "its own records"
        else:
            topic = new_topic(client)
            assert produce(client, topic, batch(data.name)).error_code == ErrorCode.NONE
        told = client.ask(MetadataRequest(topics=[])).cluster_id
        (data.parent / f"{data.name}.topic").write_text(topic)
        return str(told)


@pytest.fixture
def clusters(tmp_path: Path) -> dict[Path, tuple[str, str]]:
    """The directories of two clusters; of each its id and a topic."""
    found = {}
    for data in (tmp_path / "one", tmp_path / "two"):
        cluster_id = run_node(data)
        found[data] = cluster_id, (tmp_path / f"{data.name}.topic").read_text()
    assert len({cluster_id for cluster_id, _ in found.values()}) == 2
    return found


def contents(data: Path) -> dict[Path, bytes]:
    """Of all files that say something."""
    return {each: each.read_bytes() for each in data.rglob("*") if each.is_file() and each.name != ".reserve"}


@pytest.mark.parametrize("file", [METADATA, CLUSTER_FILE])
def test_a_file_of_another_cluster_is_refused_until_the_right_one_is_back(
    clusters: dict[Path, tuple[str, str]], file: str
) -> None:
    one, two = clusters
    own = (two / file).read_bytes()
    shutil.copy(one / file, two / file)
    before = contents(two)
    for rebuild in (False, True, False):
        with pytest.raises(DirectoryUnusable) as refused:
            run_node(two, rebuild=rebuild)
        said = str(refused.value)
        assert clusters[one][0] in said and clusters[two][0] in said and str(two) in said
        assert "put back this directory's own metadata.sqlite" in said and "--rebuild-metadata" in said
        assert contents(two) == before
    (two / file).write_bytes(own)
    for data, (cluster_id, topic) in clusters.items():
        assert run_node(data, topic) == cluster_id


def test_a_copy_of_a_whole_directory_is_of_the_same_cluster(clusters: dict[Path, tuple[str, str]]) -> None:
    one, two = clusters
    cluster_id, topic = clusters[one]
    shutil.copytree(one, one.parent / "copy" / "one")
    assert run_node(one.parent / "copy" / "one", topic) == cluster_id
    shutil.copy(two / METADATA, one.parent / "copy" / "one" / METADATA)
    with pytest.raises(DirectoryUnusable, match=clusters[two][0]):
        run_node(one.parent / "copy" / "one")


def test_a_directory_of_an_older_version_gets_the_file(clusters: dict[Path, tuple[str, str]]) -> None:
    data = next(iter(clusters))
    cluster_id, topic = clusters[data]
    kept = (data / CLUSTER_FILE).read_bytes()
    assert kept == f"version=1\ncluster.id={cluster_id}\n".encode()
    (data / CLUSTER_FILE).unlink()
    (data / f"{CLUSTER_FILE}.tmp").write_text("a start that was killed")
    for _ in range(2):
        assert run_node(data, topic) == cluster_id
        assert (data / CLUSTER_FILE).read_bytes() == kept
    assert not (data / "meta.properties").exists(), "which is how a directory of Apache Kafka is told"


@pytest.mark.parametrize("damage", [b"", b"version=1\n", b"version=1\ncluster.id=", b"\0" * 46, b"cluster.id=short\n"])
def test_a_damaged_file_is_refused_and_may_be_removed(clusters: dict[Path, tuple[str, str]], damage: bytes) -> None:
    data = next(iter(clusters))
    cluster_id, topic = clusters[data]
    (data / CLUSTER_FILE).write_bytes(damage)
    for _ in range(2):
        with pytest.raises(DirectoryUnusable) as refused:
            run_node(data, topic)
        assert f"{CLUSTER_FILE} is damaged" in str(refused.value) and cluster_id in str(refused.value)
        assert (data / CLUSTER_FILE).read_bytes() == damage
    (data / CLUSTER_FILE).unlink()
    assert run_node(data, topic) == cluster_id


def test_metadata_that_is_made_again_keeps_the_cluster(clusters: dict[Path, tuple[str, str]]) -> None:
    data = next(iter(clusters))
    cluster_id, topic = clusters[data]
    (data / METADATA).unlink()
    assert run_node(data, topic, rebuild=True) == cluster_id
    assert run_node(data, topic) == cluster_id
