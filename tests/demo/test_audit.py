"""The questions of the demo's audit are those of the page; `tests/spark/test_pipeline` has them answered."""

from __future__ import annotations

import re
from pathlib import Path

from demo.audit import IN_VAIN, OPEN, TORN

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"


def test_the_demo_asks_what_the_page_says() -> None:
    assert re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL) == [OPEN, IN_VAIN, TORN]
