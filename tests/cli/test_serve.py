"""`fencepost serve` as a person meets it: a ready line, a clean stop, and one clear sentence for what it cannot use."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.processes import begun

from fencepost import __version__
from fencepost.broker import Broker, running_broker
from fencepost.cli import main
from fencepost.cli.serve import assigned, merged
from fencepost.client.blocking import Admin, Consumer, Producer
from fencepost.client.errors import ClientError
from fencepost.compiled.in_use import IN_USE
from fencepost.log.disk import LocalDisk
from fencepost.protocol.types import TopicPartition


def serve(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fencepost", "serve", *arguments]
    return begun(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))


def refused(*arguments: str) -> str:
    """The one sentence on standard error of a broker that does not start."""
    process = serve(*arguments)
    printed, told = process.communicate(timeout=20)
    assert process.returncode == 2, told
    assert printed == ""
    assert len(told.strip().splitlines()) == 1, told
    return told


def test_it_says_when_it_is_ready_and_stops_cleanly_when_told(tmp_path: Path) -> None:
    process = serve("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    assert process.stdout is not None
    line = process.stdout.readline()
    address = line.split()[4].rstrip(",")
    host, port = address.split(":")
    socket.create_connection((host, int(port)), 5).close()
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=20)
    assert process.returncode == 0
    assert told == ""


def test_a_node_whose_directory_was_removed_says_so_when_it_is_stopped(tmp_path: Path) -> None:
    process = serve("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    assert process.stdout is not None
    address = process.stdout.readline().split()[4].rstrip(",")
    shutil.rmtree(tmp_path / "data")
    with Admin(address, max_block_ms=2000) as admin, pytest.raises(ClientError):
        admin.create_topic("t", partitions=1)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=20)
    assert process.returncode == 1
    (said,) = [line for line in told.splitlines() if "stopped: " in line]
    assert "put the whole directory back where it was" in said and "nothing acknowledged is lost" not in said
    assert "Traceback" not in told, told


def test_a_node_goes_on_where_its_ready_line_cannot_be_written(tmp_path: Path) -> None:
    address = ("127.0.0.1", free_port())
    listen = f"127.0.0.1:{address[1]}"
    command = [sys.executable, "-m", "fencepost", "serve", "--listen", listen, "--data", str(tmp_path / "data")]
    with open("/dev/full", "w") as full:
        process = begun(subprocess.Popen(command, stdout=full, stderr=subprocess.PIPE, text=True))
    assert process.stderr is not None
    assert "No space left on device" in process.stderr.readline()
    socket.create_connection(address, 5).close()
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=20)
    assert (process.returncode, told) == (0, "")


@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are UTF-8")
def test_a_directory_may_have_any_name(tmp_path: Path) -> None:
    named = os.fsencode(tmp_path) + b"/\xff\n"
    command = ["-m", "fencepost", "serve", "--listen", "127.0.0.1:0", "--data", os.fsdecode(named)]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    process = begun(
        subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
    )
    assert process.stdout is not None
    assert "ready" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=20)
    assert (process.returncode, told) == (0, "")


@pytest.mark.parametrize(("listen", "family"), [("127.0.0.1", socket.AF_INET), ("[::1]", socket.AF_INET6)])
def test_it_listens_on_one_address_and_tells_another_one(
    tmp_path: Path, listen: str, family: socket.AddressFamily
) -> None:
    try:
        socket.create_server((listen.strip("[]"), 0), family=family).close()
    except OSError:
        pytest.skip(f"this machine does not have the address {listen}")
    data = str(tmp_path / "data")
    process = serve("--listen", f"{listen}:0", "--advertise", "[2001:db8::1]:9092", "--data", data)
    assert process.stdout is not None
    address = process.stdout.readline().split()[4].rstrip(",")
    assert address.startswith(f"{listen}:")

    with Admin(bootstrap_servers=address) as admin:
        told = admin.describe_cluster()
    assert [(broker.host, broker.port) for broker in told.brokers] == [("2001:db8::1", 9092)]
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20)[1] == ""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        (("--listen", "0.0.0.0:0"), "0.0.0.0"),
        (("--listen", "127.0.0.1:0", "--advertise", "[::]:0"), "[::]"),
        (("--listen", "0.0.0.0:0", "--advertise", "node.example:9092"), None),
    ],
)
def test_who_tells_clients_an_address_that_is_none_is_told(
    tmp_path: Path, arguments: tuple[str, ...], address: str | None
) -> None:
    """Apache Kafka does not start so.  Clients on this machine find the node there, others find themselves."""
    process = serve(*arguments, "--data", str(tmp_path / "data"))
    assert process.stdout is not None
    assert "ready" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=20)
    assert process.returncode == 0
    assert told == "" if address is None else f"find the node on {address}:" in told and "--advertise" in told


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"fencepost {__version__} ({IN_USE.why})\n"


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        told = refused("--listen", address, "--data", str(tmp_path / "data"))
    assert address in told
    assert "another --listen" in told


def test_a_port_in_use_for_metrics_is_named_before_anything_is_written(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        told = refused("--listen", "127.0.0.1:0", "--data", str(data), "--metrics", address)
        assert address in told
        assert "another --metrics" in told
        assert not data.exists()
        data.mkdir()
        release = LocalDisk().lock(data / ".lock")
        told = refused("--listen", "127.0.0.1:0", "--data", str(data), "--metrics", address)
        release()
    assert "used by another running broker" in told, "the same node started a second time"
    assert [each.name for each in data.iterdir()] == [".lock"]


def test_metrics_say_what_they_need_where_it_is_not_installed(tmp_path: Path) -> None:
    without = "import sys; sys.modules['prometheus_client'] = None; from fencepost.cli import main; sys.exit(main())"
    arguments = ("serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--metrics", "127.0.0.1:0")
    done = subprocess.run([sys.executable, "-c", without, *arguments], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout) == (2, "")
    assert "install fencepost[metrics]" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_directory_of_a_live_broker_is_not_shared(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    first = serve("--listen", "127.0.0.1:0", "--data", data)
    assert first.stdout is not None
    first.stdout.readline()
    told = refused("--listen", "127.0.0.1:0", "--data", data)
    first.terminate()
    first.communicate(timeout=20)
    assert data in told
    assert "another running broker" in told


def test_a_directory_of_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "fencepost.version").write_text("99\n")
    told = refused("--listen", "127.0.0.1:0", "--data", str(tmp_path))
    assert "99" in told
    assert (tmp_path / "fencepost.version").read_text() == "99\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    told = refused("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    tmp_path.chmod(0o700)
    assert str(tmp_path) in told


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert str(tmp_path / "data") in refused("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))


def test_damaged_metadata_is_named(tmp_path: Path) -> None:
    (tmp_path / "metadata.sqlite").write_bytes(b"no database at all" * 100)
    assert "metadata.sqlite" in refused("--listen", "127.0.0.1:0", "--data", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--set", "transaction.max.timeout=1"), "did you mean transaction.max.timeout.ms?"),
        (("--set", "num.partitions=many"), "must be a whole number"),
        (("--set", "num.partitions=0"), "between 1 and"),
        (("--set", "num.partitions"), "a setting and its value"),
        (("--set", "num partitions=3"), "--set num partitions is not a broker setting"),
        (("--set", "=3"), "--set  is not a broker setting"),
        (("--set", "advertised.listeners=a:1"), "--set advertised.listeners is not a broker setting; give --advertise"),
        (("--settings", ""), "--settings is empty"),
        (("--listen", "9092"), "--listen 9092: give a host and a port"),
        (("--listen", "[::1]"), "--listen [::1]: give a host and a port"),
        (("--advertise", "node.example"), "--advertise node.example: give a host and a port"),
        (("--metrics", "9404"), "--metrics 9404: give a host and a port"),
        (("--listen", "x" * 64 + ":0"), ":0: give a host and a port"),
        (("--listen", "127.0.0.1:" + "9" * 5000), "give a host and a port"),
        (("--advertise", "a b:1"), "--advertise a b:1: give a host and a port"),
        (("--metrics", "a..b:0"), "--metrics a..b:0: give a host and a port"),
        (("--listen", "127.0.0.1:0", "--advertise", ""), "--advertise : give a host and a port"),
        (
            ("--listen", "localhost:9404", "--metrics", "localhost:9404"),
            "--listen and --metrics are both localhost:9404",
        ),
        (("--listen", "127.0.0.1:0", "--metrics", ""), "--metrics : give a host and a port"),
    ],
)
def test_what_cannot_be_used_is_named_with_what_to_do(
    tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    given = ("--data", str(tmp_path / "data"), *arguments)
    assert expected in refused(*given)


def test_blanks_around_a_setting_and_its_value_do_not_count() -> None:
    assert assigned([" num.partitions = 3 ", "a=b=c", "a= d"]) == {"num.partitions": "3", "a": "d"}


@pytest.mark.parametrize("given", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
def test_what_is_set_goes_before_the_same_setting_of_a_file_in_another_unit(given: str) -> None:
    """Records that are to be kept for a week must not be gone after the second that a file says."""
    of_file = {"log.retention.ms": "1", "log.retention.minutes": "2", "log.roll.ms": "4", "num.partitions": "3"}
    assert merged(of_file, {given: "168"}) == {given: "168", "log.roll.ms": "4", "num.partitions": "3"}
    assert merged(of_file, {}) == of_file


def test_settings_of_a_file_count_but_for_those_that_are_set(tmp_path: Path) -> None:
    file = tmp_path / "node.properties"
    file.write_text(
        "\ufeff# a comment\nnum.partitions = 3\n\nlog.retention.hours=1\ntransaction.max.timeout.ms: 1000\n"
    )
    process = serve(
        *("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")),
        *("--set", "num.partitions=5", "--settings", str(file)),
    )
    assert process.stdout is not None
    address = process.stdout.readline().split()[4].rstrip(",")
    with Admin(bootstrap_servers=address) as admin:
        found = admin.describe_broker_configs([0])[0]
    process.send_signal(signal.SIGTERM)
    assert (process.communicate(timeout=20)[1], process.returncode) == ("", 0)
    names = ("num.partitions", "log.retention.ms", "transaction.max.timeout.ms")
    assert [found[name].value for name in names] == ["5", "3600000", "1000"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"num.partition=3", "did you mean num.partitions?"),
        (b"num.partitions=0", "between 1 and"),
        (b"num.partitions", "num.partitions=: it must be a whole number"),
        (b"listeners=PLAINTEXT://:9092", "listeners is not a broker setting; give --listen"),
        (b"log.dirs=/var/lib/kafka", "log.dirs is not a broker setting; give --data"),
        (b"sasl.enabled.mechanisms=PLAIN", "a node has neither TLS nor SASL nor access lists; see docs/security.md"),
        (b"authorizer.class.name=a.B", "a node has neither TLS nor SASL nor access lists; see docs/security.md"),
        (b"num.partitions=\xff", "no text in UTF-8"),
        (None, "it cannot be read"),
    ],
)
def test_a_file_of_settings_that_cannot_be_used_is_named(tmp_path: Path, text: bytes | None, told: str) -> None:
    file = tmp_path / "node.properties"
    if text is not None:
        file.write_bytes(text)
    said = refused("--data", str(tmp_path / "data"), "--settings", str(file))
    assert f"fencepost serve: --settings {file}: " in said and told in said
    assert not (tmp_path / "data").exists()


def test_an_unknown_option_is_named(tmp_path: Path) -> None:
    process = serve("--dta", str(tmp_path))
    _, told = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "--dta" in told or "--data" in told


@pytest.mark.parametrize(
    ("umask", "directory", "file"), [(0o000, 0o750, 0o640), (0o022, 0o750, 0o640), (0o077, 0o700, 0o600)]
)
def test_what_is_kept_is_nobody_elses_to_read(tmp_path: Path, umask: int, directory: int, file: int) -> None:
    """Whatever laxer the umask is; a directory that is there already keeps the mode that somebody gave it."""
    there = tmp_path / "there"
    there.mkdir(0o755)
    there.chmod(0o755)
    before = os.umask(umask)
    try:
        for data in (tmp_path / "new" / "data", there):
            with running_broker(data=data) as broker:
                assert broker.failed is not None
                made = asyncio.run_coroutine_threadsafe(_a_topic(broker), broker.failed.get_loop())
                made.result(10)
    finally:
        os.umask(before)
    paths = [tmp_path / "new", *(tmp_path / "new").rglob("*"), *there.rglob("*")]
    assert len(paths) > 15 and any(path.name == "metadata.sqlite" for path in paths)
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == (directory if path.is_dir() else file), path
    assert stat.S_IMODE(there.stat().st_mode) == 0o755


@pytest.mark.parametrize(
    ("mode", "says"), [(0o700, False), (0o750, False), (0o770, False), (0o755, True), (0o751, True), (0o704, True)]
)
def test_a_data_directory_that_everybody_may_look_into_is_named_at_each_start_and_left_as_it_is(
    tmp_path: Path, mode: int, says: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As an earlier version made it."""
    there = tmp_path / "there"
    there.mkdir()
    there.chmod(mode)
    for start in (1, 2):
        with running_broker(data=there):
            pass
        said = [each for each in caplog.messages if each.startswith("every user of this machine may look into")]
        assert len(said) == (start if says else 0) and all(f"{there}: chmod o= it" in each for each in said)
    assert stat.S_IMODE(there.stat().st_mode) == mode


async def _a_topic(broker: Broker) -> None:
    broker.node.topics.create_at_once("t", 1)


def test_the_longest_name_outlives_kills(tmp_path: Path) -> None:
    """Made, deleted and made again between kills: the node starts, and nothing of the deleted one is there."""
    name, at = "n" * 249, TopicPartition("n" * 249, 0)
    for life in range(3):
        process = serve("--listen", "127.0.0.1:0", "--data", str(tmp_path))
        assert process.stdout is not None
        address = process.stdout.readline().split(" on ")[1].split(",")[0]
        with Admin(address) as admin, Producer(address) as producer:
            if life:
                assert _records(address, at) == life, "what was acknowledged before the kill"
                admin.delete_topic(name)
            admin.create_topic(name)
            for _ in range(life + 1):
                producer.send(name, b"x", partition=0).result()
            assert _records(address, at) == life + 1
            process.kill()
            process.wait()


def test_a_copy_of_a_stopped_directory_is_the_node_at_another_place_and_address(tmp_path: Path) -> None:
    at = TopicPartition("t", 0)
    with running_broker(data=str(tmp_path / "data")) as before:
        with Producer(before.bootstrap_servers) as producer:
            producer.send("t", b"x", partition=0).result()
        with Admin(before.bootstrap_servers) as admin:
            cluster = admin.describe_cluster().cluster_id
            admin.alter_group_offsets("g", {at: 1})
    shutil.copytree(tmp_path / "data", tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "data")
    with running_broker(data=str(tmp_path / "elsewhere"), listen="localhost:0") as after:
        assert _records(after.bootstrap_servers, at) == 1
        with Admin(after.bootstrap_servers) as admin:
            assert admin.describe_cluster().cluster_id == cluster
            assert [place and place.offset for place in admin.list_group_offsets("g").values()] == [1]


def _records(address: str, at: TopicPartition) -> int:
    with Consumer(bootstrap_servers=address) as consumer:
        return consumer.end_offsets([at])[at]
