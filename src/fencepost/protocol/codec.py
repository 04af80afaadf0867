"""Messages to bytes and back: bodies, and whole frames with their headers."""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct
from typing import Any, NamedTuple, TypeVar

from fencepost.protocol.decoding import (
    BAD_INPUT,
    MOST_ITEMS,
    Decoder,
    SteppedDecoder,
    compile_decoder,
    compile_stepped_decoder,
    cut_off,
    read_uvarint,
    too_many,
)
from fencepost.protocol.encoding import Encoder, SteppedEncoder, compile_encoder, compile_stepped_encoder
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.steps import finish
from fencepost.protocol.types import Buffer

T = TypeVar("T")

API_VERSIONS = 18

_LENGTH = Struct(">i")
_REQUEST_HEADER = Struct(">hhih")
_REQUEST_FRONT = Struct(">ihhih")
_RESPONSE_FRONT = Struct(">ii")
_STORED_VERSION = Struct(">h")


class RequestHeader(NamedTuple):
    """The header of a request; the body starts at `body_start`."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int


_DECODERS: dict[tuple[type[Any], int], Decoder] = {}
_STEPPED_DECODERS: dict[tuple[type[Any], int], SteppedDecoder] = {}
_ENCODERS: dict[tuple[type[Any], int], Encoder] = {}
_STEPPED_ENCODERS: dict[tuple[type[Any], int], SteppedEncoder] = {}


def _make_decoder(cls: type[Any], version: int) -> Decoder:
    decoder = compile_decoder(cls, _checked(cls, version), is_flexible(cls, version))
    _DECODERS[cls, version] = decoder
    return decoder


def _make_stepped_decoder(cls: type[Any], version: int) -> SteppedDecoder:
    decoder = compile_stepped_decoder(cls, _checked(cls, version), is_flexible(cls, version))
    _STEPPED_DECODERS[cls, version] = decoder
    return decoder


def _make_encoder(cls: type[Any], version: int) -> Encoder:
    encoder = compile_encoder(cls, _checked(cls, version), is_flexible(cls, version))
    _ENCODERS[cls, version] = encoder
    return encoder


def _make_stepped_encoder(cls: type[Any], version: int) -> SteppedEncoder:
    encoder = compile_stepped_encoder(cls, _checked(cls, version), is_flexible(cls, version))
    _STEPPED_ENCODERS[cls, version] = encoder
    return encoder


def _checked(cls: type[Any], version: int) -> int:
    first, last = cls.__schema__.versions
    if not first <= version <= last:
        raise ProtocolError(f"{cls.__name__} has the versions {first} to {last}, not {version}")
    return version


def is_flexible(cls: type[Any], version: int) -> bool:
    """Whether this version has compact lengths and tagged fields (KIP-482)."""
    flexible: bool = version >= cls.__schema__.flexible
    return flexible


def encode(message: Any, version: int) -> bytes:
    """The body of a message.  Raises ProtocolError for a version that the message does not have."""
    out: list[Any] = []
    cls = type(message)
    (_ENCODERS.get((cls, version)) or _make_encoder(cls, version))(message, out.append)
    return b"".join(out)


def decode(cls: type[T], buffer: Buffer, version: int, start: int = 0) -> T:
    """A message from the body at `start`, which must end with the buffer.

    Record fields are slices of `buffer`, so keep it unchanged as long as the message is used.  Raises ProtocolError for
    anything malformed.
    """
    message, stop = _decode(cls, buffer, version, start)
    if stop != len(buffer):
        raise ProtocolError(f"{cls.__name__} v{version} is followed by {len(buffer) - stop} bytes too many")
    return message


def decode_request(cls: type[T], buffer: Buffer, version: int, start: int) -> T:
    """As `decode`, but bytes that follow the message are not looked at, as in Apache Kafka.

    librdkafka 2.16 sends three of them behind a Metadata request v13 while a topic that it knew is gone.
    """
    return _decode(cls, buffer, version, start)[0]


def decode_request_in_steps(cls: type[T], buffer: Buffer, version: int, start: int) -> Generator[None, None, T]:
    """As `decode_request`, in steps: for a large request, which may have very many items.

    The buffer is not to be changed before the last one.
    """
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    try:
        steps = _STEPPED_DECODERS.get((cls, version)) or _make_stepped_decoder(cls, version)
        message, _ = yield from steps(view, start, len(view))
    except BAD_INPUT as error:
        raise _malformed(cls, version, error) from None
    decoded: T = message
    return decoded


def _malformed(cls: type[Any], version: int, error: Exception) -> ProtocolError:
    return ProtocolError(f"{cls.__name__} v{version} is malformed: {error}")


def _decode(cls: type[T], buffer: Buffer, version: int, start: int) -> tuple[T, int]:
    """The message at `start`, and the position where it ends.  Raises ProtocolError."""
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    try:
        return (_DECODERS.get((cls, version)) or _make_decoder(cls, version))(view, start, len(view))
    except BAD_INPUT as error:
        raise _malformed(cls, version, error) from None


def encode_request(message: Any, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A request frame, length prefix included."""
    schema = message.__schema__
    name = b"" if client_id is None else client_id.encode()
    out: list[Any] = [b"", name]
    if version >= schema.flexible:
        out.append(b"\x00")
    cls = type(message)
    (_ENCODERS.get((cls, version)) or _make_encoder(cls, version))(message, out.append)
    size = sum(map(len, out)) + _REQUEST_HEADER.size
    length = -1 if client_id is None else len(name)
    out[0] = _REQUEST_FRONT.pack(size, schema.api, version, correlation_id, length)
    return b"".join(out)


def encode_response(message: Any, version: int, correlation_id: int) -> bytes:
    """A response frame, length prefix included.  Raises ProtocolError as `encode`."""
    begun = begin_response(message, version, correlation_id)
    return begun if isinstance(begun, bytes) else bytes(finish(begun))


def begin_response(message: Any, version: int, correlation_id: int) -> bytes | Generator[None, None, bytearray]:
    """A response frame where it is short; else the steps that are left of encoding it, which return the frame.

    The message is not to be changed before the last one.
    """
    schema = message.__schema__
    out: list[Any] = [b""]
    if version >= schema.flexible and schema.api != API_VERSIONS:
        out.append(b"\x00")
    cls = type(message)
    steps = (_STEPPED_ENCODERS.get((cls, version)) or _make_stepped_encoder(cls, version))(message, out.append)
    for _ in steps or ():
        assert steps is not None
        return _rest_of_response(steps, out, correlation_id)
    out[0] = _RESPONSE_FRONT.pack(sum(map(len, out)) + 4, correlation_id)
    return b"".join(out)


def _rest_of_response(
    steps: Generator[None, None, None], out: list[Any], correlation_id: int
) -> Generator[None, None, bytearray]:
    """The rest of a response frame, which grows in place: to put the parts together in the end would be a long step."""
    frame = bytearray(_RESPONSE_FRONT.size)
    frame += b"".join(out)
    out.clear()
    yield
    for _ in steps:
        frame += b"".join(out)
        out.clear()
        yield
    frame += b"".join(out)
    _RESPONSE_FRONT.pack_into(frame, 0, len(frame) - _LENGTH.size, correlation_id)
    return frame


def read_request_header(buffer: Buffer, flexible: dict[int, int], start: int = 0) -> RequestHeader:
    """The header of the request frame at `start` (its length prefix not included).

    `flexible` tells for each API key from which version on its requests are flexible: those have tagged fields in the
    header.  For an unknown key the header ends after the client id.  Raises ProtocolError.
    """
    try:
        api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(buffer, start)
        at = start + _REQUEST_HEADER.size
        client_id = None
        if length >= 0:
            if at + length > len(buffer):
                raise cut_off()
            client_id = str(memoryview(buffer)[at : at + length], "utf-8")
            at += length
        if version >= flexible.get(api_key, 1 << 15):
            at = _skip_tags(buffer, at) if buffer[at] else at + 1
    except BAD_INPUT as error:
        raise ProtocolError(f"a request header is malformed: {error}") from None
    return RequestHeader(api_key, version, correlation_id, client_id, at)


def _skip_tags(buffer: Buffer, at: int) -> int:
    count = buffer[at]
    at += 1
    if count > 127:
        count, at = read_uvarint(buffer, at, count)
    if count > len(buffer) - at:
        raise cut_off()
    if count > MOST_ITEMS:
        raise too_many(count)
    for _ in range(count):
        for part in ("tag", "size"):
            n = buffer[at]
            at += 1
            if n > 127:
                n, at = read_uvarint(buffer, at, n)
            if part == "size":
                at += n
    if at > len(buffer):
        raise cut_off()
    return at


def decode_response(cls: type[T], buffer: Buffer, version: int) -> tuple[int, T]:
    """Correlation id and body of a response frame (its length prefix not included).  Raises ProtocolError."""
    try:
        (correlation_id,) = _LENGTH.unpack_from(buffer)
        at = _LENGTH.size
        schema = cls.__schema__  # type: ignore[attr-defined]
        if version >= schema.flexible and schema.api != API_VERSIONS:
            at = _skip_tags(buffer, at)
    except BAD_INPUT as error:
        raise ProtocolError(f"a response header is malformed: {error}") from None
    return correlation_id, decode(cls, buffer, version, at)


def encode_stored(message: Any, version: int) -> bytes:
    """A key or value of an internal topic: its version as int16, then the body."""
    return _STORED_VERSION.pack(version) + encode(message, version)


def stored_version(buffer: Buffer) -> int:
    """The version that a stored key or value begins with.  Raises ProtocolError if there is none."""
    try:
        version: int = _STORED_VERSION.unpack_from(buffer)[0]
    except BAD_INPUT:
        raise ProtocolError("a stored record is too short for its version") from None
    return version


def decode_stored(cls: type[T], buffer: Buffer) -> T:
    """A stored key or value.  Raises ProtocolError, also for a version that this class does not have."""
    return decode(cls, buffer, stored_version(buffer), _STORED_VERSION.size)
