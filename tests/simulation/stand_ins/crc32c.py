"""CRC-32C in Python, for interpreters in which the package of that name is not installed."""

from __future__ import annotations

from typing import Final

_POLYNOMIAL: Final = 0x82F63B78
"""Of Castagnoli, its bits in reverse order."""


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_REMAINDERS: Final = tuple(map(_remainder, range(256)))


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Of the data behind that of which `crc` is."""
    crc ^= 0xFFFFFFFF
    for byte in memoryview(data).cast("B"):
        crc = crc >> 8 ^ _REMAINDERS[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
