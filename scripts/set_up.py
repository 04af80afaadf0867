"""Set up a locked environment with nothing but the Python that runs this file.

    python scripts/set_up.py         # .venv: what the tests, the demo and the benchmarks need
    python scripts/set_up.py docs    # .venv-docs: what builds the pages, and none of the above

Run by `make`.  A stamp in the environment remembers what was installed, so a second run takes no time.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "requirements"


class Environment(NamedTuple):
    """A folder, and what pip is told to put there, step by step: (what it is, arguments)."""

    folder: Path
    notice: str
    steps: Sequence[tuple[str, Sequence[str]]]

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def stamp(self) -> Path:
        return self.folder / "fencepost-setup"


def locked(name: str, *options: str) -> Sequence[str]:
    """Pip's arguments for a lock."""
    return ("--require-hashes", *options, "-r", str(LOCKS / name))


ENVIRONMENTS = {
    "main": Environment(
        ROOT / ".venv",
        "the first time takes a minute or two: Spark alone is 450 MB",
        (
            ("build tools", locked("build.txt")),
            ("locked packages", locked("lock.txt", "--no-build-isolation")),
            ("fencepost itself", ("--no-deps", "--no-build-isolation", "--editable", str(ROOT))),
        ),
    ),
    "docs": Environment(
        ROOT / ".venv-docs",
        "the first time takes half a minute",
        (("locked packages", locked("docs.txt", "--only-binary", ":all:")),),
    ),
}


def wanted(environment: Environment) -> str:
    """What an environment depends on, as one digest: the locks, the project file, the interpreter."""
    digest = hashlib.sha256(sys.version.encode())
    named = [
        Path(argument) for _, arguments in environment.steps for argument in arguments if argument.endswith(".txt")
    ]
    for path in (*named, ROOT / "pyproject.toml", Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def refuse(sentence: str) -> None:
    """Say what is wrong and what to do, and end."""
    sys.exit(f"setup: {sentence}")


def pip_command(environment: Environment) -> list[str]:
    """A pip that installs there: its own, or the one of the running Python where ensurepip is left out."""
    folder, python = environment.folder, environment.python
    try:
        venv.EnvBuilder(with_pip=True, clear=True).create(folder)
    except (subprocess.CalledProcessError, ImportError, SystemExit):
        venv.EnvBuilder(with_pip=False, clear=True).create(folder)
    if subprocess.run([python, "-c", "import pip"], capture_output=True).returncode == 0:
        return [str(python), "-m", "pip"]
    if subprocess.run([sys.executable, "-c", "import pip"], capture_output=True).returncode == 0:
        return [sys.executable, "-m", "pip", "--python", str(python)]
    shutil.rmtree(folder)
    refuse(
        f"{sys.executable} has neither pip nor ensurepip, so packages cannot be installed. "
        "Install them (on Debian and Ubuntu: apt install python3-venv) and run make again."
    )
    raise AssertionError


def compile_source(environment: Environment) -> None:
    """Have what can be compiled be compiled of the source as it is now; where it cannot be, that is said.

    And keep the byte code of all of it, which many processes begin with, and need not be allowed to keep.
    """
    if environment is ENVIRONMENTS["main"]:
        subprocess.run([environment.python, str(ROOT / "hatch_build.py")])
        subprocess.run([environment.python, "-m", "compileall", "-q", str(ROOT / "src")])


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - whoever runs this may well have an older one
        refuse(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}. Try: make PYTHON=python3.12 setup")
    environment = ENVIRONMENTS[sys.argv[1] if len(sys.argv) > 1 else "main"]
    stamp = environment.stamp
    if stamp.exists() and stamp.read_text() == wanted(environment):
        compile_source(environment)
        return
    print(f"setup: creating {environment.folder.name} ({environment.notice}) ...", flush=True)
    pip = [*pip_command(environment), "install", "--disable-pip-version-check", "--no-input"]
    pip += ["--progress-bar=on", "--quiet"]
    for number, (what, arguments) in enumerate(environment.steps, 1):
        print(f"setup: {number}/{len(environment.steps)} {what}", flush=True)
        if subprocess.run([*pip, *arguments]).returncode != 0:
            refuse(
                f"installing the {what} failed (see above). Check the network or the pip configuration, then run again."
            )
    stamp.write_text(wanted(environment))
    compile_source(environment)
    print("setup: done", flush=True)
    if environment is ENVIRONMENTS["main"]:
        subprocess.run([environment.python, "-m", "fencepost.compiled.in_use"])


if __name__ == "__main__":
    main()
