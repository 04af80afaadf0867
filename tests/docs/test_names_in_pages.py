"""What the pages call by its name is there under that name: options, settings, parameters, errors."""

from __future__ import annotations

import argparse
import ast
import asyncio.selector_events
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.reading import GUIDES, ROOT, lines, name_of, of_guides

from fencepost import broker, cli, client, spark
from fencepost.broker.metadata.settings import BROKER, IN_OTHER_UNITS, INERT_TOPIC, TOPIC
from fencepost.cli.properties import NAMES
from fencepost.client import blocking
from fencepost.client.security import SecurityOptions
from fencepost.protocol.errors import ErrorCode

_COMMAND = re.compile(r"^(?:\.venv/bin/|ExecStart=/\S+/)?fencepost ((?:" + "|".join(cli.COMMANDS) + r")\b.*)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")

#: options of the commands of others, each with the command
FOREIGN_OPTIONS = {
    "--force": "kafka-transactions.sh",
    "--describe": "kafka-consumer-groups",
    "--group": "kafka-consumer-groups",
    "--py-files": "spark-submit",
    "--archives": "spark-submit",
    "--conf": "spark-submit",
    "--no-deps": "pip",
    "--wheel-dir": "pip",
}


def parsers(command: str) -> list[argparse.ArgumentParser]:
    """Of a command, and of each of its actions."""
    found = [subcommands(cli.parser([command]))[command]]
    return found + list(subcommands(found[0]).values())


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return {
        name: each
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, each in action.choices.items()
    }


def options(command: str) -> set[str]:
    return {
        option
        for parser in parsers(command)
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and option != "--help"
    }


KNOWN_OPTIONS = {"--version", "--help"}.union(*map(options, cli.COMMANDS))


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_a_line_with_a_command_may_be_copied(page: Path) -> None:
    shown = [found[1] for line in lines(page) if (found := _COMMAND.match(line))]
    assert shown or page.name not in ("README.md", "admin.md", "operating.md", "proof.md")
    for command in shown:
        words = shlex.split(command.partition(" > ")[0], comments=True)
        assert cli.parser(words).parse_known_args(words)[1] == [], command


def test_a_command_that_a_sentence_shows_takes_its_options() -> None:
    shown = {(page, found[1]) for page, span in of_guides() if (found := _COMMAND.match(span))}
    wrong = {
        (page, text) for page, text in shown if not set(_OPTION.findall(text)) <= {*options(text.split()[0]), "--help"}
    }
    assert len(shown) > 5
    assert wrong == set()


def test_an_option_that_a_sentence_names_is_one_of_a_command() -> None:
    named = {(page, option) for page, span in of_guides() for option in _OPTION.findall(span)}
    assert len(named) > 15
    assert sorted((page, option) for page, option in named if option not in KNOWN_OPTIONS | set(FOREIGN_OPTIONS)) == []


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_option_of_a_command_is_on_a_page(command: str) -> None:
    """`--help` says what it is; a page that shows the command says when one wants it."""
    shown = [page.read_text() for page in GUIDES]
    text = " ".join(page for page in shown if f"fencepost {command}" in page)
    assert options(command) - set(_OPTION.findall(text)) == set()


#: settings of Apache Kafka's brokers and of librdkafka that the pages tell of, and this node does not have
FOREIGN_SETTINGS = {
    "advertised.listeners",
    "check.crcs",
    "connections.max.reauth.ms",
    "group.consumer.assignors",
    "group.consumer.heartbeat.interval.ms",
    "group.consumer.migration.policy",
    "group.consumer.session.timeout.ms",
    "log.dirs",
    "unstable.api.versions.enable",
}
_SETTING = re.compile(r"([a-z]+(?:\.[a-z]+){1,})(?:=(\S+))?")
_NO_SETTINGS = ("fencepost.", "kafka.", "spark.", "record.", "transaction.committed", "transaction.send")
_FILES = (".py", ".md", ".sh", ".zip", ".sqlite", ".properties", ".metadata", ".jsonl", ".html", ".json")


def settings() -> Iterator[tuple[str, str, str | None]]:
    """(page, setting, the value that is shown or None)."""
    for page, span in of_guides():
        found = _SETTING.fullmatch(span.removeprefix("--set "))
        if found and not span.endswith(_FILES) and not span.startswith(_NO_SETTINGS):
            yield page, found[1], found[2]


def test_a_setting_that_a_page_names_is_there() -> None:
    ours = {*BROKER, *TOPIC, *INERT_TOPIC, *(name for name, _, _ in IN_OTHER_UNITS)}
    named = {(page, name) for page, name, _ in settings()}
    known = ours | FOREIGN_SETTINGS | {"transaction.version"} | {*NAMES.values(), "sasl.jaas.config"}
    assert len(named) > 50
    assert sorted((page, name) for page, name in named if name not in known) == []
    assert FOREIGN_SETTINGS & ours == set()


def test_a_value_that_a_page_gives_a_setting_can_be_had() -> None:
    for _, name, value in settings():
        if value is not None and name not in FOREIGN_SETTINGS:
            (TOPIC.get(name) or BROKER[name]).parse(name, value)


_DEFAULT = re.compile(r"`([a-z.]+)` \((-?[0-9]+)\b[^)]*\)|`([a-z.]+)` (?:records|bytes) \(([0-9]+) unless")


def test_a_default_that_a_page_tells_is_the_one_that_there_is() -> None:
    told = [
        (name_of(page), one or other, int(default or unless))
        for page in GUIDES
        for one, default, other, unless in _DEFAULT.findall(page.read_text())
        if (one or other) in BROKER
    ]
    assert len(told) > 8
    assert [each for each in told if BROKER[each[1]].default != each[2]] == []


#: modules whose names a user imports
PUBLIC = (client, blocking, spark, broker)
#: names with an underscore that are somebody else's, or values
FOREIGN_NAMES = {
    "from_avro",
    "to_avro",
    "stock_clients",
    "read_committed",
    "read_uncommitted",
    "offset_order",
    "exactly_once_v2",
}


def parameters(called: object) -> set[str]:
    """Names by which something may be told; of TLS and SASL too, if it takes them."""
    try:
        found = inspect.signature(called).parameters  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return set()
    return set(found) | (set(SecurityOptions.__annotations__) if "security" in found else set())


def known_names() -> dict[str, set[str]]:
    """Everything public, by its last name: functions, classes, what these have, each with its parameters."""
    found: dict[str, set[str]] = {}
    for module in PUBLIC:
        for name in module.__all__:
            public = getattr(module, name)
            found.setdefault(name, set()).update(parameters(public))
            if inspect.isclass(public):
                for inner in {*dir(public), *getattr(public, "__annotations__", ())}:
                    found.setdefault(inner, set()).update(parameters(getattr(public, inner, None)))
    return found


KNOWN = known_names()
PARAMETERS = set().union(*KNOWN.values())


def test_a_parameter_or_method_that_a_page_names_is_there() -> None:
    named = [(page, span) for page, span in of_guides() if re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", span)]
    assert len(named) > 40
    assert sorted({each for each in named if each[1] not in KNOWN.keys() | PARAMETERS | FOREIGN_NAMES}) == []


_SHOWN_CALL = re.compile(r"(?:\w+\.)*\w+\(.*\)")


def test_a_call_that_a_sentence_shows_takes_what_is_shown() -> None:
    """Of what is somebody else's nothing is said."""
    shown = [(page, ast.parse(span, mode="eval").body) for page, span in of_guides() if _SHOWN_CALL.fullmatch(span)]
    calls = [(page, call) for page, body in shown for call in ast.walk(body) if isinstance(call, ast.Call)]
    of_ours = [(page, call) for page, call in calls if called(call) in KNOWN]
    assert len(of_ours) > 8
    assert [(page, ast.unparse(call)) for page, call in of_ours if not takes(call)] == []


def called(call: ast.Call) -> str:
    """The last name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def takes(call: ast.Call) -> bool:
    return {keyword.arg for keyword in call.keywords} <= KNOWN[called(call)]


def test_a_setting_of_a_client_that_a_sentence_shows_can_be_given() -> None:
    """As `auto_offset_reset="error"`."""
    shown = [
        (page, match[1]) for page, span in of_guides() if (match := re.fullmatch(r'([a-z_]+)=(".*"|True|False)', span))
    ]
    assert len(shown) >= 4
    assert [each for each in shown if each[1] not in PARAMETERS] == []


def test_an_error_that_a_page_names_is_there() -> None:
    named = [(page, name) for page, span in of_guides() for name in re.findall(r"\b[A-Z][a-zA-Z]+Error\b", span)]
    named += [
        (name_of(page), name) for page in GUIDES for name in re.findall(r"\b[A-Z][a-z]\w+Error\b", page.read_text())
    ]
    theirs = {"OSError", "Py4JNetworkError", "ValueError", "TypeError"}
    assert len(named) > 20
    assert sorted({each for each in named if each[1] not in KNOWN.keys() | theirs}) == []


def test_an_error_code_that_a_page_names_is_one_of_the_protocol() -> None:
    """Words of capitals with an underscore are error codes, but for names of environments, of topics and Spark's."""
    others = {"SASL_PLAINTEXT", "SASL_SSL", "PREPARE_COMMIT", "PREPARE_ABORT", "DYNAMIC_TOPIC_CONFIG"}
    others.add("STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY")
    environment = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "SO_KEEPALIVE"}
    named = {
        (name_of(page), code)
        for page in GUIDES
        for code in re.findall(r"\b[A-Z]+(?:_[A-Z]*)+\b", page.read_text())
        if not code.startswith(("FENCEPOST_", "KAFKA_PASSWORD", "KAFKA_TOKEN"))
    }
    known = set(ErrorCode.__members__) | others | environment
    assert len(named) > 15
    assert sorted(each for each in named if each[1] not in known) == []


_COMMANDS_OF_OTHERS = ("python ", "make ", "truncate ", "kafka-", "sqlite3 ", "spark", "ulimit ")


def test_a_sentence_that_a_page_quotes_is_what_the_code_says() -> None:
    """Of the log, or of what a command prints; one is asyncio's."""
    sources = [*(ROOT / "src").rglob("*.py"), Path(inspect.getfile(asyncio.selector_events))]
    said = re.sub(r'"\s*f?"', "", "\n".join(source.read_text() for source in sources))
    quoted = {
        (page, span)
        for page, span in of_guides()
        if re.fullmatch(r"[a-z][\w.()]*( [\w()]+){2,}:?", span) and not span.startswith(_COMMANDS_OF_OTHERS)
    }
    quoted |= {
        (name_of(page), sentence)
        for page in GUIDES
        for line in lines(page)
        for sentence in re.findall(r'# .*"(.+)"', line)
    }
    assert len(quoted) >= 5
    assert {each for each in quoted if each[1] not in said} == set()


_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_PARAMETER_DEFAULT = re.compile(rf"`([a-z_]+)` \((a|[0-9]+) ({'|'.join(_UNITS)})s?\b")


def defaults_of_parameters() -> dict[str, set[object]]:
    """Parameter -> its defaults wherever something public has it; classes and their methods."""
    found: dict[str, set[object]] = {}
    for module in PUBLIC:
        for public in map(module.__dict__.get, module.__all__):
            for called in (public, *(vars(public).values() if inspect.isclass(public) else ())):
                if callable(called) and parameters(called):
                    for name, parameter in inspect.signature(called).parameters.items():
                        if isinstance(parameter.default, int | float):
                            found.setdefault(name, set()).add(parameter.default)
    return found


def test_a_default_of_a_parameter_that_a_page_tells_is_the_one_that_there_is() -> None:
    """As `retry_timeout_ms` (5 minutes)."""
    known = defaults_of_parameters()
    told = [
        (name_of(page), name, (1 if number == "a" else int(number)) * _UNITS[unit])
        for page in GUIDES
        for name, number, unit in _PARAMETER_DEFAULT.findall(" ".join(page.read_text().split()))
        if not name.startswith("log")
    ]
    assert len(told) >= 5
    assert [each for each in told if each[2] not in known.get(each[1], set())] == []
