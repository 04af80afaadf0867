"""Write docs/reference/apis.md: what is served, and what of Apache Kafka is not, from the registry of handlers.

    python scripts/apis_page.py

What Apache Kafka serves is in its own answer to ApiVersions, which is among the recorded exchanges of the tests.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.page import ROOT, Cell, Pages, table, write

from fencepost.broker import apis
from fencepost.broker.network.registry import SERVED, Served
from fencepost.protocol.codec import API_VERSIONS, decode_response
from fencepost.protocol.messages import ApiVersionsResponse

assert apis, "importing the APIs registers them"

RECORDED = ROOT / "tests" / "protocol" / "recorded" / "exchanges.jsonl.gz"
#: Whose ApiVersions was answered with everything, features included.
_ASKED_BY = "apache-kafka-java 4.3.1"

_NO_LISTS = " SECURITY_DISABLED: there are none, as in an Apache Kafka without an authorizer."
#: API -> what there is to say of its answers
NOTES: dict[int, str] = {
    29: _NO_LISTS,
    30: _NO_LISTS,
    31: _NO_LISTS,
    43: "None is needed, or possible.",
    48: "There are none.",
}

#: what is missing, for a person -> the APIs of it
MISSING: dict[str, dict[int, str]] = {
    "Authentication and access lists: whoever reaches the port may do everything.": {
        17: "SaslHandshake",
        36: "SaslAuthenticate",
        38: "CreateDelegationToken",
        39: "RenewDelegationToken",
        40: "ExpireDelegationToken",
        41: "DescribeDelegationToken",
        50: "DescribeUserScramCredentials",
        51: "AlterUserScramCredentials",
    },
    "Quotas: no client is slowed down.": {49: "AlterClientQuotas"},
    "Replicas: there is one node, one copy and one directory.": {
        34: "AlterReplicaLogDirs",
        45: "AlterPartitionReassignments",
        55: "DescribeQuorum",
        64: "UnregisterBroker",
        80: "AddRaftVoter",
        81: "RemoveRaftVoter",
    },
    "The newer protocol of consumer groups (KIP-848): groups are of the classic protocol.": {
        68: "ConsumerGroupHeartbeat",
        69: "ConsumerGroupDescribe",
    },
    "Share groups (KIP-932).": {
        76: "ShareGroupHeartbeat",
        77: "ShareGroupDescribe",
        78: "ShareFetch",
        79: "ShareAcknowledge",
        83: "InitializeShareGroupState",
        84: "ReadShareGroupState",
        85: "WriteShareGroupState",
        86: "DeleteShareGroupState",
        87: "ReadShareGroupStateSummary",
        90: "DescribeShareGroupOffsets",
        91: "AlterShareGroupOffsets",
        92: "DeleteShareGroupOffsets",
    },
    "Streams groups (KIP-1071).": {88: "StreamsGroupHeartbeat", 89: "StreamsGroupDescribe"},
    "Settings of brokers, loggers, clients and groups: a node has those that it was started with, others none: "
    "whoever asks for these, or changes any but those of topics, is answered INVALID_REQUEST.": {
        74: "ListConfigResources"
    },
}


def of_kafka() -> dict[int, tuple[int, int]]:
    """API key -> the versions that Apache Kafka 4.3.1 serves, as it says itself."""
    with gzip.open(RECORDED, "rt") as lines:
        for line in lines:
            exchange = json.loads(line)
            if exchange["api"] == API_VERSIONS and exchange["software"] == _ASKED_BY:
                _, answer = decode_response(
                    ApiVersionsResponse, bytes.fromhex(exchange["response"]), exchange["version"]
                )
                return {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    raise AssertionError(f"no answer to {_ASKED_BY}")


def name_of(served: Served) -> str:
    name: str = served.request.__name__
    return name.removesuffix("Request")


def versions(span: tuple[int, int] | None) -> str:
    if span is None:
        return "-"
    return f"{span[0]}-{span[1]}" if span[0] < span[1] else str(span[0])


def served_row(key: int, served: Served, kafka: tuple[int, int] | None) -> list[Cell]:
    gate = "" if served.gate is None else f" v{served.gate[0]} only with `{served.gate[1]}`."
    ours = served.advertised_first, served.last
    older = f" v{served.first} and up is understood." if served.first > served.advertised_first else ""
    return [str(key), name_of(served), versions(ours), versions(kafka), (gate + older + NOTES.get(key, "")).strip()]


def missing() -> dict[str, dict[int, str]]:
    """What Apache Kafka serves and this node does not, by what is missing.  Everything has its place."""
    wanted = {key for key in of_kafka() if key not in SERVED}
    named = {key for of in MISSING.values() for key in of}
    assert wanted <= named, f"say what is missing without the APIs {sorted(wanted - named)}"
    assert named <= wanted, f"not missing, take them out: the APIs {sorted(named - wanted)}"
    return MISSING


def page() -> str:
    kafka = of_kafka()
    gone = missing()
    count = sum(map(len, gone.values()))
    rows = [served_row(key, served, kafka.get(key)) for key, served in sorted(SERVED.items())]
    lines = [
        "# Served APIs, and what is not there",
        "",
        f"Apache Kafka 4.3.1 tells clients of {len(kafka)} APIs; this node serves {len(kafka) - count} "
        f"of them and lacks",
        f"{count}. Where a served API is answered otherwise: [differences](transactions/differences.md).",
        "",
        "## Served",
        "",
        *table(["key", "API", "versions", "of Apache Kafka 4.3.1", ""], rows),
        "",
        "## Not there",
        "",
        "What a client is told: the API, or the version, is not in the answer to ApiVersions, from "
        "which it learns what it",
        "may ask for. Who asks all the same loses the connection, and the node's log says why. ApiVersions itself in a",
        "version of the future is answered UNSUPPORTED_VERSION, with the versions that there are.",
    ]
    for what, of in gone.items():
        lines += ["", f"**{what}** {', '.join(f'{name} ({key})' for key, name in sorted(of.items()))}."]
    return "\n".join(lines) + "\n"


PAGES: Pages = {"reference/apis.md": page}

if __name__ == "__main__":
    write(PAGES)
