"""What the page on security shows works as it is printed; its pipeline is tried by tests/spark/test_security.py."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client.sasl.servers import PASSWORD
from tests.client.secured import CERTIFICATES, TOKEN, Front, listening_in_a_thread, server_tls

from fencepost.broker import Broker, running_broker
from fencepost.client.blocking import Admin
from fencepost.client.security import MECHANISMS, Security, SecurityOptions

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SPARK = next(example for example in EXAMPLES if "spark" in example)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with running_broker() as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("debits", partitions=1)
        yield broker


def carried_out(example: str, front: Front, folder: Path) -> str:
    """The example as a program, at this front; what it printed."""
    program = folder / "example.py"
    text = example.replace("broker:9093", f"127.0.0.1:{front.port}").replace("/etc/kafka", str(CERTIFICATES))
    program.write_text(text)
    known = {"KAFKA_PASSWORD": PASSWORD, "KAFKA_TOKEN": TOKEN}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in known.items():
            patch.setenv(name, value)
        done = subprocess.run([sys.executable, str(program)], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert PASSWORD not in done.stdout + done.stderr and TOKEN not in done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("example", [each for each in EXAMPLES if each != SPARK])
def test_every_way_of_a_client_is_let_in(example: str, broker: Broker, tmp_path: Path) -> None:
    wants = "ca" if "ssl_certfile" in example else None
    with listening_in_a_thread(broker, server_tls(wants=wants), with_sasl="sasl_mechanism" in example) as front:
        assert "debits" in carried_out(example, front, tmp_path)
        assert front.refusals == []


def test_every_mechanism_has_an_example() -> None:
    shown = set(re.findall(r'sasl_mechanism="([\w-]+)"', PAGE))
    assert shown | {"SCRAM-SHA-256"} == set(MECHANISMS)
    assert "**SCRAM-SHA-256** and **SCRAM-SHA-512**" in PAGE


def test_settings_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"`((?:ssl|sasl)_\w+|security_protocol)`", PAGE))
    assert named <= set(SecurityOptions.__annotations__) and "ssl_cafile" in named
    assert Security().protocol == "PLAINTEXT"
