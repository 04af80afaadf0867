"""The page of the Python API has every name that a user may import."""

from __future__ import annotations

import re
from types import ModuleType

import pytest
from scripts.page import DOCS

from fencepost import broker, client, spark
from fencepost.client import blocking

PAGE = (DOCS / "reference" / "python.md").read_text()
_DIRECTIVE = re.compile(r"^\.\. (currentmodule|automodule|autoclass|autofunction|autoexception):: (\S+)$", re.MULTILINE)


def shown() -> set[str]:
    """Names with their modules, as `fencepost.client.Producer`; of a module that is shown whole, its own name."""
    found, module = set(), ""
    for directive, name in _DIRECTIVE.findall(PAGE):
        if directive == "currentmodule":
            module = name
        else:
            found.add(name if directive == "automodule" else f"{module}.{name}")
    return found


@pytest.mark.parametrize("module", [client, blocking, spark, broker], ids=lambda module: module.__name__)
def test_every_name_that_may_be_imported_is_on_the_page(module: ModuleType) -> None:
    """By itself, or with all of the module that it may be imported from or is defined in."""
    name, known = module.__name__, shown()
    places = {each: {f"{name}.{each}", name, getattr(module, each).__module__} for each in module.__all__}
    assert [each for each, where in places.items() if not where & known] == []
