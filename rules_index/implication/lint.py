"""Finds likely mistakes in a rule set, rule by rule, and explains them to the authors of rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.arrays import is_text, offsets_of, segment_ids
from rules_index.compiling.compile import compile_rules
from rules_index.compiling.rule_columns import RuleColumns, Rules, as_rules_table, pairs_of, read_rules
from rules_index.domains.value_lists import AnyList
from rules_index.implication import messages
from rules_index.implication.alternative_texts import superfluous, superfluous_in_rule
from rules_index.implication.examples import joined_examples
from rules_index.implication.findings import findings
from rules_index.implication.kinds import (
    ALWAYS_RAISES,
    CONTRADICTION,
    DUPLICATE,
    IMPLIED,
    IMPLIED_BY_UNION,
    LINT_KINDS,
    NEVER_TRUE,
    NULL_COMPARISON,
    PADDED_ID,
    REDUNDANT_ALTERNATIVE,
    REJECTED,
    TAUTOLOGY,
    TRUE_UNLESS_NULL,
    UNREACHABLE_ALTERNATIVE,
)
from rules_index.implication.mistakes.find_mistakes import mistakes
from rules_index.implication.mistakes.known_values import KnownValues
from rules_index.implication.text_spans import Alternatives, alternatives_of, conflict_of, null_comparisons
from rules_index.index.compiled import CompiledRules
from rules_index.language.scope import Scope

_MOST_IN_CONTEXT = 10_000
"""The most rules whose alternatives are tested within the rest of the rule, a millisecond each."""
_MOST_EXPLAINED = 1_000
"""The most contradictions for which two comparisons that exclude each other are searched for."""


def lint(
    rules: Rules,
    schema: pa.Schema,
    event_time: str | None = None,
    time_zone: str = "UTC",
    known: Mapping[str, KnownValues] | None = None,
    lists: Sequence[AnyList] = (),
) -> pa.Table:
    """Findings about rules: those that never or always match, repeat other rules, or have parts without effect.

    It reads the rules, and no row, so that it can run before any are tagged. Findings are certain, but not complete:
    computations (`a - b > 5`), and expressions that only Spark can evaluate (`soundex(s) = 'A100'`), are taken to be
    TRUE or not independently of everything else, except for comparisons of the same values in one rule (`a < b AND
    b < a`). Rules, schema, event_time, time_zone and lists are those of `compile_rules`. known: by column name, what
    `known_values` returns; without it there are no findings that depend on values.

        >>> import pyarrow as pa
        >>> schema = pa.schema([("origin", pa.string()), ("delay", pa.int32())])
        >>> rules = [
        ...     ("late", "delay > 60"),
        ...     ("late-at-hub", "origin IN ('EWR', 'JFK') AND delay > 90"),
        ...     ("unknown", "origin = NULL OR delay IS NULL"),
        ... ]
        >>> for each in lint(rules, schema).to_pylist():
        ...     print(each["rule_id"], each["kind"], each["other_ids"], each["position"], each["example"])
        late-at-hub implied ['late'] None {'delay': 91, 'origin': 'EWR'}
        unknown null_comparison [] 0 None
        >>> print(lint(rules[2:], schema)["message"][0])
        `origin = NULL` is NULL on every row, never TRUE and never FALSE: a comparison with NULL is neither. \
Write `origin IS NULL`.

    | column | |
    |---|---|
    | rule_id | the rule; the table is ordered by it, and then by kind in the order below |
    | kind | string, one of those below |
    | other_ids | list, the other rules that are involved |
    | message | string: what is wrong, and what to change |
    | position | int64, the 0-based offset in the rule's text; NULL where the whole rule is concerned |
    | text | string, the part of the rule's text that is concerned; NULL where the whole rule is |
    | example | struct of columns that the rules read: a row that the rule matches; NULL where none was made |

    | kind | the rule |
    |---|---|
    | rejected | does not compile, so it matches nothing |
    | contradiction | is TRUE on no row |
    | tautology | is TRUE on every row |
    | null_comparison | compares with NULL in a way that can never make it TRUE, like `a = NULL` |
    | duplicate | matches the same rows as the others; reported for the first of them |
    | implied | matches only rows that the other rule matches too |
    | implied_by_union | matches only rows that one or another of the others matches; these are as few as were found |
    | redundant_alternative | has an alternative, between its ORs, that its other alternatives make superfluous |
    | unreachable_alternative | has an alternative that is never TRUE |
    | always_raises | has a part that raises an error on every row, like `amount = 'high'` |
    | never_true | has a comparison that is never TRUE, like `whole = 7.5` or `upper(a) = 'x'` |
    | unknown_value | names a value, an item or a key that no known row has |
    | true_unless_null | has a part that leaves out nothing but NULL, like `c <> 'DE' OR c <> 'FR'` |
    | missing_brackets | mixes AND and OR without brackets, like `a = 'x' OR a = 'y' AND b > 1` |
    | null_text | compares with the text 'NULL' |
    | padded_text | compares with a text that begins or ends with a blank |
    | unit | compares percents with a fraction, or a fraction with percents |
    | separated_number | has a list like `IN (1,000, 2,000)` |
    | no_wildcard | has a LIKE without a wildcard |
    | time_pattern | has a pattern of dates with a letter that means something else, like `dd.mm.yyyy` |
    | midnight | compares times with a day, which is its midnight there, like `t <= DATE'2026-01-31'` |
    | may_raise | raises an error on rows that the source has, like a division by a column with zeros |
    | padded_id | has an id that begins or ends with a blank |

    A hundred thousand rules take some seconds to a minute, compiling included. Raises `RulesIndexError` as
    `compile_rules` does.
    """
    table = as_rules_table(rules)
    given = [*chain.from_iterable(pairs_of(rules))] if table is None else table
    compiled = compile_rules(given, schema, "auto", event_time, time_zone, lists=lists)
    enabled, _ = read_rules(given, time_zone)
    place = pc.index_in(compiled.ids, enabled.ids.cast(compiled.ids.type)).to_numpy()
    texts, bounded = enabled.expressions.take(pa.array(place)), enabled.bounded[place]
    scope = Scope(schema, time_zone, compiled.lists)
    found = findings(compiled)
    constant = _constant(found, len(compiled))
    of_parts = [*_null_comparisons(texts, scope), *_mistakes(texts, scope, known or {})]
    false_parts: dict[int, list[_Finding]] = {}
    for each in of_parts:
        if each.kind in (NULL_COMPARISON, NEVER_TRUE):
            false_parts.setdefault(each.rule, []).append(each)
    alternatives = alternatives_of(texts)
    examples = found["example"].combine_chunks()
    superfluous_ones, more_examples = _alternatives(alternatives, texts, (constant, bounded), scope, len(examples))
    superfluous_ones = [each for each in superfluous_ones if not _is_explained(each, false_parts.get(each.rule, ()))]
    explained = {each.rule for each in superfluous_ones} | false_parts.keys()
    causes = {rule: false_parts[rule][0] for rule in _rules_of(found, CONTRADICTION) if rule in false_parts}
    never_applies = _never_applies(enabled, place, time_zone)
    raising = {each.rule for each in of_parts if each.kind == ALWAYS_RAISES}
    all_findings = [
        *_whole(found, causes, never_applies, raising, texts, compiled.ids, scope),
        *(each for each in of_parts if causes.get(each.rule) is not each and not _is_plain(each, constant)),
        *superfluous_ones,
        *_in_context(alternatives, found, explained, texts, scope),
        *_padded_ids(compiled.ids),
    ]
    table = _table(all_findings, compiled.ids, joined_examples([examples, more_examples]))
    return _ordered(pa.concat_tables([_rejects(compiled, enabled, table.schema), table]))


@dataclass(frozen=True, slots=True)
class _Finding:
    """A finding about a rule. The rule and `others` are ordinals; `example` is the index of a row, -1 for none."""

    rule: int
    kind: str
    message: str
    others: Sequence[int] = ()
    position: int | None = None
    text: str | None = None
    example: int = -1


def _rules_of(found: pa.Table, kind: str) -> list[int]:
    """The ordinals of the rules with a finding of a kind."""
    rules: list[int] = found["rule"].filter(pc.equal(found["kind"], kind)).to_pylist()
    return rules


def _constant(found: pa.Table, rules: int) -> np.ndarray:
    """Which rules [rules] bool are never TRUE, or always."""
    constant = np.zeros(rules, bool)
    constant[[*_rules_of(found, CONTRADICTION), *_rules_of(found, TAUTOLOGY)]] = True
    return constant


def _is_plain(finding: _Finding, constant: np.ndarray) -> bool:
    """Whether a finding that a part is TRUE unless NULL adds nothing, since its rule is always or never TRUE."""
    return finding.kind == TRUE_UNLESS_NULL and bool(constant[finding.rule])


def _is_explained(alternative: _Finding, false_parts: Iterable[_Finding]) -> bool:
    """Whether an alternative is never TRUE because it contains a comparison that never is, and has its own finding."""
    begin, text = alternative.position or 0, alternative.text or ""
    inside = range(begin, begin + len(text))
    return alternative.kind == UNREACHABLE_ALTERNATIVE and any(each.position in inside for each in false_parts)


def _null_comparisons(texts: pa.LargeStringArray, scope: Scope) -> Iterator[_Finding]:
    for each in null_comparisons(texts, scope):
        text = texts[each.rule].as_py()[each.begin : each.end]
        message = messages.null_comparison(text, each.negated, each.always)
        yield _Finding(each.rule, NULL_COMPARISON, message, (), each.begin, text)


def _mistakes(texts: pa.LargeStringArray, scope: Scope, known: Mapping[str, KnownValues]) -> Iterator[_Finding]:
    for rule, mistake in mistakes(texts, scope, known):
        text = texts[rule].as_py()[mistake.begin : mistake.end]
        yield _Finding(rule, mistake.kind, mistake.message, (), mistake.begin, text)


def _padded_ids(ids: pa.Array) -> Iterator[_Finding]:
    """Rules with ids that have blanks at an end, which readers do not see."""
    if not is_text(ids.type):
        return
    padded = pc.not_equal(ids, pc.utf8_trim_whitespace(ids))
    for rule in np.flatnonzero(padded.to_numpy(zero_copy_only=False)).tolist():
        yield _Finding(rule, PADDED_ID, messages.padded_id(ids[rule].as_py()))


def _alternatives(
    given: Alternatives,
    texts: pa.LargeStringArray,
    constant_and_bounded: tuple[np.ndarray, np.ndarray],
    scope: Scope,
    first: int,
) -> tuple[list[_Finding], pa.StructArray]:
    """The findings about alternatives, and the examples; the first example has the index `first`.

    constant_and_bounded: two masks [rules] bool: the rules that are always or never TRUE, which are left out; and the
    rules with a validity bound, which get no example: a row that satisfies a rule's text may be out of its bounds.
    """
    constant, bounded = constant_and_bounded
    found = superfluous(given, ~constant, scope)
    instances = messages.example_texts(found.examples, texts.take(pa.array(found.rule)).to_pylist())
    made = []
    for number, (rule, at, unreachable) in enumerate(
        zip(found.rule.tolist(), found.alternative.tolist(), found.unreachable.tolist(), strict=True)
    ):
        text = given.texts[at].as_py()
        if unreachable:
            kind, message = UNREACHABLE_ALTERNATIVE, messages.unreachable_alternative(text)
        else:
            instance = None if bounded[rule] else instances[number]
            kind, message = REDUNDANT_ALTERNATIVE, messages.redundant_alternative(text, instance)
        example = -1 if bounded[rule] else first + number
        made.append(_Finding(rule, kind, message, (), int(given.positions[at]), text, example))
    return made, found.examples


def _in_context(
    given: Alternatives,
    found: pa.Table,
    explained: Collection[int],
    texts: pa.LargeStringArray,
    scope: Scope,
) -> Iterator[_Finding]:
    """Yields alternatives that a rule does not need because of the rest of the rule. Only rules for which `findings`
    has a redundant or unreachable conjunction are searched. Such a conjunction alone proves nothing: it may stem from
    several alternatives, all of which the rule needs."""
    places: dict[int, int] = {}
    for number, (rule, kind) in enumerate(zip(found["rule"].to_pylist(), found["kind"].to_pylist(), strict=True)):
        adds_nothing = kind in (REDUNDANT_ALTERNATIVE, UNREACHABLE_ALTERNATIVE)
        if adds_nothing and rule not in explained and len(places) < _MOST_IN_CONTEXT:
            # of the rule's findings the redundant ones come first, and have an example
            places.setdefault(rule, number)
    if not places:
        return
    candidates = found.take(list(places.values()))
    instances = messages.example_texts(
        candidates["example"].combine_chunks(), texts.take(candidates["rule"]).to_pylist()
    )
    instance_of = dict(zip(places, instances, strict=True))
    chosen = np.zeros(len(texts), bool)
    chosen[list(places)] = True
    alternatives, never = superfluous_in_rule(given, texts.to_pylist(), chosen, scope)
    rules = given.rule[segment_ids(given.start)[alternatives]]
    for at, rule, unreachable in zip(alternatives.tolist(), rules.tolist(), never.tolist(), strict=True):
        text = given.texts[at].as_py()
        if unreachable:
            kind, message = UNREACHABLE_ALTERNATIVE, messages.unreachable_in_context(text)
        else:
            kind, message = REDUNDANT_ALTERNATIVE, messages.redundant_in_context(text, instance_of[rule])
        example = -1 if unreachable else places[rule]
        yield _Finding(rule, kind, message, (), int(given.positions[at]), text, example)


def _whole(
    found: pa.Table,
    causes: Mapping[int, _Finding],
    never_applies: Mapping[int, str],
    raising: Collection[int],
    texts: pa.LargeStringArray,
    ids: pa.Array,
    scope: Scope,
) -> Iterator[_Finding]:
    """Yields the findings of `findings` except those about alternatives, which are found from the texts.

    causes: for rules that are never TRUE, the finding about the comparison that causes it; never_applies: the messages
    for rules that never apply; raising: rules with a part that raises on every row. If no row was found on which one of
    these is TRUE, it may match none, and is not reported as a duplicate or as implied.
    """
    has_example = found["example"].is_valid().to_pylist()
    instances = messages.example_texts(found["example"].combine_chunks(), texts.take(found["rule"]).to_pylist())
    columns = (found[name].to_pylist() for name in ("rule", "kind", "others"))
    explained = 0
    for number, (rule, kind, others) in enumerate(zip(*columns, strict=True)):
        names, instance = ids.take(pa.array(sorted(others), pa.int32())).to_pylist(), instances[number]
        if kind == CONTRADICTION:
            cause = causes.get(rule)
            if rule in never_applies:
                message = never_applies[rule]
            elif cause is not None:
                message = messages.contradiction((), cause.message)
                yield _Finding(rule, kind, message, (), cause.position, cause.text, number)
                continue
            else:
                explained += 1
                conflict = conflict_of(texts[rule].as_py(), scope) if explained <= _MOST_EXPLAINED else ()
                message = messages.contradiction(conflict, None)
        elif kind == TAUTOLOGY and texts[rule].as_py().strip().upper() != "TRUE":  # which the message asks to write
            message = messages.tautology()
        elif rule in raising and not has_example[number]:
            continue
        elif kind == DUPLICATE:
            message = messages.duplicate(names)
        elif kind == IMPLIED:
            message = messages.implied(names, instance)
        elif kind == IMPLIED_BY_UNION:
            message = messages.implied_by_union(names, instance)
        else:
            continue
        yield _Finding(rule, kind, message, sorted(others), example=number)


def _never_applies(rules: RuleColumns, places: np.ndarray, time_zone: str) -> dict[int, str]:
    """By ordinal, the message for each compiled rule with a valid_to that is not after its valid_from.

    places: [compiled rules] int64, the row of each in `rules`.
    """
    if rules.valid_from is None or rules.valid_to is None:
        return {}
    begin, end = (column.take(pa.array(places)) for column in (rules.valid_from, rules.valid_to))
    void = np.flatnonzero(pc.fill_null(pc.less_equal(end, begin), False).to_numpy(zero_copy_only=False))
    zoned = [
        column.take(pa.array(void))
        .cast(pa.timestamp("us", "UTC"))
        .cast(pa.timestamp("us", time_zone))
        .cast(pa.string())
        for column in (begin, end)
    ]
    return {
        rule: messages.applies_never(*texts)
        for rule, *texts in zip(void.tolist(), *(column.to_pylist() for column in zoned), strict=True)
    }


def _table(given: Sequence[_Finding], ids: pa.Array, examples: pa.StructArray) -> pa.Table:
    rules = pa.array([each.rule for each in given], pa.int32())
    start = offsets_of(np.array([len(each.others) for each in given], np.int64)).astype(np.int32)
    others = pa.array([other for each in given for other in each.others], pa.int32())
    place = np.array([each.example for each in given], np.int64)
    return pa.table(
        {
            "rule_id": ids.take(rules),
            "kind": pa.array([each.kind for each in given], pa.string()),
            "other_ids": pa.ListArray.from_arrays(start, ids.take(others)),
            "message": pa.array([each.message for each in given], pa.string()),
            "position": pa.array([each.position for each in given], pa.int64()),
            "text": pa.array([each.text for each in given], pa.string()),
            "example": examples.take(pa.array(place, mask=place < 0)),
        }
    )


def _rejects(compiled: CompiledRules, enabled: RuleColumns, schema: pa.Schema) -> pa.Table:
    """The rules that do not compile, as findings."""
    columns: dict[str, Any] = {
        name: pa.nulls(compiled.rejects.num_rows, schema.field(name).type) for name in schema.names
    }
    rejects = compiled.rejects.to_pylist()
    ids = enabled.ids.cast(compiled.rejects["rule_id"].type)
    texts = enabled.expressions.take(pc.index_in(compiled.rejects["rule_id"], ids)).to_pylist()
    sentences = [
        messages.rejected(each["error"], each["message"], _rest(text, each["position"]))
        for each, text in zip(rejects, texts, strict=True)
    ]
    columns |= {
        "rule_id": compiled.rejects["rule_id"],
        "kind": pa.array([REJECTED] * len(rejects), pa.string()),
        "other_ids": pa.array([[]] * len(rejects), schema.field("other_ids").type),
        "message": pa.array(sentences, pa.string()),
        "position": compiled.rejects["position"],
    }
    return pa.table(columns, schema=schema)


def _rest(text: str | None, position: int | None) -> str | None:
    """A text from a position on; None if one of the two is unknown."""
    return None if text is None or position is None else text[position:]


def _ordered(table: pa.Table) -> pa.Table:
    """By rule id, then by kind, then by position."""
    kind = pc.index_in(table["kind"], pa.array(LINT_KINDS))
    keyed = table.select(["rule_id", "position"]).append_column("order", kind)
    keys = [("rule_id", "ascending"), ("order", "ascending"), ("position", "ascending")]
    return table.take(pc.sort_indices(keyed, sort_keys=keys)).combine_chunks()
