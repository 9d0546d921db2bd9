"""Reads events that are expressions of the rule language: which codes do they offer for each attribute?

An event is a conjunction whose parts are about one column each: `price BETWEEN 10 AND 20 AND kind IN ('a', 'b')`. It
offers the values for which a part is TRUE. Columns that no rule reads are ignored.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from rules_index.domains.region_codes import Regions
from rules_index.domains.values import NOTHING, ValueSet
from rules_index.errors import RuleError
from rules_index.index.events import NO_INTERVALS, Event
from rules_index.language.analyser import Analyser
from rules_index.language.build_formula import Splitter
from rules_index.language.formula import And, Fixed, Formula, Not, Or, Predicate, Truth
from rules_index.language.parser import parse
from rules_index.language.scope import Scope
from rules_index.language.typed import Expression, Leaf
from rules_index.names import path_parts

_INT64 = np.iinfo(np.int64)


class Offer:
    """What an event offers for one attribute: the values on which its part is TRUE and FALSE, and its truth on NULL."""

    def __init__(self, attribute: Expression, true: ValueSet, false: ValueSet, null: Truth) -> None:
        self.attribute, self.true, self.false, self.null = attribute, true, false, null


Offered = tuple[tuple[int, np.ndarray], ...]
"""For each attribute number the closed, ascending intervals [., 2] of codes that an event offers for it."""
NEVER: Offered = ((-1, NO_INTERVALS),)
"""The offer of an event that is never TRUE; recognised by identity."""
MOST_PARTS = 1 << 14
"""The number of event parts whose codes are cached."""
_PART = re.compile(
    r"""\s*(?P<part>(?P<column>[a-z_]\w*)\s*(?:<=>|<=|>=|<>|!=|=|<|>)\s*(?:-?\d+|'[^'\\]*'))\s*(?:(?P<more>\bAND\b)|$)""",
    re.ASCII | re.IGNORECASE,
)
"""A part that compares a column with a plain literal, and the AND or the end of the text behind it."""


class EventReader:
    """Reads events for the attributes of an index. Thread-safe."""

    def __init__(
        self, attributes: Sequence[Expression], regions: Sequence[Regions], inputs: Sequence[Leaf], time_zone: str
    ) -> None:
        self._numbers: dict[Expression, list[int]] = {}
        for number, attribute in enumerate(attributes):
            self._numbers.setdefault(attribute, []).append(number)
        self._regions = regions
        self._decoded: list[Constants | None] = [None] * len(regions)
        self._scope = Scope(_schema(inputs), time_zone)
        self._parts: dict[str, Offered] = {}

    def event(self, text: str) -> Event | None:
        """The codes that an event offers; None if the event is never TRUE.

        Raises `RuleError` for a text that is not an expression, or not a conjunction of parts about one column each.
        """
        if not isinstance(text, str):
            raise RuleError("SYNTAX", f"An event is the text of an expression, not {type(text).__name__}.")
        try:
            offered = self._from_known_parts(text)
            if offered is None:
                offered = self._offered(text)
        except UnicodeEncodeError as error:
            shown = error.object[error.start]
            raise RuleError(
                "SYNTAX", f"The character {shown!r} is half of a surrogate pair, which is not text."
            ) from None
        if offered is NEVER:
            return None
        start = np.concatenate([[0], np.cumsum([len(each) for _, each in offered], dtype=np.int64)])
        intervals = np.concatenate([NO_INTERVALS, *(each for _, each in offered)])
        return np.array([number for number, _ in offered], np.int32), start.astype(np.int64), intervals

    def _offered(self, text: str) -> Offered:
        """What an event, or a part of one, offers."""
        offers = _offers(text, self._scope)
        if offers is None or any(offer.true == NOTHING and offer.null != Truth.TRUE for offer in offers):
            return NEVER
        return tuple(
            (number, self._intervals(number, offer))
            for offer in offers
            for number in self._numbers.get(offer.attribute, ())
        )

    def _from_known_parts(self, text: str) -> Offered | None:
        """What an event offers whose parts compare columns with plain literals. Parts are cached, because few are new.
        None if the whole event has to be parsed: it has other parts, or two parts on one column, or is refused."""
        offered: list[tuple[int, np.ndarray]] = []
        columns, position, is_never = set(), 0, False
        while position < len(text):
            part = _PART.match(text, position)
            if part is None or part["column"].lower() in columns:
                return None
            columns.add(part["column"].lower())
            if part["more"] and part.end() == len(text):
                return None
            known = self._parts.get(part["part"])
            if known is None:
                try:
                    known = self._offered(part["part"])
                except RuleError:
                    return None
                if len(self._parts) < MOST_PARTS:
                    self._parts[part["part"]] = known
            is_never = is_never or known is NEVER
            offered += known
            position = part.end()
        return NEVER if is_never else tuple(offered) if columns else None

    def _intervals(self, number: int, offer: Offer) -> np.ndarray:
        """The codes of attribute `number` that an offer covers, as closed, ascending intervals [., 2]."""
        regions = self._regions[number]
        constants = self._decoded[number]
        if constants is None and "offsets" in regions.arrays:
            constants = self._decoded[number] = Constants(regions.arrays)
        codes = codes_of(regions, offer.true, offer.null == Truth.TRUE, constants)
        gaps = np.flatnonzero(np.diff(codes) > 1)
        if not len(codes):
            return NO_INTERVALS
        return np.column_stack([codes[np.append(0, gaps + 1)], codes[np.append(gaps, len(codes) - 1)]])


class Constants:
    """The constants of an attribute whose keys are byte strings: `cuts` and `points`, ascending, with their codes."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.cuts, self.codes = _strings(arrays["offsets"], arrays["data"]), arrays["codes"]
        points, codes = _strings(arrays["point_offsets"], arrays["point_data"]), arrays["point_codes"].tolist()
        pairs = sorted(zip(points, codes, strict=True))
        self.points, self.point_codes = [point for point, _ in pairs], [code for _, code in pairs]
        self.known = frozenset(points)


def codes_of(regions: Regions, values: ValueSet, with_null: bool, constants: Constants | None = None) -> np.ndarray:
    """The codes [.] int32, ascending, of all regions that contain one of the values, and of NULL if it is offered.

    constants: those of an attribute of byte strings, if they are already decoded.
    """
    if "offsets" in regions.arrays:
        found = _byte_codes(constants or Constants(regions.arrays), values)
    else:
        found = _integer_codes(regions.arrays, values)
    return np.unique(np.append(found, [regions.count] if with_null else [])).astype(np.int32)


def _intervals(values: ValueSet) -> list[tuple[Any, Any]]:
    """The intervals [low, high) of a set; None for an unbounded end."""
    cuts = [*([None] if values.start else []), *values.cuts]
    cuts += [None] if len(cuts) % 2 else []
    return list(zip(cuts[::2], cuts[1::2], strict=True))


def _integer_codes(arrays: dict[str, np.ndarray], values: ValueSet) -> np.ndarray:
    codes, found = arrays["codes"], [np.empty(0, np.int32)]
    for low, high in _intervals(values):
        first = _INT64.min if low is None else max(int(low), _INT64.min)
        last = _INT64.max if high is None else min(int(high) - 1, _INT64.max)
        if first > _INT64.max or last < _INT64.min:
            continue
        if "cuts" in arrays:
            begin, end = np.searchsorted(arrays["cuts"], np.array([first, last], np.int64), side="right").tolist()
        else:
            least = int(arrays["low"][0]) - 1
            begin, end = (min(max(key - least, 0), len(codes) - 1) for key in (first, last))
        found.append(codes[begin : end + 1])
    return np.concatenate(found)


def _byte_codes(c: Constants, values: ValueSet) -> np.ndarray:
    cuts, points, found = c.cuts, c.points, []
    for low, high in _intervals(values):
        first = 0 if low is None else bisect_left(points, low)
        found += c.point_codes[first : len(points) if high is None else bisect_left(points, high)]
        begin = 0 if low is None else bisect_right(cuts, low)
        end = len(cuts) if high is None else bisect_left(cuts, high)
        for segment in range(begin, end + 1):
            least = max(low or b"", cuts[segment - 1] if segment else b"")
            above = [each for each in (high, cuts[segment] if segment < len(cuts) else None) if each is not None]
            # if the range holds a single value and that value is a point, it is not in the segment's region
            if not (above and min(above) == least + b"\0" and least in c.known):
                found.append(int(c.codes[segment]))
    return np.array(found, np.int32)


def _strings(offsets: np.ndarray, data: np.ndarray) -> list[bytes]:
    whole, ends = data.tobytes(), offsets.tolist()
    return [whole[begin:end] for begin, end in pairwise(ends)]


def _schema(inputs: Sequence[Leaf]) -> pa.Schema:
    """The schema of the columns that an index reads; of a struct only the fields that it reads."""
    tree: dict[str, Any] = {}
    for leaf in inputs:
        if leaf.text is None:
            *path, last = path_parts(leaf.name)
            fields = tree
            for part in path:
                below = fields.get(part)
                fields[part] = below = below if isinstance(below, dict) else {}
                fields = below
            if not isinstance(fields.get(last), dict):
                fields[last] = leaf.type

    def type_of(found: Any) -> pa.DataType:
        return pa.struct([(name, type_of(each)) for name, each in found.items()]) if isinstance(found, dict) else found

    return pa.schema([(name, type_of(found)) for name, found in tree.items()])


def _offers(text: str, scope: Scope) -> list[Offer] | None:
    """The offers of an event's parts, one for each attribute; None if some part is never TRUE."""
    node, tokens = parse(text, scope.time_zone)
    splitter = Splitter(Analyser(tokens, scope))
    formulas: list[Formula] = []
    for part in node.children if node.kind == "and" else [node]:
        try:
            formulas.append(splitter.rule(part))
        except RuleError as error:
            if error.error != "UNKNOWN_COLUMN":
                raise
    found: dict[Expression, Offer] = {}
    for formula in _parts(formulas):
        if isinstance(formula, Fixed):
            if formula.truth != Truth.TRUE:
                return None
            continue
        offer = _offer(formula)
        known = found.get(offer.attribute)
        found[offer.attribute] = _both(known, offer) if known is not None else offer
    return [*found.values()]


def _parts(formulas: Sequence[Formula]) -> list[Formula]:
    parts: list[Formula] = []
    for formula in formulas:
        parts += _parts(formula.operands) if isinstance(formula, And) else [formula]
    return parts


def _offer(formula: Formula) -> Offer:
    """The offer of a formula about one attribute."""
    if isinstance(formula, Predicate):
        if not isinstance(formula.attribute, Leaf) or formula.attribute.text is not None:
            raise RuleError("NOT_ALLOWED", "A part of an event compares a column with constants, without computing.")
        return Offer(formula.attribute, formula.true, formula.false, formula.null)
    if isinstance(formula, Not):
        inner = _offer(formula.operand)
        return Offer(inner.attribute, inner.false, inner.true, Truth((1, 0, 2)[inner.null]))
    if isinstance(formula, (And, Or)) and formula.operands and not any(isinstance(f, Fixed) for f in formula.operands):
        offers = [_offer(operand) for operand in formula.operands]
        if len({offer.attribute for offer in offers}) == 1:
            combined = offers[0]
            for other in offers[1:]:
                combined = _both(combined, other) if isinstance(formula, And) else _either(combined, other)
            return combined
    raise RuleError("NOT_ALLOWED", "An event is a conjunction: each of its parts is about one column alone.")


def _both(one: Offer, other: Offer) -> Offer:
    truths = {one.null, other.null}
    null = Truth.FALSE if Truth.FALSE in truths else Truth.NULL if Truth.NULL in truths else Truth.TRUE
    return Offer(one.attribute, one.true & other.true, one.false | other.false, null)


def _either(one: Offer, other: Offer) -> Offer:
    truths = {one.null, other.null}
    null = Truth.TRUE if Truth.TRUE in truths else Truth.NULL if Truth.NULL in truths else Truth.FALSE
    return Offer(one.attribute, one.true | other.true, one.false & other.false, null)
