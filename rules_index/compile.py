"""Rules to an index: texts to formulae, formulae to conjunctions, conjunctions to an engine's arrays."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rules_index import regions as regions_module
from rules_index.compiled import CompiledRules, raising_attributes
from rules_index.conjunctions import Conjunction, Expansion, Gate, Literal, leaves_of
from rules_index.engines import ENGINES, Conjunctions, choose
from rules_index.engines.flat import GATE
from rules_index.errors import RuleError, RulesIndexError
from rules_index.expressions import Compiler, Scope
from rules_index.expressions.formula import And, Fixed, Formula, Not, Or, Predicate
from rules_index.expressions.tree import Leaf
from rules_index.regions import Layout, Regions
from rules_index.rules import Rejects, Rule, Rules, read_rules
from rules_index.validity import validity

FORMAT_VERSION = 1
"""Of the artifact; it is part of every fingerprint."""

Analyse = Callable[[Sequence[Leaf]], Sequence[str | None]]


def compile_rules(
    rules: Rules,
    schema: pa.Schema,
    engine: str = "auto",
    event_time: str | None = None,
    time_zone: str = "UTC",
    analyse: Analyse | None = None,
) -> CompiledRules:
    """Compiles rules over rows of `schema` into an index.

    rules: a pyarrow or Polars table with rule_id and expression (and, where present, enabled, valid_from and
    valid_to), or pairs (rule_id, expression); ids all str or all int. event_time: the column that validity
    bounds are compared with. time_zone: of timestamp literals and functions. analyse: given the derived
    leaves that only Spark can evaluate, tells for each None or why Spark refuses it.

    A rule that does not compile is in `rejects` and touches no other. Raises `RulesIndexError` where the
    rules as a whole cannot be read.
    """
    started = time.perf_counter()
    if engine != "auto" and engine not in ENGINES:
        raise RulesIndexError(f"There is no engine {engine!r}; choose one of auto, {', '.join(ENGINES)}.")
    enabled, rejects, id_type = read_rules(rules, time_zone)
    scope = Scope(schema, time_zone)
    formulae = _formulae(enabled, scope, event_time, rejects)
    if analyse is not None:
        formulae = _analysed(formulae, analyse, rejects)
    ids = pa.array([rule.rule_id for rule, _ in formulae], id_type)
    expansion = Expansion()
    expanded = [expansion.conjunctions_of(formula) for _, formula in formulae]
    used = [sorted({expansion.number_of(p.attribute) for p in _predicates(formula)}) for _, formula in formulae]
    conjunctions, regions = _number(expanded, expansion)
    name, reason = choose(conjunctions) if engine == "auto" else (engine, "as asked for")
    built = ENGINES[name].build(conjunctions)
    for array in built.arrays.values():
        array.setflags(write=False)
    inputs = _inputs(expansion)
    return CompiledRules(
        ids=ids,
        inputs=inputs,
        attributes=tuple(expansion.attributes),
        regions=regions,
        index=built,
        raising=raising_attributes(used, expansion.attributes),
        rejects=rejects.table(id_type),
        fingerprint=_fingerprint([rule for rule, _ in formulae], inputs, event_time, time_zone),
        time_zone=time_zone,
        event_time=event_time,
        stats={
            "rules": len(ids),
            "rejected": len(rejects.rows),
            "conjunctions": len(conjunctions.target),
            "gates": conjunctions.gates,
            "terms": len(conjunctions.terms),
            "attributes": len(regions),
            "derived": sum(leaf.text is not None for leaf in inputs),
            "codes": int(conjunctions.sizes.sum()),
            "posted": len(built.arrays.get("posted", ())),
            "engine": name,
            "engine_reason": reason,
            "build_seconds": round(time.perf_counter() - started, 6),
        },
    )


def _formulae(
    rules: Iterable[Rule], scope: Scope, event_time: str | None, rejects: Rejects
) -> list[tuple[Rule, Formula]]:
    compiler = Compiler(scope)
    clock = _event_time_leaf(scope.schema, event_time)
    result = []
    for rule in rules:
        try:
            formula = compiler.compile(rule.expression)
            if rule.valid_from is not None or rule.valid_to is not None:
                if clock is None:
                    message = "The rule has valid_from or valid_to, but its scope has no event time to compare with."
                    raise RuleError("NO_EVENT_TIME", message)
                formula = And((formula, validity(clock, rule.valid_from, rule.valid_to, scope.time_zone)))
            result.append((rule, formula))
        except RuleError as error:
            rejects.add(rule.rule_id, error)
    return result


def _event_time_leaf(schema: pa.Schema, event_time: str | None) -> Leaf | None:
    if event_time is None:
        return None
    names = [name for name in schema.names if name.casefold() == event_time.casefold()]
    name = event_time if event_time in schema.names else names[0] if len(names) == 1 else None
    if name is None:
        raise RulesIndexError(f"The event-time column {event_time} is not in the schema.")
    data_type = schema.field(name).type
    if not (pa.types.is_timestamp(data_type) or pa.types.is_date32(data_type)):
        raise RulesIndexError(f"The event-time column {name} is {data_type}; it must be a timestamp or a date.")
    return Leaf(name, data_type)


def _analysed(formulae: list[tuple[Rule, Formula]], analyse: Analyse, rejects: Rejects) -> list[tuple[Rule, Formula]]:
    """Without the rules that name a derived leaf which Spark refuses."""
    leaves: dict[Leaf, str | None] = {}
    by_rule = []
    for _, formula in formulae:
        named = [leaf for p in _predicates(formula) for leaf in leaves_of(p.attribute) if leaf.text is not None]
        by_rule.append(named)
        leaves.update(dict.fromkeys(named))
    if not leaves:
        return formulae
    leaves = dict(zip(leaves, analyse(list(leaves)), strict=True))
    kept = []
    for (rule, formula), named in zip(formulae, by_rule, strict=True):
        refusal = next(((leaf, leaves[leaf]) for leaf in named if leaves[leaf] is not None), None)
        if refusal is None:
            kept.append((rule, formula))
        else:
            leaf, message = refusal
            position = rule.expression.find(leaf.text or "")
            rejects.add(rule.rule_id, RuleError("ANALYSIS", str(message), position if position >= 0 else None))
    return kept


def _predicates(formula: Formula) -> Iterable[Predicate]:
    if isinstance(formula, Predicate):
        yield formula
    elif isinstance(formula, Not):
        yield from _predicates(formula.operand)
    elif isinstance(formula, (And, Or)):
        for operand in formula.operands:
            yield from _predicates(operand)
    else:
        assert isinstance(formula, Fixed)


def _inputs(expansion: Expansion) -> tuple[Leaf, ...]:
    leaves = {leaf.name: leaf for attribute in expansion.attributes for leaf in leaves_of(attribute)}
    return tuple(leaves[name] for name in sorted(leaves))


def _number(
    expanded: Sequence[tuple[Conjunction, ...]], expansion: Expansion
) -> tuple[Conjunctions, tuple[Regions, ...]]:
    """Conjunctions of literals -> flat arrays over region codes."""
    gates: dict[Gate, int] = {}
    for alternatives in expanded:
        for conjunction in alternatives:
            _collect_gates(conjunction, gates)
    literals: dict[Literal, None] = {}
    for alternatives in (*(gate.conjunctions for gate in gates), *expanded):
        for conjunction in alternatives:
            literals.update(dict.fromkeys(term for term in conjunction if isinstance(term, Literal)))
    layouts, regions = _lay_out(literals, expansion)
    flat = _Flattener(literals, layouts, gates)
    gate_start = [0]
    for gate, number in gates.items():
        flat.add(gate.conjunctions, number)
        gate_start.append(len(flat.target))
    for ordinal, alternatives in enumerate(expanded):
        flat.add(alternatives, ordinal)
    sizes = np.array([region.size for region in regions], np.int32)
    return flat.conjunctions(sizes, np.array(gate_start, np.int32)), regions


def _collect_gates(conjunction: Conjunction, gates: dict[Gate, int]) -> None:
    """Numbers the gates of a conjunction, those that a gate names before it."""
    for gate in sorted((term for term in conjunction if isinstance(term, Gate)), key=lambda gate: gate.number):
        if gate not in gates:
            for inner in gate.conjunctions:
                _collect_gates(inner, gates)
            gates[gate] = len(gates)


def _lay_out(literals: Iterable[Literal], expansion: Expansion) -> tuple[list[Layout], tuple[Regions, ...]]:
    by_attribute: list[set[Any]] = [set() for _ in expansion.attributes]
    for literal in literals:
        by_attribute[literal.attribute].add(literal.values)
    layouts = [regions_module.lay_out(values) for values in by_attribute]
    types = [attribute.type for attribute in expansion.attributes]
    regions = tuple(regions_module.build(layout, kind) for layout, kind in zip(layouts, types, strict=True))
    for region in regions:
        for array in region.arrays.values():
            array.setflags(write=False)
    return layouts, regions


class _Flattener:
    """Appends conjunctions to growing flat lists."""

    def __init__(self, literals: Iterable[Literal], layouts: Sequence[Layout], gates: dict[Gate, int]) -> None:
        self._gates = gates
        self._sets: dict[Literal, int] = {}
        self.set_start = [0]
        self.intervals: list[tuple[int, int]] = []
        self.start = [0]
        self.terms: list[tuple[int, int]] = []
        self.target: list[int] = []
        for literal in literals:
            layout = layouts[literal.attribute]
            intervals = layout.intervals(literal.values)
            if literal.null:
                if intervals and intervals[-1][1] == layout.count - 1:
                    intervals[-1] = (intervals[-1][0], layout.count)
                else:
                    intervals.append((layout.count, layout.count))
            self._sets[literal] = len(self._sets)
            self.intervals += intervals
            self.set_start.append(len(self.intervals))

    def add(self, alternatives: Iterable[Conjunction], target: int) -> None:
        for conjunction in alternatives:
            self.terms += sorted(
                (term.attribute, self._sets[term]) if isinstance(term, Literal) else (GATE, self._gates[term])
                for term in conjunction
            )
            self.start.append(len(self.terms))
            self.target.append(target)

    def conjunctions(self, sizes: np.ndarray, gate_start: np.ndarray) -> Conjunctions:
        return Conjunctions(
            sizes=sizes,
            set_start=np.array(self.set_start, np.int64),
            intervals=np.array(self.intervals, np.int32).reshape(-1, 2),
            start=np.array(self.start, np.int64),
            terms=np.array(self.terms, np.int32).reshape(-1, 2),
            target=np.array(self.target, np.int32),
            gate_start=gate_start,
        )


def _fingerprint(rules: Sequence[Rule], inputs: Sequence[Leaf], event_time: str | None, time_zone: str) -> str:
    """SHA-256 of what decides a match."""
    digest = hashlib.sha256()

    def feed(value: Any) -> None:
        digest.update(json.dumps(value, ensure_ascii=True).encode())
        digest.update(b"\n")

    feed([FORMAT_VERSION, time_zone, event_time])
    for leaf in inputs:
        feed([leaf.name, str(leaf.type), leaf.text])
    for rule in rules:
        feed([rule.rule_id, rule.expression.strip(), rule.valid_from, rule.valid_to])
    return digest.hexdigest()
