"""Which partition a key or an id belongs to: the hashes that every Kafka client and broker agrees on."""

from __future__ import annotations

from fencepost.compiled.in_use import compiled
from fencepost.protocol import record_kernel

_compiled_murmur2 = compiled(record_kernel.murmur2)

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash with the seed of Kafka's default partitioner, unsigned."""
    if _compiled_murmur2 is not None and type(data) is bytes:
        return _compiled_murmur2(data)
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, count: int) -> int:
    """The partition of a key among `count`, as Java's default partitioner and librdkafka's murmur2 ones choose it."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def java_hash(text: str) -> int:
    """String.hashCode() of Java: over UTF-16 code units, signed 32 bit."""
    units = text.encode("utf-16-be", "surrogatepass")
    h = 0
    for at in range(0, len(units), 2):
        h = (31 * h + (units[at] << 8 | units[at + 1])) & _MASK
    return h - (1 << 32) if h & 0x80000000 else h


def partition_for_id(name: str, count: int) -> int:
    """The partition of a coordinator's topic that a transactional id or group id belongs to (facts §1.6)."""
    h = java_hash(name)
    return 0 if h == -(1 << 31) else abs(h) % count
