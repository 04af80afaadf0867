"""`fencepost serve`: run a broker until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import errno
import gc
import ipaddress
import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fencepost.broker import BadSetting, Broker
from fencepost.broker.metadata.settings import IN_OTHER_UNITS
from fencepost.broker.node import Endpoint
from fencepost.cli import Refused
from fencepost.cli.ends_apart import event_loop
from fencepost.cli.files import properties_in
from fencepost.cli.freed_memory import FreedMemory, freed_memory
from fencepost.cli.garbage import GarbageCollection
from fencepost.cli.standard_output import say
from fencepost.cli.stop_signals import StopSignals
from fencepost.log.data_directory import check_free, is_gone
from fencepost.log.descriptors import LEAST, raise_limit
from fencepost.log.disk import LocalDisk
from fencepost.log.storage import DirectoryUnusable
from fencepost.node_log import get_logger

if TYPE_CHECKING:
    from fencepost.cli.exporter import Exporter

logger = get_logger("fencepost")

#: setting of Apache Kafka -> the option that says the same here
OPTIONS: Final = {
    "listeners": "--listen",
    "advertised.listeners": "--advertise",
    "log.dir": "--data",
    "log.dirs": "--data",
}
#: how settings of Apache Kafka begin that are about TLS, SASL and rights
OF_SECURITY: Final = ("ssl.", "sasl.", "security.", "listener.security.", "authorizer.", "super.users")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `fencepost serve`."""
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:9092",
        help="where clients connect, an address of IPv6 in brackets; port 0 takes a free one (default %(default)s)",
    )
    parser.add_argument(
        "--advertise",
        metavar="HOST:PORT",
        help="where clients are told that they find the node: behind a proxy, in a container, with --listen "
        "0.0.0.0:9092; port 0 is that of --listen (default: the address of --listen)",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        required=True,
        help="the directory of this node, made if it is not there; it keeps everything in it (required)",
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a broker setting by Apache Kafka's name, as often as needed; docs/reference/settings.md has their "
        "defaults and ranges",
    )
    parser.add_argument(
        "--settings",
        metavar="FILE",
        help="a properties file with broker settings, as Apache Kafka's server.properties; what is given by --set goes "
        "before (default: none)",
    )
    parser.add_argument(
        "--flush",
        choices=("durable", "os"),
        default="durable",
        help="durable: what is acknowledged is on the disk; os: it is with the operating system, which writes when it "
        "likes (default %(default)s)",
    )
    parser.add_argument(
        "--recover-from-segments",
        action="store_true",
        help="start although the commit log is damaged, with what the segment files hold; see docs/operating.md "
        "(default: do not start)",
    )
    parser.add_argument(
        "--rebuild-metadata",
        action="store_true",
        help="make a lost metadata.sqlite again from the partitions, once; see docs/operating.md "
        "(default: do not start)",
    )
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="answer Prometheus there (GET /metrics); port 0 takes a free one; needs fencepost[metrics] (default: "
        "nowhere)",
    )


def run(options: argparse.Namespace) -> int:
    """Run a node; exit code 0 after a clean stop, even before it was ready, 1 if the disk fails.  Raises Refused."""
    signals = StopSignals()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    limit = raise_limit()
    if 0 <= limit < LEAST:
        raise Refused(
            f"this process may have {limit} files open at once and a node needs {LEAST}, better thousands: "
            f"raise the hard limit (ulimit -Hn, or LimitNOFILE= in a systemd unit)"
        )
    get_logger("asyncio")  # its lines are limited too
    memory = freed_memory(os.environ)
    if not options.data:
        raise Refused("--data is empty: name the directory of this node")
    listen = _address("--listen", options.listen)
    advertised = _address("--advertise", options.advertise) if options.advertise is not None else None
    metrics = _address("--metrics", options.metrics) if options.metrics is not None else None
    if listen == metrics and listen.port:
        raise Refused(f"--listen and --metrics are both {listen}: choose another port for one of them")
    settings = assigned(options.set)
    of_file = _settings_in(options.settings) if options.settings is not None else {}
    try:
        broker = Broker(
            data=options.data,
            listen=str(listen),
            advertised=str(advertised) if advertised else None,
            settings=merged(of_file, settings),
            flush=options.flush,
            recover_from_segments=options.recover_from_segments,
            rebuild_metadata=options.rebuild_metadata,
            told_to_stop=signals.have_come,
        )
    except BadSetting as bad:
        told = _with_option(str(bad))
        is_set = options.settings is None or told.startswith(tuple(f"{name}{end}" for name in settings for end in " ="))
        raise Refused(("--set " if is_set else f"--settings {options.settings}: ") + told) from None
    runner = asyncio.Runner(loop_factory=loop_beside_threads)
    try:
        return runner.run(_serve(broker, options, metrics, memory, signals))
    finally:
        with suppress(RuntimeError):  # no thread can be started that waits for the other threads: the process does so
            runner.close()
        signals.ignore()


def loop_beside_threads() -> asyncio.AbstractEventLoop:
    """An event loop that leaves one core to itself, where there are two, by the number of its threads.

    Python has four more than cores.  What they unfold for many clients at once would keep all others waiting.
    """
    loop = event_loop()
    loop.set_default_executor(ThreadPoolExecutor(max((os.cpu_count() or 1) - 1, 1)))
    return loop


def _address(option: str, given: str) -> Endpoint:
    try:
        return Endpoint.of(given)
    except ValueError as wrong:
        raise Refused(f"{option} {wrong}") from None


def _is_any_address(host: str) -> bool:
    """Whether a host is an address to listen on, as 0.0.0.0, and none to connect to."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def assigned(given: Sequence[str]) -> dict[str, str]:
    """The settings of `--set NAME=VALUE`, given one by one; the last of several values counts.  Raises Refused."""
    settings = {}
    for assignment in given:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise Refused(f"--set {assignment}: give a setting and its value, as in num.partitions=3")
        settings[name.strip()] = value.strip()
    return settings


def merged(of_file: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The settings of the file and of `given`; of one that is in both, in whichever unit, the given one."""
    same = {name: finest for name, finest, _ in IN_OTHER_UNITS}
    told = {same.get(name, name) for name in given}
    return {**{name: value for name, value in of_file.items() if same.get(name, name) not in told}, **given}


def _settings_in(path: str) -> dict[str, str]:
    """The settings in the file of --settings.  Raises Refused."""
    if not path:
        raise Refused("--settings is empty: name a file")
    return properties_in("--settings", path)


def _with_option(refusal: str) -> str:
    """A refusal of a setting; for one of Apache Kafka's that is an option here, or another's task, it says so."""
    name = refusal.split()[0]
    if name.startswith(OF_SECURITY):
        return f"{name} is not a broker setting: a node has neither TLS nor SASL nor access lists; see docs/security.md"
    return f"{name} is not a broker setting; give {OPTIONS[name]}" if name in OPTIONS else refusal


def _exporter(metrics: Endpoint, data: Path) -> Exporter:
    """The exporter, listening already before the node begins.  Raises Refused if it cannot, or `data` is in use."""
    try:
        from fencepost.cli.exporter import Exporter
    except ImportError as missing:
        raise Refused(f"--metrics: {missing.name} is not installed; install fencepost[metrics]") from None
    try:
        return Exporter(metrics.host, metrics.port)
    except RuntimeError:
        raise Refused(
            "--metrics: no thread can be started; raise the limit of threads (ulimit -u, or TasksMax= in a systemd "
            "unit), or leave it out"
        ) from None
    except OSError as error:
        try:
            check_free(LocalDisk(), data)  # the same node started a second time has its metrics' address in use, too
        except DirectoryUnusable as unusable:
            raise Refused(str(unusable)) from None
        raise _cannot_listen("--metrics", str(metrics), error) from None


async def _closed(exporter: Exporter) -> None:
    try:
        await asyncio.to_thread(exporter.close)
    except RuntimeError:  # no thread can be started that waits for its answers: they end with the process
        logger.warning("readers of metrics may not get the rest of their answers: no thread can be started")


def _cannot_listen(option: str, address: str, error: OSError) -> Refused:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return Refused(f"cannot listen on {address}: {error.strerror}; raise the limit of open files (ulimit -Hn)")
    return Refused(f"cannot listen on {address}: {error.strerror or error}; choose another {option}")


async def _serve(
    broker: Broker,
    options: argparse.Namespace,
    metrics: Endpoint | None,
    memory: FreedMemory | None,
    signals: StopSignals,
) -> int:
    exporter = _exporter(metrics, Path(options.data)) if metrics else None
    try:
        return await _run(broker, options, exporter, memory, signals)
    finally:
        if exporter is not None:
            await _closed(exporter)


async def _run(
    broker: Broker,
    options: argparse.Namespace,
    exporter: Exporter | None,
    memory: FreedMemory | None,
    signals: StopSignals,
) -> int:
    # A collection of what is being loaded would look at all of it, again and again, while others wait; little of it is
    # garbage.
    gc.collect()
    gc.disable()
    starting = asyncio.ensure_future(broker.start())
    signals.when_one_comes(starting.cancel)
    try:
        await starting
    except asyncio.CancelledError:
        begins = "begins again with what this one was at" if broker.interruption.has_cut_off else "begins nothing again"
        logger.warning("told to stop before it was ready: nothing is lost, the next start %s", begins)
        return _exit_code(broker, options.data)
    except DirectoryUnusable as unusable:
        raise Refused(str(unusable)) from None
    except OSError as error:
        raise _cannot_listen("--listen", options.listen, error) from None
    if exporter is not None:
        exporter.tell_of(broker)
    garbage = GarbageCollection(
        lambda: broker.node.counters.requests.total(),
        lambda: any(connection.under_way for connection in broker.node.connections),
    )
    garbage.start()
    if memory is not None:
        memory.start()
    try:
        return await _until_signalled(broker, options.data, exporter, signals)
    finally:
        garbage.stop()
        if memory is not None:
            memory.stop()


async def _until_signalled(broker: Broker, data: str, exporter: Exporter | None, signals: StopSignals) -> int:
    signalled: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    signals.when_one_comes(signalled.cancel)
    measured = f", metrics on http://{Endpoint(exporter.host, exporter.port)}/metrics" if exporter is not None else ""
    where = data if data.isprintable() else repr(data)
    unsaid = say(f"fencepost is ready on {broker.bootstrap_servers}, data in {where}{measured}", must_be_read=False)
    if unsaid is not None:
        logger.warning("nobody is told that the node is ready, and it is: %s", unsaid.strerror)
    shown = broker.node.endpoint
    if _is_any_address(shown.host):
        logger.warning(
            "clients are told to find the node on %s, where those on other machines find themselves: give --advertise",
            shown,
        )
    assert broker.failed is not None
    waiting: list[asyncio.Future[Any]] = [signalled, broker.failed]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if broker.failed.done():
        # Memory is ahead of the disk now, so nothing more may be answered.
        broker.crash()
    else:
        await broker.stop()
    return _exit_code(broker, data)


def _exit_code(broker: Broker, data: str) -> int:
    """The exit code of a node that has ended: 1 if the disk has failed, which is logged, else 0."""
    if broker.failed is None or not broker.failed.done():
        return 0
    what_to_do = "nothing acknowledged is lost, start again when the disk is well"
    if broker.node.storage.flush_to_os:
        what_to_do = "with --flush=os what was acknowledged last may be lost, start again when the disk is well"
    if is_gone(LocalDisk(), Path(data)):
        what_to_do = "put the whole directory back where it was, with what was acknowledged, before you start again"
    logger.critical("stopped: %s; %s", broker.failed.result(), what_to_do)
    return 1
