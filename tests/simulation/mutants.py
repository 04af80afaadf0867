"""What tests that break the code on purpose take for found, and what not."""

from __future__ import annotations

from typing import Final

OF_THE_TEST: Final = (TypeError, AttributeError, NameError, ImportError)
"""What a run ends with whose broken line does not fit the code any more: it would be found whatever it was to break."""
