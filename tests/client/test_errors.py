"""Every error is of one of four kinds, says what to do, and can be sent to another process."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from pathlib import Path

import pytest

from fencepost import client
from fencepost.client import errors
from fencepost.client.errors import (
    AbortableError,
    ApplicationRecoverableError,
    BrokerError,
    ClientError,
    FatalBrokerError,
    FatalError,
    PartlyRefusedError,
    RetriableError,
    TimedOutError,
)
from fencepost.client.remedies import Remedy, advice_on
from fencepost.protocol.errors import ErrorCode

KINDS = {
    Remedy.RETRY: RetriableError,
    Remedy.ABORT: AbortableError,
    Remedy.REBUILD: ApplicationRecoverableError,
    Remedy.STOP: FatalError,
}
#: What others are derived from, beside the four; a BrokerError is of the kind of its code.
BASES = (ClientError, client.TransactionError, BrokerError)
EVERY = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, ClientError)]
RAISED = [kind for kind in EVERY if kind not in (*BASES, *KINDS.values())]


@pytest.mark.parametrize("kind", RAISED)
def test_every_error_is_of_one_kind(kind: type[ClientError]) -> None:
    assert [base for base in KINDS.values() if issubclass(kind, base)] == [
        base for base in KINDS.values() if base in kind.__mro__
    ]
    assert sum(issubclass(kind, base) for base in KINDS.values()) == 1


@pytest.mark.parametrize("kind", EVERY)
def test_every_error_is_exported_and_says_what_happened_and_what_to_do(kind: type[ClientError]) -> None:
    assert kind.__name__ in client.__all__ and getattr(client, kind.__name__) is kind
    happened, _, next_step = " ".join((kind.__doc__ or "").split()).partition(". ")
    assert happened
    assert next_step or kind is ClientError


@pytest.mark.parametrize("code", [error for error in ErrorCode if error])
def test_what_a_broker_refuses_is_of_the_kind_of_its_code_and_says_what_to_do(code: ErrorCode) -> None:
    error = BrokerError(code, "topic 't' was not made: there is none.")
    assert isinstance(error, KINDS[advice_on(code).remedy]) and isinstance(error, BrokerError)
    assert sum(isinstance(error, base) for base in KINDS.values()) == 1
    assert error.code is code
    assert str(error) == f"{code.name}: topic 't' was not made: there is none. {advice_on(code).what_next}"


def test_the_brokers_question_ends_as_one() -> None:
    assert ": did you mean retention.ms? " in str(BrokerError(ErrorCode.INVALID_CONFIG, "did you mean retention.ms?"))


def test_a_code_of_a_newer_broker_is_told_by_its_number() -> None:
    error = BrokerError(999, "nobody knows")
    assert error.code == 999 and str(error).startswith("error 999: nobody knows. Look into the broker's log")
    assert isinstance(error, FatalError)


def test_what_the_caller_allowed_is_pythons_own_time_out() -> None:
    assert issubclass(TimedOutError, TimeoutError)


class RefusedByTheirRule(BrokerError):
    """Of somebody's program."""


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NOT_COORDINATOR, 999])
def test_a_refusal_outlives_being_pickled(code: int) -> None:
    error = BrokerError(code=code, message="because")
    error.add_note("and when")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code, str(again)) == (type(error), error.code, str(error))
    assert again.__notes__ == ["and when"]
    for kind in (FatalBrokerError, RefusedByTheirRule):
        assert type(pickle.loads(pickle.dumps(kind(code, "because")))) is kind
    several = PartlyRefusedError({"a": error}, {"b": 1})
    again = pickle.loads(pickle.dumps(several))
    assert (again.done, str(again), again.refused["a"].code) == ({"b": 1}, str(several), code)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 1000])
def test_of_many_that_are_refused_the_first_are_named_and_all_are_kept(count: int) -> None:
    refused = {number: BrokerError(3, f"number {number} is refused") for number in range(count)}
    error = PartlyRefusedError(refused, {})
    assert str(error).count("is refused") == min(count, 3)
    assert (f"and {count - 3} more" in str(error)) == (count > 3)
    assert error.refused == refused and error.code == 3


ROOM = Path(inspect.getfile(errors)).parent
#: Said as the reason of others: the call is tried again, and its time-out says what to do.
REASONS = ("ConnectionLostError", "UnreachableError")
#: They end with the advice on their code.
ADVISED = ("BrokerError", "PartlyRefusedError")


def messages(module: Path) -> list[tuple[str, str]]:
    """Errors of ours that a module makes with a text, and the text, with braces where something is filled in."""
    found = []
    names = {kind.__name__ for kind in EVERY}
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names and node.args:
            text = node.args[-1]
            if isinstance(text, ast.Constant | ast.JoinedStr):
                found.append((node.func.id, ast.unparse(text)))
    return found


@pytest.mark.parametrize("module", sorted(ROOM.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOM)))
def test_every_message_says_what_happened_and_then_what_to_do(module: Path) -> None:
    told = [(kind, text) for kind, text in messages(module) if kind not in (*REASONS, *ADVISED)]
    assert [text for _, text in told if not re.search(r"[^\s{][:;.] \S", text)] == []


def test_messages_are_seen() -> None:
    assert sum(len(messages(module)) for module in ROOM.rglob("*.py")) > 50


def test_each_refusal_of_several_names_its_code_once() -> None:
    refused = {name: BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} was not created") for name in "ab"}
    assert str(PartlyRefusedError(refused, {})).count("INVALID_TOPIC_EXCEPTION") == 2
    assert PartlyRefusedError(refused, {}).code == ErrorCode.INVALID_TOPIC_EXCEPTION
