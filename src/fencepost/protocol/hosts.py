"""Tells whether a text may be the name or address of a host: a pure function."""

from __future__ import annotations

from typing import Final

_IN_NO_HOST: Final = ",;/@[]"


def is_host(text: str) -> bool:
    """Whether this may be a name or an address; one of IPv6 without brackets.  Whether it is there is not asked.

    A name has labels of up to 63 letters each (RFC 1035, 2.3.4); what has none in it cannot even be looked up.
    """
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return bool(text) and text.isprintable() and not any(each in _IN_NO_HOST or each.isspace() for each in text)
