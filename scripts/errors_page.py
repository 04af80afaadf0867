"""Write docs/reference/errors.md: every error that a client raises, when, what to do, and which kind it is of.

python scripts/errors_page.py
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.page import Cell, Pages, table, write

from fencepost.client import errors
from fencepost.client.errors import (
    AbortableError,
    ApplicationRecoverableError,
    BrokerError,
    ClientError,
    FatalError,
    RetriableError,
)
from fencepost.client.remedies import ADVICE, Remedy
from fencepost.protocol.errors import ErrorCode

KINDS: Final = {
    Remedy.RETRY: RetriableError,
    Remedy.ABORT: AbortableError,
    Remedy.REBUILD: ApplicationRecoverableError,
    Remedy.STOP: FatalError,
}


def told(kind: type) -> tuple[str, str]:
    """When an error is raised, and what to do: the first sentence of its docstring, and the others."""
    happened, _, then = " ".join((kind.__doc__ or "").split()).partition(". ")
    return f"{happened}.", then


def raised() -> list[type[ClientError]]:
    """The errors that are no base of others only; a BrokerError is in the second table."""
    every = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, ClientError)]
    bases = (ClientError, BrokerError, errors.TransactionError, *KINDS.values())
    return [kind for kind in every if kind not in bases and BrokerError not in kind.__bases__[:1]] + [
        errors.PartlyRefusedError
    ]


def rows() -> Iterator[tuple[Cell, ...]]:
    for kind in sorted(raised(), key=lambda kind: kind.__name__):
        when, then = told(kind)
        base = next(base.__name__ for base in KINDS.values() if issubclass(kind, base))
        yield f"`{kind.__name__}`", when, then, f"`{base}`"


def codes() -> Iterator[tuple[Cell, ...]]:
    for code in sorted(ADVICE, key=int):
        advice = ADVICE[code]
        again = "yes" if code.retriable else ""
        yield str(int(code)), f"`{code.name}`", f"{advice.what_next}.", f"`{KINDS[advice.remedy].__name__}`", again


def page() -> str:
    return "\n".join(
        [
            "# Errors of the clients",
            "",
            "Every error is a `ClientError`, and of one of four kinds, by what helps. All are in `fencepost.client`.",
            "",
            *table(
                ("kind", "what it means", "what to do"),
                [(f"`{kind.__name__}`", *told(kind)) for kind in KINDS.values()],
            ),
            "",
            "```python",
            "try:",
            "    async with producer.transaction():",
            '        await producer.send("payments", value)',
            "except OutcomeUnknownError:",
            "    await producer.commit_transaction()  # until it is known: to do the work again could double it",
            "except AbortableError:",
            "    ...  # it is aborted: do its work again with the same producer",
            "except RetriableError:",
            "    ...  # the same, later",
            "except ApplicationRecoverableError:",
            "    ...  # close the producer, go on with another one from what is committed",
            "```",
            "",
            "`FatalError` is best left alone: somebody has to change something. Arguments that make no sense raise",
            "Python's own `TypeError` and `ValueError`, which name the setting.",
            "",
            "## Raised by the clients",
            "",
            *table(("error", "when", "what to do", "kind"), rows()),
            "",
            "## Answered by a broker",
            "",
            "These are raised as a `BrokerError` whose `code` is the number, unless one of the errors above stands for",
            "them. The message ends with what to do. A code that the clients try again by themselves (last column)",
            "comes to the caller as a `TimedOutError` that names it, where time runs out. A code of a newer broker is",
            f"taken for `{ErrorCode.UNKNOWN_SERVER_ERROR.name}`, but keeps its number.",
            "",
            *table(("code", "name", "what to do", "kind", "tried again"), codes()),
            "",
        ]
    )


PAGES: Pages = {"reference/errors.md": page}

if __name__ == "__main__":
    write(PAGES)
