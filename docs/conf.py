"""How Sphinx builds the site (`make docs`): the pages of this folder, and the Python API from the docstrings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

project = "Fencepost"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxcontrib.mermaid"]
html_theme = "furo"
html_title = "Fencepost"
html_show_copyright = False

#: GitHub shows the same pages: drawings are fenced there, and headings are linked to by their text.
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4

autodoc_class_signature = "separated"
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
#: A word in single backticks is code, as in Markdown.
default_role = "code"
#: What the Spark pipelines import; the signatures are read without it.
autodoc_mock_imports = ["numpy", "pandas", "pyarrow", "pyspark"]


def show_code(_app: Any, _what: str, _name: str, _of: Any, _options: Any, lines: list[str]) -> None:
    """An indented block in a docstring is code, as in Markdown."""
    for at in range(len(lines) - 1, 0, -1):
        before = lines[at - 2] if at > 1 else ""
        if lines[at].startswith("    ") and not lines[at - 1] and before and not before.startswith(" "):
            lines[at:at] = ["::", ""]


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", show_code)
