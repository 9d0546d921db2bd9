"""The fingerprint: the SHA-256 of everything that decides a match, which is the format, the settings, the inputs and a
digest of each rule.

An index keeps the digests of its rules, so that the fingerprint of the next version needs new digests only for changed
rules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.compiling.rule_annotations import texts
from rules_index.compiling.rule_columns import RuleColumns
from rules_index.domains.list_names import NAMES_ANY, names_in
from rules_index.domains.value_lists import AnyList, ValueList
from rules_index.index.rule_source import DIGEST_BYTES
from rules_index.language.typed import Leaf

_BLOCK = 1 << 16
"""Rules that are serialised as JSON at a time."""
_PLAIN = r"^[ !#-\[\]-~]*$"
"""ASCII that JSON leaves unescaped: no control character, quote or back-slash."""


def rule_digests(rules: RuleColumns, lists: Mapping[str, AnyList] | None = None) -> np.ndarray:
    """The digest of each rule [rules, bytes] uint8: the first `DIGEST_BYTES` of the SHA-256 of a line of JSON with its
    id, its expression without surrounding space, and its bounds. For a rule with annotations, that digest and their
    text are digested again; likewise with the digests of the lists that a rule names."""
    found = [_digests(rules, first, min(first + _BLOCK, len(rules))) for first in range(0, len(rules), _BLOCK)]
    digests = np.frombuffer(b"".join(found), np.uint8).reshape(-1, DIGEST_BYTES)
    if rules.annotations is not None:
        digests = _annotated(digests, rules.annotations)
    return _with_lists(digests, rules, lists) if lists else digests


def rules_naming_lists(rules: RuleColumns) -> np.ndarray:
    """The rules [.] int64 whose texts name lists."""
    return np.flatnonzero(pc.match_substring_regex(rules.expressions, NAMES_ANY).to_numpy(zero_copy_only=False))


def lists_named(rules: RuleColumns, lists: Mapping[str, AnyList]) -> tuple[ValueList, ...]:
    """The value lists that rules name, ordered by name; missing ones are left out."""
    if not lists:
        return ()
    named = {name for rule in rules_naming_lists(rules).tolist() for name in names_in(rules.text(rule))}
    return tuple(each for name in sorted(named) if isinstance(each := lists.get(name), ValueList))


def _with_lists(digests: np.ndarray, rules: RuleColumns, lists: Mapping[str, AnyList]) -> np.ndarray:
    """The digests, digested again with those of the lists that a rule names."""
    found = digests.copy()
    for rule in rules_naming_lists(rules).tolist():
        named = [lists[name].digest for name in names_in(rules.text(rule)) if name in lists]
        if named:
            text = "".join([bytes(digests[rule]).hex(), *named])
            found[rule] = np.frombuffer(hashlib.sha256(text.encode()).digest()[:DIGEST_BYTES], np.uint8)
    return found


def _annotated(digests: np.ndarray, annotations: pa.Table) -> np.ndarray:
    """The digests, digested again with each rule's annotations."""
    sha256 = hashlib.sha256
    paired = zip(digests, texts(annotations).to_list(), strict=True)
    found = [sha256(digest.tobytes() + text.encode()).digest()[:DIGEST_BYTES] for digest, text in paired]
    return np.frombuffer(b"".join(found), np.uint8).reshape(-1, DIGEST_BYTES)


def fingerprint(digests: Iterable[np.ndarray], settings: Sequence[Any], inputs: Sequence[Leaf]) -> str:
    """The hexadecimal SHA-256 of lines of JSON (the settings; name, type and text of each input) and of the digests of
    all rules [., bytes] by ascending id, which may come in several arrays."""
    digest = hashlib.sha256()
    # the number of inputs is included, so that no digest can be mistaken for an input
    digest.update(_line([*settings, len(inputs)]))
    for leaf in inputs:
        digest.update(_line([leaf.name, str(leaf.type), leaf.text]))
    for part in digests:
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode() + b"\n"


def _digests(rules: RuleColumns, first: int, last: int) -> bytes:
    """The digests of the rules [first, last)."""
    offsets, lines = _lines(rules, first, last)
    sha256 = hashlib.sha256
    return b"".join([sha256(lines[begin:end]).digest()[:DIGEST_BYTES] for begin, end in pairwise(offsets)])


def _lines(rules: RuleColumns, first: int, last: int) -> tuple[list[int], memoryview]:
    """Returns where the line of each rule in [first, last) begins and ends, and all lines, concatenated. Lines that
    need escapes are written one by one."""
    block = slice(first, last)
    ids, texts = rules.ids[block], rules.expressions[block]
    plain = pc.match_substring_regex(texts, _PLAIN)
    named = ids.cast(pa.large_string())
    if not pa.types.is_integer(ids.type):
        plain = pc.and_(plain, pc.match_substring_regex(ids, _PLAIN))
        named = _joined('"', named, '"')
    since, until = (
        "null" if column is None else pc.fill_null(column[block].cast(pa.large_string()), "null")
        for column in (rules.valid_from, rules.valid_to)
    )
    lines = _joined("[", named, ', "', pc.utf8_trim(texts, " "), '", ', since, ", ", until, "]\n")
    odd = (first + np.flatnonzero(~plain.to_numpy(zero_copy_only=False))).tolist()
    if odd:
        written = [
            _line([rules.rule_id(rule), rules.text(rule).strip(), *rules.validity(rule)]).decode() for rule in odd
        ]
        lines = pc.replace_with_mask(lines, pc.invert(plain), pa.array(written, pa.large_string()))
    offsets = np.frombuffer(lines.buffers()[1], np.int64)[: last - first + 1]
    return offsets.tolist(), memoryview(lines.buffers()[2])


def _joined(*parts: str | pa.LargeStringArray) -> pa.LargeStringArray:
    """Strings concatenated, row by row."""
    columns = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*columns, pa.scalar("", pa.large_string()))
