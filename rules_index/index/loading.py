"""Loads an index from an artifact. Every offset, length and code is checked against its bounds before it is used."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.errors import ArtifactError, SchemaError
from rules_index.index.annotate import Annotate
from rules_index.index.annotations import Annotations, sound
from rules_index.index.array_checks import require, require_offsets, require_range
from rules_index.index.artifact import read_header
from rules_index.index.checksum_cache import map_file
from rules_index.index.compiled import CompiledRules, Layers, rejects_schema
from rules_index.index.inputs import inputs_of
from rules_index.index.registry import engine_class
from rules_index.index.rule_source import DIGEST_BYTES, RuleSource
from rules_index.index.rule_texts import BLOCK, RuleTexts
from rules_index.index.shared_files import ArtifactFiles
from rules_index.index.stored_lists import ListReader
from rules_index.index.stored_regions import stored_regions
from rules_index.index.stored_sections import stored_array, stored_data, stored_table
from rules_index.index.updated_index import numbers_of, overlaid, places_of
from rules_index.language.serialise import from_json
from rules_index.language.typed import Leaf
from rules_index.names import path_parts

_MALFORMED = (
    ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, SchemaError, TypeError,
    ValueError,
    pa.ArrowException,
)  # fmt: skip
"""The exceptions that reading a malformed header or section may raise."""


def load(path: str | Path) -> CompiledRules:
    """Maps an artifact into memory, and the files beside it that it refers to.

    Raises `ArtifactError` for bytes that are not a valid index."""
    path = Path(path)
    mapped, is_checked = map_file(path)
    try:
        return _loaded(memoryview(mapped), path, is_checked)
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error}") from error


def loads(buffer: bytes | memoryview | mmap.mmap) -> CompiledRules:
    """The index in an artifact's bytes, which are not copied. Raises `ArtifactError` for bytes that are not a valid
    index, and for an index that needs another file."""
    return _loaded(memoryview(buffer), None, is_checked=False)


def _loaded(view: memoryview, path: Path | None, is_checked: bool) -> CompiledRules:
    header = read_header(view, is_checked)
    try:
        return _assemble(header, view[header["_start"] :], ArtifactFiles(view, path))
    except ArtifactError:
        raise
    except _MALFORMED as error:
        raise ArtifactError(f"The index is not consistent ({error}); compile the rules again.") from error


def _assemble(header: Mapping[str, Any], body: memoryview, files: ArtifactFiles) -> CompiledRules:
    require(isinstance(header["fingerprint"], str), "fingerprint")
    require(isinstance(header["stats"], dict), "stats")
    rejects = _rejects(header, body)
    if "base" not in header:
        return replace(_full(header, body, files), rejects=rejects, fingerprint=header["fingerprint"])
    base, changed = _base(header["base"], body, files), _full(header["changed"], body, files)
    left_out = stored_array(header["left_out"], body)
    require(left_out.dtype == np.int64 and left_out.ndim == 1, "left_out")
    require_range(left_out, 0, len(base), "left_out")
    require(bool((np.diff(left_out) > 0).all()), "left_out")
    layers = Layers(base, left_out, changed)
    require(base.texts is not None and changed.texts is not None, "texts")
    require((base.time_zone, base.event_time) == (changed.time_zone, changed.event_time), "base")
    require(base.ids.type == changed.ids.type and base.engine == changed.engine, "base")
    kinds = [layer.annotations.annotate if layer.annotations is not None else None for layer in (base, changed)]
    require(kinds[0] == kinds[1], "annotations")
    places = places_of(base.ids, changed.ids)
    inside = places < len(base)
    again = inside.copy()
    same = pc.equal(base.ids.take(pa.array(places[inside])), changed.ids.filter(pa.array(inside)))
    again[inside] = same.to_numpy(zero_copy_only=False)
    # a rule of the base that was changed must be left out: no rule is in both layers
    require(bool(np.isin(places[again], left_out).all()), "changed")
    return replace(overlaid(layers, numbers_of(layers), rejects, header["fingerprint"]), stats=header["stats"])


def _base(header: Mapping[str, Any], body: memoryview, files: ArtifactFiles) -> CompiledRules:
    """The full compile that an updated index changes, from its own artifact or another one."""
    if "file" not in header:
        return _full(header, body, files)
    other = files.other(header["file"], header["checksum"])
    of_base = other.header.get("base", other.header)
    require("file" not in of_base, "base")
    return _full(of_base, other.body, other.files)


def _full(header: Mapping[str, Any], body: memoryview, files: ArtifactFiles) -> CompiledRules:
    """The index of a full compile, without rejects and fingerprint."""
    ids = _ids(header, body)
    inputs = tuple(leaf for item in header["inputs"] if isinstance(leaf := from_json(item), Leaf))
    read_list = ListReader(files).read
    lists = {item["name"]: read_list(item, body) for item in header["lists"]}
    attributes = tuple(from_json(item["expression"], lists) for item in header["attributes"])
    require(len(inputs) == len(header["inputs"]) and inputs == inputs_of(attributes), "inputs")
    require(all(path_parts(leaf.name) for leaf in inputs), "inputs")
    regions = tuple(stored_regions(item, body) for item in header["attributes"])
    for attribute, region in zip(attributes, regions, strict=True):
        require(attribute.type == region.type, "attributes")
    engine = engine_class(header["engine"]).load(
        {name: stored_array(reference, body) for name, reference in header["index"].items()}, len(attributes), len(ids)
    )
    sizes = engine.arrays["sizes"]
    require([int(size) for size in sizes] == [region.size for region in regions], "sizes")
    starts, used = (stored_array(reference, body) for reference in header["raising"])
    require(starts.dtype.kind == used.dtype.kind == "i" and used.ndim == 1, "raising")
    require(len(starts) == len(ids) + 1, "raising")
    require_offsets(starts, len(used), "raising")
    require_range(used, 0, len(attributes), "raising")
    require(isinstance(header["time_zone"], str), "time_zone")
    require(header["event_time"] is None or isinstance(header["event_time"], str), "event_time")
    require(isinstance(header["stats"], dict), "stats")
    digests = stored_array(header["digests"], body)
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
        definition=RuleSource(digests, files.own),
        texts=_texts(header["texts"], body, len(ids)) if "texts" in header else None,
        annotations=_annotations(header["annotations"], body, ids) if "annotations" in header else None,
        named_lists=tuple(lists.values()),
    )


def _annotations(item: Mapping[str, Any], body: memoryview, ids: pa.Array) -> Annotations:
    return sound(Annotate(tuple(item["columns"]), tuple(item["severities"])), ids, stored_table(item["rules"], body))


def _ids(header: Mapping[str, Any], body: memoryview) -> pa.Array:
    """The rules' ids, ascending."""
    table = stored_table(header["ids"], body)
    require(table.column_names == ["rule_id"], "ids")
    ids = table.column(0).combine_chunks()
    ids = pa.concat_arrays(ids.chunks) if isinstance(ids, pa.ChunkedArray) else ids
    require(ids.type in (pa.string(), pa.int64()) and ids.null_count == 0, "ids")
    require(len(ids) < 2 or bool(pc.all(pc.less(ids[:-1], ids[1:])).as_py()), "ids")
    return ids


def _rejects(header: Mapping[str, Any], body: memoryview) -> pa.Table:
    rejects = stored_table(header["rejects"], body)
    require(rejects.schema == rejects_schema(rejects.schema.field(0).type), "rejects")
    require(rejects.schema.field(0).type in (pa.string(), pa.int64()), "rejects")
    return rejects


def _texts(references: Mapping[str, Any], body: memoryview, rules: int) -> RuleTexts:
    """The rules' texts. They are unpacked, and checked, only when a rule is explained."""
    require(len(references["blocks"]) == -(-rules // BLOCK), "texts")
    return RuleTexts(
        stored_data(references["schema"], body), [stored_data(each, body) for each in references["blocks"]]
    )
