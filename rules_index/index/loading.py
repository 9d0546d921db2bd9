"""From an artifact to its index: every offset, length and code is checked against its bounds first."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.domains.region_codes import Regions
from rules_index.domains.value_lists import ValueList, list_type
from rules_index.errors import ArtifactError, SchemaError
from rules_index.index.annotate import Annotate
from rules_index.index.annotations import Annotations, sound
from rules_index.index.artifact import ALIGNMENT, DTYPES, read_header
from rules_index.index.code_matrix import code_matrix
from rules_index.index.compiled import CompiledRules, Layers, rejects_schema
from rules_index.index.conjunction_arrays import require, require_form, require_offsets, require_range
from rules_index.index.inputs import inputs_of
from rules_index.index.layers import numbers_of, overlaid, places_of
from rules_index.index.registry import engine_class
from rules_index.index.rule_source import DIGEST_BYTES, RuleSource
from rules_index.index.rule_texts import BLOCK, RuleTexts
from rules_index.language.serialise import from_json, type_from_json
from rules_index.language.typed import Expression, Leaf
from rules_index.names import path_parts

_REGION_DTYPES = {
    "low": np.int64, "cuts": np.int64, "offsets": np.int64, "point_offsets": np.int64, "data": np.uint8,
    "point_data": np.uint8,
}  # fmt: skip
"""The dtypes of the regions' arrays that are not int32."""
_REGION_ARRAYS = (
    {"low", "codes"},
    {"low", "codes", "cuts", "buckets"},
    {"offsets", "data", "codes", "point_offsets", "point_data", "point_codes", "table"},
)
"""The arrays that each kind of regions has; `kernels.encode` has a search for each kind."""
_MALFORMED = (
    ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, SchemaError, TypeError,
    ValueError,
    pa.ArrowException,
)  # fmt: skip
"""The exceptions that reading a malformed header or section may raise."""


def load(path: str | Path) -> CompiledRules:
    """Maps an artifact into memory. Raises `ArtifactError` for bytes that are not a valid index."""
    try:
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise ArtifactError(f"{path} is empty; it is not an index.") from None
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        return loads(mapped)
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error}") from error


def loads(buffer: bytes | memoryview | mmap.mmap) -> CompiledRules:
    """An index over the artifact's bytes, without copying them. Raises `ArtifactError` for bytes that are not a valid
    index."""
    view = memoryview(buffer)
    header = read_header(view)
    try:
        return _assemble(header, view)
    except ArtifactError:
        raise
    except _MALFORMED as error:
        raise ArtifactError(f"The index is not consistent ({error}); compile the rules again.") from error


def _assemble(header: Mapping[str, Any], view: memoryview) -> CompiledRules:
    body = view[header["_start"] :]
    require(isinstance(header["fingerprint"], str), "fingerprint")
    require(isinstance(header["stats"], dict), "stats")
    rejects = _rejects(header, body)
    if "base" not in header:
        return replace(_full(header, body), rejects=rejects, fingerprint=header["fingerprint"])
    base, changed = _full(header["base"], body), _full(header["changed"], body)
    left_out = _array(header["left_out"], body)
    require(left_out.dtype == np.int64 and left_out.ndim == 1, "left_out")
    require_range(left_out, 0, len(base), "left_out")
    require(bool((np.diff(left_out) > 0).all()), "left_out")
    layers = Layers(base, left_out, changed)
    require(base.texts is not None and changed.texts is not None, "texts")
    require((base.time_zone, base.event_time) == (changed.time_zone, changed.event_time), "base")
    require(base.ids.type == changed.ids.type and base.engine == changed.engine, "base")
    places = places_of(base.ids, changed.ids)
    inside = places < len(base)
    again = inside.copy()
    same = pc.equal(base.ids.take(pa.array(places[inside])), changed.ids.filter(pa.array(inside)))
    again[inside] = same.to_numpy(zero_copy_only=False)
    # no rule is in both layers
    require(bool(np.isin(places[again], left_out).all()), "changed")
    return replace(overlaid(layers, numbers_of(layers), rejects, header["fingerprint"]), stats=header["stats"])


def _full(header: Mapping[str, Any], body: memoryview) -> CompiledRules:
    """The index of a full compile, without rejects and fingerprint."""
    ids = _ids(header, body)
    inputs = tuple(leaf for item in header["inputs"] if isinstance(leaf := from_json(item), Leaf))
    lists = {item["name"]: _value_list(item, body) for item in header["lists"]}
    attributes = tuple(from_json(item["expression"], lists) for item in header["attributes"])
    require(len(inputs) == len(header["inputs"]) and inputs == inputs_of(attributes), "inputs")
    require(all(path_parts(leaf.name) for leaf in inputs), "inputs")
    regions = tuple(_regions(item, body) for item in header["attributes"])
    for attribute, region in zip(attributes, regions, strict=True):
        require(attribute.type == region.type, "attributes")
    _try_attributes(attributes, regions)
    engine = engine_class(header["engine"]).load(
        {name: _array(reference, body) for name, reference in header["index"].items()}, len(attributes), len(ids)
    )
    sizes = engine.arrays["sizes"]
    require([int(size) for size in sizes] == [region.size for region in regions], "sizes")
    starts, used = (_array(reference, body) for reference in header["raising"])
    require(starts.dtype.kind == used.dtype.kind == "i" and used.ndim == 1, "raising")
    require(len(starts) == len(ids) + 1, "raising")
    require_offsets(starts, len(used), "raising")
    require_range(used, 0, len(attributes), "raising")
    require(isinstance(header["time_zone"], str), "time_zone")
    require(header["event_time"] is None or isinstance(header["event_time"], str), "event_time")
    require(isinstance(header["stats"], dict), "stats")
    digests = _array(header["digests"], body)
    require(digests.dtype == np.uint8 and digests.shape == (len(ids), DIGEST_BYTES), "digests")
    return CompiledRules(
        ids=ids,
        inputs=inputs,
        attributes=attributes,
        regions=regions,
        index=engine,
        raising=(starts, used),
        rejects=rejects_schema(ids.type).empty_table(),
        fingerprint="",
        time_zone=header["time_zone"],
        event_time=header["event_time"],
        stats=header["stats"],
        definition=RuleSource(digests),
        texts=_texts(header["texts"], body, len(ids)) if "texts" in header else None,
        annotations=_annotations(header["annotations"], body, ids) if "annotations" in header else None,
    )


def _value_list(item: Mapping[str, Any], body: memoryview) -> ValueList:
    name, values, digest, regions = item["name"], item["values"], item["digest"], _regions(item, body)
    require(isinstance(name, str) and isinstance(digest, str) and isinstance(values, int), "lists")
    require(regions.count == 2 and list_type(regions.type) == regions.type, "lists")
    return ValueList(name, values, digest, regions)


def _annotations(item: Mapping[str, Any], body: memoryview, ids: pa.Array) -> Annotations:
    return sound(Annotate(tuple(item["columns"]), tuple(item["severities"])), ids, _table(item["rules"], body))


def _ids(header: Mapping[str, Any], body: memoryview) -> pa.Array:
    """The rules' ids, ascending."""
    table = _table(header["ids"], body)
    require(table.column_names == ["rule_id"], "ids")
    ids = table.column(0).combine_chunks()
    ids = pa.concat_arrays(ids.chunks) if isinstance(ids, pa.ChunkedArray) else ids
    require(ids.type in (pa.string(), pa.int64()) and ids.null_count == 0, "ids")
    require(len(ids) < 2 or bool(pc.all(pc.less(ids[:-1], ids[1:])).as_py()), "ids")
    return ids


def _rejects(header: Mapping[str, Any], body: memoryview) -> pa.Table:
    rejects = _table(header["rejects"], body)
    require(rejects.schema == rejects_schema(rejects.schema.field(0).type), "rejects")
    require(rejects.schema.field(0).type in (pa.string(), pa.int64()), "rejects")
    return rejects


def _try_attributes(attributes: Sequence[Expression], regions: Sequence[Regions]) -> None:
    """Evaluates computed attributes on one row of NULLs: operands of types that an operation does not accept raise
    here."""
    computed = [number for number, attribute in enumerate(attributes) if not isinstance(attribute, Leaf)]
    if not computed:
        return
    chosen = [attributes[number] for number in computed]
    inputs = inputs_of(chosen)
    row = pa.table([pa.nulls(1, leaf.type) for leaf in inputs], [leaf.name for leaf in inputs])
    code_matrix(chosen, [regions[number] for number in computed], inputs, row)


def _array(reference: Any, body: memoryview) -> np.ndarray:
    name, position, shape = reference
    require(name in DTYPES and isinstance(position, int) and position >= 0 and position % ALIGNMENT == 0, "sections")
    require(1 <= len(shape) <= 2 and all(isinstance(n, int) and 0 <= n <= len(body) for n in shape), "sections")
    dtype = np.dtype(name)
    count = int(np.prod(shape, dtype=object))
    require(position + count * dtype.itemsize <= len(body), "sections")
    array = np.frombuffer(body, dtype, count, position) if count else np.empty(0, dtype)
    array = array.reshape(shape)
    array.setflags(write=False)
    return array


def _data(reference: Any, body: memoryview) -> memoryview:
    position, length = reference
    require(
        isinstance(position, int) and isinstance(length, int) and 0 <= position <= position + length <= len(body),
        "sections",
    )
    return body[position : position + length]


def _table(reference: Any, body: memoryview) -> pa.Table:
    table = pa.ipc.open_stream(pa.py_buffer(_data(reference, body))).read_all()
    table.validate(full=True)
    return table


def _texts(references: Mapping[str, Any], body: memoryview, rules: int) -> RuleTexts:
    """The rules' texts. They are unpacked, and checked, only when a rule is explained."""
    require(len(references["blocks"]) == -(-rules // BLOCK), "texts")
    return RuleTexts(_data(references["schema"], body), [_data(each, body) for each in references["blocks"]])


def _regions(item: Mapping[str, Any], body: memoryview) -> Regions:
    data_type, count = type_from_json(item["type"]), item["count"]
    require(isinstance(count, int) and 1 <= count < 2**31 - 2, "regions")
    arrays = {name: _array(reference, body) for name, reference in item["arrays"].items()}
    regions = Regions(data_type, count, arrays)
    require(set(arrays) in _REGION_ARRAYS and regions.is_bytes == ("offsets" in arrays), "regions")
    for name in arrays:
        require_form(arrays, name, _REGION_DTYPES.get(name, np.int32))
    require_range(arrays["codes"], 0, count, "regions")
    if "offsets" in arrays:
        _check_bytes(arrays, count)
    elif "cuts" in arrays:
        _check_search(arrays)
    else:
        require(arrays["low"].shape == (1,) and len(arrays["codes"]) > 0 and arrays["low"].dtype == np.int64, "regions")
        require(abs(int(arrays["low"][0])) < 2**62 or len(arrays["codes"]) < 2**20, "regions")
    return regions


def _check_bytes(a: Mapping[str, np.ndarray], count: int) -> None:
    cuts, points, table = len(a["offsets"]) - 1, len(a["point_offsets"]) - 1, a["table"]
    require_offsets(a["offsets"], len(a["data"]), "regions")
    require_offsets(a["point_offsets"], len(a["point_data"]), "regions")
    require(len(a["codes"]) == cuts + 1 and len(a["point_codes"]) == points, "regions")
    require_range(a["point_codes"], 0, count, "regions")
    require_range(table, -1, points, "regions")
    # an empty slot ends every search of the hash table
    require(len(table) > 0 and len(table) & (len(table) - 1) == 0 and bool((table == -1).any()), "regions")


def _check_search(a: Mapping[str, np.ndarray]) -> None:
    cuts, buckets = a["cuts"], a["buckets"]
    require(a["low"].shape == (2,) and len(a["codes"]) == len(cuts) + 1, "regions")
    if len(cuts) == 0:
        return
    low, shift = int(a["low"][0]), int(a["low"][1])
    require(low == cuts[0] and 0 <= shift < 64 and bool((cuts[1:] > cuts[:-1]).all()), "regions")
    require(len(buckets) >= ((int(cuts[-1]) - low) >> shift) + 2, "regions")
    require_range(buckets, 0, len(cuts) + 1, "regions")
