"""Why the nodes may differ in a scenario of the coordinators, and at which levels of transaction.version.

Each is an entry of DIFFERENCES, or a difference of the partition leader that is listed with it.
"""

from __future__ import annotations

from typing import Any

from tests.compare.nodes.twins import NOBODY, Asked, Explanation, Twins

from fencepost.protocol.types import ProducerIdAndEpoch

_IDLE = ("Empty", "CompleteCommit", "CompleteAbort")
_FENCED = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


def _error(answer: Any) -> Any:
    return answer.get("error_code") if isinstance(answer, dict) else answer


def _given(asked: Asked) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch.of(asked.request.producer_id, asked.request.producer_epoch)


def _told(answer: Any) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch.of(answer["producer_id"], answer["producer_epoch"])


def _open_with_another_pair(twins: Twins, asked: Asked) -> bool:
    if asked.name != "InitProducerId" or twins.state(asked.request.transactional_id) != "Ongoing":
        return False
    return _given(asked) not in (NOBODY, twins.held(asked.request.transactional_id))


def keeps_the_open_transaction(twins: Twins, asked: Asked) -> bool:
    """InitProducerId with another pair than the current one, while a transaction is open."""
    theirs, ours = _error(asked.kafka), _error(asked.ours)
    if not _open_with_another_pair(twins, asked) or theirs != "CONCURRENT_TRANSACTIONS":
        return False
    return ours in _FENCED or (not ours and _told(asked.ours) == twins.held(asked.request.transactional_id))


def repeats_its_answer(twins: Twins, asked: Asked) -> bool:
    """InitProducerId with an earlier pair of this instance, or one whose transaction this call had aborted."""
    if asked.name != "InitProducerId" or twins.state(asked.request.transactional_id) not in _IDLE:
        return False
    refused = _error(asked.kafka) in (*_FENCED, "UNKNOWN_SERVER_ERROR") and not _error(asked.ours)
    return refused and _told(asked.ours) == twins.held(asked.request.transactional_id)


def refuses_a_pair_that_nobody_was_given(twins: Twins, asked: Asked) -> bool:
    """InitProducerId with the new producer id and the last epoch of the old one: Apache Kafka looks at the epoch."""
    if asked.name != "InitProducerId" or _error(asked.kafka) or _error(asked.ours) not in _FENCED:
        return False
    held, given = twins.held(asked.request.transactional_id), _given(asked)
    return _told(asked.kafka) == held and given == ProducerIdAndEpoch.of(held.producer_id, 32766) != held


def says_fenced_at_the_last_epoch(twins: Twins, asked: Asked) -> bool:
    """InitProducerId with a pair of an older instance, or one ahead, when the current epoch is the last one."""
    if asked.name != "InitProducerId" or _given(asked) == NOBODY:
        return False
    last = twins.held(asked.request.transactional_id).producer_epoch >= 32766
    return last and _error(asked.kafka) == "UNKNOWN_SERVER_ERROR" and _error(asked.ours) in _FENCED


def rotates_a_used_up_producer_id(twins: Twins, asked: Asked) -> bool:
    """InitProducerId with the pair whose transaction it had aborted, below level 2, when no epoch is left."""
    if asked.name != "InitProducerId" or _error(asked.kafka) != "UNKNOWN_SERVER_ERROR" or _error(asked.ours):
        return False
    held, told = twins.held(asked.request.transactional_id), _told(asked.ours)
    return (
        held.producer_epoch == 32767
        and told.producer_epoch == 0
        and _given(asked) == ProducerIdAndEpoch.of(held.producer_id, held.producer_epoch - 1)
    )


def answers_each_of_a_batch(twins: Twins, asked: Asked) -> bool:  # noqa: ARG001
    """AddPartitionsToTxn with the same id twice: Apache Kafka answers both with what the last one got."""
    if asked.name != "AddPartitionsToTxn" or asked.version < 4:
        return False
    names = [one.transactional_id for one in asked.request.transactions]
    return len(set(names)) < len(names)


def is_not_blocked_by_a_refused_request(twins: Twins, asked: Asked) -> bool:
    """With or after a request of version 2 at level 0, or any where it was lowered to 0: Apache Kafka blocks the id."""
    requests = [past for past in twins.history if past.name != "DescribeTransactions"]
    if asked.name == "DescribeTransactions" and requests:
        asked = requests[-1]  # Both may have said CONCURRENT_TRANSACTIONS, for reasons of their own.
    blocked = any(error in str(asked.kafka) for error in ("CONCURRENT_TRANSACTIONS", "UNSUPPORTED_VERSION"))
    lowered = any(past.level == 0 for past in twins.history) and any(past.level == 2 for past in twins.history)
    twins.is_over = blocked and (lowered or any(past.level == 0 and _is_of_version_2(past) for past in twins.history))
    return twins.is_over


def _is_of_version_2(asked: Asked) -> bool:
    if asked.name == "AddPartitionsToTxn" and asked.version >= 4:
        return not all(one.verify_only for one in asked.request.transactions)
    return (asked.name, asked.version) in (("Produce", 12), ("EndTxn", 5), ("TxnOffsetCommit", 5))


def keeps_a_prepared_transaction(twins: Twins, asked: Asked) -> bool:  # noqa: ARG001
    """InitProducerId v6 with keepPreparedTxn, which Apache Kafka does not have yet."""
    kept = asked.name == "InitProducerId" and asked.request.keep_prepared_txn
    return bool(kept) and _error(asked.kafka) == "UNSUPPORTED_VERSION"


def tells_of_the_time_out(twins: Twins, asked: Asked) -> bool:
    """EndTxn or TxnOffsetCommit v5 with the pair whose transaction was timed out, and nobody else took over."""
    if asked.name not in ("EndTxn", "TxnOffsetCommit"):
        return False
    if twins.timed_out.get(asked.request.transactional_id) != _given(asked):
        return False
    if asked.name == "TxnOffsetCommit":
        told = "TRANSACTION_ABORTABLE" in str(asked.ours) and "INVALID_PRODUCER_EPOCH" in str(asked.kafka)
        return told and asked.version >= 5
    if asked.request.committed:
        told = _error(asked.ours) == "TRANSACTION_ABORTABLE" and asked.version >= 5
        return told and _error(asked.kafka) in ("INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING", *_FENCED)
    if _error(asked.ours) or _error(asked.kafka) not in ("INVALID_PRODUCER_ID_MAPPING", *_FENCED):
        return False
    return asked.version < 5 or _told(asked.ours) == twins.held(asked.request.transactional_id)


def hands_no_pair_to_a_fenced_instance(twins: Twins, asked: Asked) -> bool:
    """EndTxn v5 with the pair before the current one, after an end by an older version or a fence: neither bumps."""
    if asked.name != "EndTxn" or asked.version < 5 or _error(asked.ours) != "PRODUCER_FENCED":
        return False
    held, given = twins.held(asked.request.transactional_id), _given(asked)
    ended_before = any(
        (past.name == "EndTxn" and past.version < 5)
        or (past.name == "InitProducerId" and _error(past.ours) == "CONCURRENT_TRANSACTIONS")
        for past in twins.history
    )
    theirs = _error(asked.kafka) in (0, "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS")
    return ended_before and theirs and given == ProducerIdAndEpoch.of(held.producer_id, held.producer_epoch - 1)


def tells_of_an_id_once(twins: Twins, asked: Asked) -> bool:  # noqa: ARG001
    """DescribeTransactions of the same id twice: Apache Kafka tells all of it as often as it is named."""
    if asked.name != "DescribeTransactions":
        return False
    theirs, ours = asked.kafka.get("transaction_states", []), asked.ours.get("transaction_states", [])
    named = asked.request.transactional_ids
    once = [one for number, one in enumerate(theirs) if named[number] not in named[:number]]
    return len(theirs) == len(named) and len(once) < len(theirs) and once == ours


_ALL = (0, 1, 2)
EXPLANATIONS: dict[Explanation, tuple[int, ...]] = {
    keeps_the_open_transaction: _ALL,
    repeats_its_answer: _ALL,
    refuses_a_pair_that_nobody_was_given: _ALL,
    says_fenced_at_the_last_epoch: _ALL,
    rotates_a_used_up_producer_id: (0, 1),
    answers_each_of_a_batch: _ALL,
    hands_no_pair_to_a_fenced_instance: _ALL,
    tells_of_the_time_out: _ALL,
    tells_of_an_id_once: _ALL,
    keeps_a_prepared_transaction: _ALL,
    is_not_blocked_by_a_refused_request: _ALL,
}
