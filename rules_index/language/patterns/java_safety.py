"""Which patterns java.util.regex may match: those that can neither stall a job nor overflow the stack.

Java's matcher backtracks, and recurses for each iteration of a repeated group. A pattern is safe if the number of steps
is at most about quadratic in the value's length, and no group repeats without limit. The test is conservative: some
patterns that it refuses would be harmless.
"""

from __future__ import annotations

from functools import lru_cache

from rules_index.domains.values import ValueSet, interval
from rules_index.errors import RuleError
from rules_index.language.patterns import code_points as cp
from rules_index.language.patterns.java_syntax import parse
from rules_index.language.patterns.syntax import Assertion, Characters, Choice, Node, Place, Repeat, Sequence

_DEGREE_LIMIT = 2
_FACTOR_LIMIT = 1_000
_FEW = 10
"""Up to this many iterations of a repetition count as a constant."""
_BMP = interval(0, 0x10000)

Rest = ValueSet | None
"""The code points with which the rest of the pattern can begin; None if nothing follows that could fail."""


class _UnsafeError(Exception):
    """The pattern repeats a group in a way that Java does by recursion or by backtracking."""


@lru_cache(maxsize=4096)
def is_safe_in_java(pattern: str) -> bool:
    """Whether java.util.regex matches the pattern in about quadratic time or better, without deep recursion."""
    try:
        degree, factor = java_degree(pattern)
    except (RuleError, _UnsafeError):
        return False
    return degree <= _DEGREE_LIMIT and factor <= _FACTOR_LIMIT


@lru_cache(maxsize=4096)
def java_degree(pattern: str) -> tuple[int, int]:
    """The steps that java.util.regex takes to match a pattern: the power of the value's length, and a constant
    factor."""
    node = parse(pattern)
    degree, factor, _ = _cost(node, None)
    return degree + (not _is_anchored(node)), factor


@lru_cache(maxsize=4096)
def is_only_java(pattern: str) -> bool:
    r"""Whether only Java can match a pattern: it has a property that only Java knows, or `\B`, which in Java also holds
    between the surrogates of a code point."""
    return _is_only_java(parse(pattern))


def _is_only_java(node: Node) -> bool:
    match node:
        case Characters():
            return not node.is_known
        case Assertion(place, negated):
            return negated and place in (Place.WORD_EDGE, Place.WORD_EDGE_UNICODE)
        case Sequence(items) | Choice(items):
            return any(map(_is_only_java, items))
        case Repeat(item):
            return _is_only_java(item)
    return False


def _is_anchored(node: Node) -> bool:
    """Whether a match can only begin at the start of the string."""
    match node:
        case Assertion(place, negated):
            return place is Place.START and not negated
        case Sequence(items):
            return bool(items) and _is_anchored(items[0])
        case Choice(items):
            return all(_is_anchored(item) for item in items)
    return False


def _cost(node: Node, rest: Rest) -> tuple[int, int, Rest]:
    """The steps from one starting point, as the power of the value's length and a constant factor; and with which code
    points the node, followed by `rest`, can begin."""
    match node:
        case Characters(members):
            return 0, 1, members
        case Assertion():
            return 0, 1, cp.ALL
        case Sequence(items):
            degree, factor = 0, 1
            for item in reversed(items):
                more, times, rest = _cost(item, rest)
                degree, factor = degree + more, factor * times
            return degree, factor, rest
        case Choice(items):
            return _choice([_cost(item, rest) for item in items])
        case Repeat(item, low, high):
            if isinstance(item, Characters):
                return _repeated_set(item.members, low, high, rest)
            return _repeated_group(item, low, high, rest)


def _choice(branches: list[tuple[int, int, Rest]]) -> tuple[int, int, Rest]:
    """The cost of a choice, from its branches' costs. If two branches can begin with the same code point, Java may try
    all."""
    firsts = [first for _, _, first in branches]
    known = [first for first in firsts if first is not None]
    together: Rest = None
    disjoint = len(known) == len(firsts)
    for other in known:
        disjoint = disjoint and (together is None or (together & other).is_empty)
        together = other if together is None else together | other
    factors = [factor for _, factor, _ in branches]
    first = together if len(known) == len(firsts) else None
    return max(degree for degree, _, _ in branches), max(factors) if disjoint else sum(factors), first


def _repeated_set(members: ValueSet, low: int, high: int | None, rest: Rest) -> tuple[int, int, Rest]:
    """The cost of a repeated set. Java backtracks into the repetition, which takes time, only if the rest can begin
    with a member."""
    ambiguous = rest is not None and not (members & rest).is_empty
    first = members if low else None if rest is None else members | rest
    if not ambiguous:
        return 0, 1, first
    many = high is None or high - low >= _FEW
    return int(many), 1 if high is None or many else high - low + 1, first


def _repeated_group(item: Node, low: int, high: int | None, rest: Rest) -> tuple[int, int, Rest]:
    """The cost of a repeated group. Raises `_UnsafeError` if it repeats often, and its matches differ in length."""
    if high == 0:
        return 0, 1, rest
    if (low, high) in ((0, 1), (1, 1)):
        branches = [_cost(item, rest)]
        return _choice([*branches, (0, 1, rest)]) if low == 0 else branches[0]
    if _has_fixed_length(item):
        degree, factor, first = _cost(item, cp.ALL)
        if low != high:
            degree += 1
            first = None if rest is None or first is None else first | rest
        return degree, factor, first
    if high is None or high > _FEW:
        raise _UnsafeError
    optional: Node = Sequence(())
    for _ in range(high - low):
        optional = Choice((Sequence((item, optional)), Sequence(())))
    return _cost(Sequence((item,) * low + (optional,)), rest)


def _has_fixed_length(node: Node) -> bool:
    """Whether all matches have the same number of UTF-16 units, and each is reached in only one way."""
    match node:
        case Characters(members):
            return (members & ~_BMP).is_empty
        case Sequence(items):
            return bool(items) and all(_has_fixed_length(item) for item in items)
        case Repeat(item, low, high):
            return low == high and low > 0 and _has_fixed_length(item)
    return False
