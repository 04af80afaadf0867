"""Set up the locked environment in .venv with nothing but the Python that runs this file.

Run by `make setup`.  A stamp in .venv remembers what was installed, so a second run takes no time.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
STAMP = ENVIRONMENT / "fencepost-setup"
BUILD_TOOLS = ROOT / "requirements" / "build.txt"
LOCK = ROOT / "requirements" / "lock.txt"


def wanted() -> str:
    """What the environment depends on, as one digest: the locks, the project file, the interpreter."""
    digest = hashlib.sha256(sys.version.encode())
    for path in (BUILD_TOOLS, LOCK, ROOT / "pyproject.toml", Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def refuse(sentence: str) -> None:
    """Say what is wrong and what to do, and end."""
    sys.exit(f"setup: {sentence}")


def pip_command() -> list[str]:
    """A pip that installs into .venv: its own, or the one of the running Python where ensurepip is left out."""
    try:
        venv.EnvBuilder(with_pip=True, clear=True).create(ENVIRONMENT)
    except (subprocess.CalledProcessError, ImportError, SystemExit):
        venv.EnvBuilder(with_pip=False, clear=True).create(ENVIRONMENT)
    if subprocess.run([PYTHON, "-c", "import pip"], capture_output=True).returncode == 0:
        return [str(PYTHON), "-m", "pip"]
    if subprocess.run([sys.executable, "-c", "import pip"], capture_output=True).returncode == 0:
        return [sys.executable, "-m", "pip", "--python", str(PYTHON)]
    shutil.rmtree(ENVIRONMENT)
    refuse(
        f"{sys.executable} has neither pip nor ensurepip, so packages cannot be installed. "
        "Install them (on Debian and Ubuntu: apt install python3-venv) and run make again."
    )
    raise AssertionError


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - whoever runs this may well have an older one
        refuse(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}. Try: make PYTHON=python3.12 setup")
    if STAMP.exists() and STAMP.read_text() == wanted():
        return
    print("setup: creating .venv (the first time takes a minute or two: Spark alone is 450 MB) ...", flush=True)
    pip = [*pip_command(), "install", "--disable-pip-version-check", "--no-input", "--progress-bar=on", "--quiet"]
    steps = [
        ("build tools", ["--require-hashes", "-r", str(BUILD_TOOLS)]),
        ("locked packages", ["--require-hashes", "--no-build-isolation", "-r", str(LOCK)]),
        ("fencepost itself", ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]),
    ]
    for number, (what, arguments) in enumerate(steps, 1):
        print(f"setup: {number}/{len(steps)} {what}", flush=True)
        if subprocess.run([*pip, *arguments]).returncode != 0:
            refuse(
                f"installing the {what} failed (see above). Check the network or the pip configuration, then run again."
            )
    STAMP.write_text(wanted())
    print("setup: done", flush=True)


if __name__ == "__main__":
    main()
