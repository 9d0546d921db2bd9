"""Structures in Thrift's compact protocol, of which a Parquet file's footer is one."""

from __future__ import annotations

from typing import Any, TypeAlias

Struct: TypeAlias = dict[int, tuple[int, Any]]
"""A Thrift structure: the type and the value of each field, by its number, ascending."""

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)


class ThriftError(Exception):
    """Bytes that are not a structure."""


def read_struct(data: bytes) -> Struct:
    """The structure at the beginning of the bytes. Raises `ThriftError` if there is none, `IndexError` if they end
    before it does."""
    return _CompactReader(data).struct()


def read_struct_at(data: bytes, place: int) -> tuple[Struct, int]:
    """The structure that begins at a place, and the place behind it. Raises what `read_struct` raises."""
    reader = _CompactReader(data, place)
    return reader.struct(), reader.place


class _CompactReader:
    """Thrift's compact protocol, from bytes."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self._data, self.place = data, place

    def struct(self) -> Struct:
        """One structure."""
        found: Struct = {}
        number = 0
        while header := self._byte():
            kind = header & 15
            number = number + (header >> 4) if header >> 4 else self._zigzag()
            found[number] = (kind, self._value(kind))
        return found

    def _byte(self) -> int:
        value = self._data[self.place]
        self.place += 1
        return value

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _bytes(self, count: int) -> bytes:
        found = self._data[self.place : self.place + count]
        self.place += count
        return found

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return None
        if kind in (I16, I32, I64):
            return self._zigzag()
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind == STRUCT:
            return self.struct()
        if kind == BYTE:
            return self._byte()
        if kind == DOUBLE:
            return self._bytes(8)
        if kind in (LIST, SET):
            return self._items()
        raise ThriftError(f"A value has the type {kind}, which Thrift does not have.")

    def _items(self) -> tuple[int, list[Any]]:
        header = self._byte()
        count = self._varint() if header >> 4 == 15 else header >> 4
        kind = header & 15
        one = self._byte if kind in (TRUE, FALSE) else lambda: self._value(kind)
        return kind, [one() for _ in range(count)]


def write_struct(struct: Struct) -> bytes:
    """A structure in the compact protocol."""
    out = bytearray()
    _put_struct(out, struct)
    return bytes(out)


def _put_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for number in sorted(struct):
        kind, value = struct[number]
        if 0 < number - before < 16:
            out.append((number - before) << 4 | kind)
        else:
            out.append(kind)
            _put_zigzag(out, number)
        before = number
        _put(out, kind, value)
    out.append(0)


def _put(out: bytearray, kind: int, value: Any) -> None:
    if kind in (TRUE, FALSE):
        return
    if kind in (I16, I32, I64):
        _put_zigzag(out, value)
    elif kind == BINARY:
        put_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _put_struct(out, value)
    elif kind == BYTE:
        out.append(value)
    elif kind == DOUBLE:
        out += value
    else:
        inner, items = value
        out.append(min(len(items), 15) << 4 | inner)
        if len(items) >= 15:
            put_varint(out, len(items))
        for item in items:
            if inner in (TRUE, FALSE):
                out.append(item)
            else:
                _put(out, inner, item)


def put_varint(out: bytearray, value: int) -> None:
    """Appends an unsigned integer, seven bits a byte."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _put_zigzag(out: bytearray, value: int) -> None:
    put_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)
