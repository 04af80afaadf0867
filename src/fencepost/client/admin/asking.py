"""Requests about many items, each sent to the node that answers for it, until every item has its answer.

Several nodes are asked at once, each about its own items.  An item whose node has changed, or does not answer, is asked
for again where it is then, until the deadline; the others are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from fencepost.client.admin.routes import Brokers, Route
from fencepost.client.cluster import Cluster, Deadline
from fencepost.client.errors import BrokerError, ConnectionLostError, PartlyRefusedError, UnreachableError
from fencepost.protocol.errors import ErrorCode

#: A controller that says so knows: it is the one who would know of a topic.  It may have begun what took too long.
FINAL_OF_CONTROLLERS: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT})

Item = TypeVar("Item")
Result = TypeVar("Result")


class ItemResult(NamedTuple, Generic[Item, Result]):
    """What an answer says of one item.  `error`: its code, 0 for none; only then `result` counts."""

    item: Item
    error: int
    message: str | None
    result: Result


@dataclass(frozen=True, kw_only=True)
class Question(Generic[Item, Result]):
    """A request about many items, and how to read its answer."""

    request: Callable[[Sequence[Item]], Any]
    read: Callable[[Any, Sequence[Item]], Iterable[ItemResult[Item, Result]]]
    """Reads an answer to a request about these items."""
    refused: Callable[[Item], str]
    """The beginning of the message of the error for an item; the reason of the broker follows it."""
    final: frozenset[ErrorCode] = frozenset()
    """Error codes that are retriable by themselves, but here refuse the item."""
    once: bool = False
    """Whether a second try may be refused because of what the first one did: the message of the error says so then."""
    least: int = 0
    """The oldest version of the request that will do."""
    most: int | None = None


async def ask(
    cluster: Cluster,
    items: Iterable[Item],
    route: Route[Item],
    question: Question[Item, Result],
    deadline: Deadline,
) -> dict[Item, Result]:
    """The answer for each item, in their order.

    Raises BrokerError if there is one item and it is refused, PartlyRefusedError if some of several are,
    TimedOutError, UnsupportedByBrokerError.
    """
    asked = list(dict.fromkeys(items))
    cluster.check_open()
    asking = _Asking(cluster, asked, route, question)
    while asking.waiting:
        because = await asking.go_round(deadline)
        if asking.waiting:
            await deadline.pause(because)
    if asking.refused:
        raise refusal(asking.refused, asking.done)
    return {item: asking.done[item] for item in asked}


async def ask_once(
    cluster: Cluster, item: Item, route: Route[Item], question: Question[Item, Result], deadline: Deadline
) -> object:
    """Ask about one item, once: None if that succeeded, else why it must be asked again.  Raises BrokerError."""
    cluster.check_open()
    asking = _Asking(cluster, [item], route, question)
    because = await asking.go_round(deadline)
    if asking.refused:
        raise refusal(asking.refused, asking.done)
    return because if asking.waiting else None


def refusal(refused: Mapping[Any, BrokerError], done: Mapping[Any, object]) -> BrokerError:
    """The error to raise: that of the item if it was the only one, else a PartlyRefusedError."""
    first = next(iter(refused.values()))
    return first if len(refused) == 1 and not done else PartlyRefusedError(refused, done)


async def ask_each_broker(
    cluster: Cluster, question: Question[int, Result], deadline: Deadline, brokers: Iterable[int] | None = None
) -> dict[int, Result]:
    """The answer of each broker, by its id; `brokers`: only of these.  One that goes meanwhile is not waited for.

    Raises as `ask` does.
    """
    if brokers is not None:
        return await ask(cluster, brokers, Brokers(cluster), question, deadline)
    await known_nodes(cluster, deadline)
    asking = _Asking(cluster, sorted(cluster.nodes), Brokers(cluster), question)
    while asking.waiting:
        because = await asking.go_round(deadline)
        for node in [node for node, error in asking.refused.items() if error.code == ErrorCode.BROKER_NOT_AVAILABLE]:
            del asking.refused[node]
        if asking.waiting:
            await deadline.pause(because)
    if asking.refused:
        raise refusal(asking.refused, asking.done)
    return dict(sorted(asking.done.items()))


async def known_nodes(cluster: Cluster, deadline: Deadline) -> Any:
    """Ask which brokers there are; the answer to Metadata without topics.  Raises TimedOutError."""
    return await metadata(cluster, [], deadline)


async def metadata(cluster: Cluster, topics: Sequence[str] | None, deadline: Deadline) -> Any:
    """The Metadata of topics (None: of all), from whichever broker answers first.  Raises TimedOutError."""
    while True:
        try:
            return await deadline.within(cluster.refresh(topics))
        except (ConnectionLostError, UnreachableError) as error:
            await deadline.pause(error)


class _Asking(Generic[Item, Result]):
    """A question on its way: the items that wait for an answer, those that have one, those that were refused."""

    def __init__(
        self, cluster: Cluster, items: Sequence[Item], route: Route[Item], question: Question[Item, Result]
    ) -> None:
        self._cluster = cluster
        self._route = route
        self._question = question
        self.waiting = dict.fromkeys(items)
        self.done: dict[Item, Result] = {}
        self.refused: dict[Item, BrokerError] = {}
        self._unanswered: dict[Item, None] = {}
        """The items that were asked about without an answer: the request may have been carried out."""

    async def go_round(self, deadline: Deadline) -> object:
        """Ask once about every item that waits for an answer; the reason why some of them still do."""
        because: object = "not everything was answered"
        try:
            places = await deadline.within(self._route.places(list(self.waiting), deadline))
        except (ConnectionLostError, UnreachableError) as lost:
            return lost
        by_node: dict[int, list[Item]] = {}
        for item, place in places.items():
            if isinstance(place, BrokerError):
                self._refuse(item, place)
            elif isinstance(place, str):
                because = place
                self._route.forget(item)
            else:
                by_node.setdefault(place, []).append(item)
        answers = await _at_once([self._ask(node, asked, deadline) for node, asked in by_node.items()])
        for asked, answer in zip(by_node.values(), answers, strict=True):
            if isinstance(answer, ConnectionLostError | UnreachableError):
                because = answer
                for item in asked:
                    self._unanswered[item] = None
                    self._route.forget(item)
            else:
                because = self._take(answer, asked) or because
        return because

    async def _ask(self, node: int, asked: Sequence[Item], deadline: Deadline) -> Any:
        question = self._question
        request = question.request(asked)
        try:
            return await deadline.within(self._cluster.call(node, request, least=question.least, most=question.most))
        except (ConnectionLostError, UnreachableError) as lost:
            return lost

    def _take(self, answer: Any, asked: Sequence[Item]) -> str | None:
        """Take results and refusals from an answer; why some of its items must be asked again, None if none must."""
        because = None
        for item, code, message, result in self._question.read(answer, asked):
            error = ErrorCode(code)
            if item not in self.waiting:
                continue
            if not error:
                self.done[item] = result
                del self.waiting[item]
            elif error.retriable and error not in self._question.final:
                because = f"{error.name} for {item}"
                self._route.forget(item)
            else:
                self._refuse(item, BrokerError(code, self._sentence(item, message)))
        return because

    def _sentence(self, item: Item, message: str | None) -> str:
        sentence = self._question.refused(item) + (f": {message}" if message else "")
        if self._question.once and item in self._unanswered:
            sentence += " (an answer to this call was lost before: it may be what this very call has done)"
        return sentence

    def _refuse(self, item: Item, error: BrokerError) -> None:
        self.refused[item] = error
        del self.waiting[item]


async def _at_once(calls: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """The results of these calls; a lost or refused connection is one.  Raises any other error, once all have ended."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, ConnectionLostError | UnreachableError):
            raise each
    return found
