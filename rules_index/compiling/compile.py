"""Compiles rules to an index: texts to formulas, formulas to conjunctions, conjunctions to an engine's arrays."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rules_index.compiling.builder import Analyse, ConjunctionBuilder, FlattenedRules
from rules_index.compiling.fingerprint import fingerprint, lists_named, rule_digests
from rules_index.compiling.rule_columns import Rejects, RuleColumns, Rules, read_rules
from rules_index.compiling.template_compiler import TemplateCompiler
from rules_index.compiling.validity import validity
from rules_index.domains.value_lists import AnyList, by_name
from rules_index.errors import RuleError, RulesIndexError, unforeseen
from rules_index.index.annotate import Annotate
from rules_index.index.annotations import Annotations, settings_of
from rules_index.index.artifact import FORMAT_VERSION, LANGUAGE_VERSION
from rules_index.index.build import build
from rules_index.index.code_matrix import Sample, sample_codes
from rules_index.index.compiled import CompiledRules
from rules_index.index.inputs import inputs_of
from rules_index.index.registry import ENGINES
from rules_index.index.rule_source import RuleSource
from rules_index.index.rule_texts import RuleTexts
from rules_index.language.coercion import normalise
from rules_index.language.compiler import Compiler
from rules_index.language.evaluation.datetime_parser import has_region, zone_offset
from rules_index.language.formula import And, Formula
from rules_index.language.scope import Scope, quote
from rules_index.language.suggestions import with_suggestion
from rules_index.language.typed import Leaf
from rules_index.memory import release_freed_memory
from rules_index.names import column_key, spelled


def compile_rules(
    rules: Rules,
    schema: pa.Schema,
    engine: str = "auto",
    event_time: str | None = None,
    time_zone: str = "UTC",
    analyse: Analyse | None = None,
    sample: Sample | None = None,
    annotate: Annotate | None = None,
    lists: Sequence[AnyList] = (),
) -> CompiledRules:
    """Compiles rules over rows of `schema` into an index.

    rules: a pyarrow or Polars table with rule_id and expression (and, where present, enabled, valid_from and valid_to),
        or pairs (rule_id, expression); ids all str or all int
    schema: the columns of the rows
    engine: one of `ENGINES`, or "auto"
    event_time: the column that validity bounds are compared with
    time_zone: of timestamp literals and functions
    analyse: given derived columns, returns for each None, or why Spark refuses it
    sample: given the names of the columns that the rules read, returns some typical rows (of a table in memory:
        `table.select`), from which `auto` chooses; without it the frequencies of values are guessed
    annotate: what rows get besides ids, from the rules' columns priority, labels and severity (`index.annotations`);
        it is part of the fingerprint
    lists: the value lists that rules may name (`domains.value_lists`); the values of lists that a rule does name become
        part of the index and of the fingerprint

    A rule that does not compile is listed in `rejects` and does not affect others. Raises `RulesIndexError` if the
    rules as a whole cannot be read.
    """
    started = time.perf_counter()
    if not isinstance(schema, pa.Schema):
        raise RulesIndexError(f"The schema of the rows must be a pyarrow.Schema, not {type(schema).__name__}.")
    if engine != "auto" and engine not in ENGINES:
        raise RulesIndexError(f"There is no engine {engine!r}; choose one of auto, {', '.join(ENGINES)}.")
    if not isinstance(time_zone, str) or (zone_offset(time_zone) is None and not has_region(time_zone)):
        raise RulesIndexError(f"There is no time zone {time_zone!r}; name one like Europe/Berlin or +02:00.")
    if annotate is not None and not isinstance(annotate, Annotate):
        raise RulesIndexError(f"annotate must be an Annotate, not {type(annotate).__name__}.")
    given = ReadableRules(*read_rules(rules, time_zone, annotate))
    del rules
    settings = Settings(schema, engine, event_time, time_zone, annotate, by_name(lists))
    return compile_columns(given, settings, analyse, sample, started)


@dataclass(frozen=True)
class Settings:
    """The arguments of `compile_rules` that say what rules are compiled for; `lists` by name."""

    schema: pa.Schema
    engine: str
    event_time: str | None
    time_zone: str
    annotate: Annotate | None = None
    lists: Mapping[str, AnyList] = field(default_factory=dict)


@dataclass
class ReadableRules:
    """Rules to compile, and the rejects so far (rules that could not be read); compiling adds more."""

    rules: RuleColumns
    rejects: Rejects


def compile_columns(
    given: ReadableRules, settings: Settings, analyse: Analyse | None, sample: Sample | None, started: float
) -> CompiledRules:
    """Compiles rules that were read. `given.rules` is emptied, so that their texts can be freed before the index is
    built. started: when compiling began, by `time.perf_counter`."""
    rules, rejects = given.rules, given.rejects
    given.rules = rules.chosen(np.arange(0))
    schema, event_time, time_zone = settings.schema, settings.event_time, settings.time_zone
    builder = flatten(rules, Scope(schema, time_zone, settings.lists), event_time, rejects)
    if analyse is not None:
        builder.refuse(analyse, rejects)
    flat = builder.finish()
    accepted = rules.chosen(np.flatnonzero(builder.kept))
    inputs = inputs_of(flat.attributes)
    ids, digests = accepted.ids, rule_digests(accepted, settings.lists)
    named_lists = lists_named(accepted, settings.lists)
    texts = RuleTexts.pack(accepted.expressions, accepted.valid_from, accepted.valid_to, schema)
    annotations = None
    if settings.annotate is not None and accepted.annotations is not None:
        annotations = Annotations(settings.annotate, ids, accepted.annotations)
    # release them: a million texts take more memory than their index
    del rules, accepted, builder
    release_freed_memory()
    sampled = sample_codes(flat.attributes, flat.regions, inputs, sample) if sample is not None else None
    index, reason = build(flat.conjunctions, settings.engine, sampled)
    stats = {
        "rules": len(ids),
        "rejected": len(rejects.rows),
        **_conjunction_stats(flat, inputs),
        "sampled_rows": 0 if sampled is None else sampled.shape[1],
        "engine": index.name,
        "engine_reason": reason,
        "structure": index.structure_counts,
        "language_version": LANGUAGE_VERSION,
    }
    for array in index.arrays.values():
        array.setflags(write=False)
    return CompiledRules(
        ids=ids,
        inputs=inputs,
        attributes=flat.attributes,
        regions=flat.regions,
        index=index,
        raising=flat.raising,
        rejects=rejects.table(ids.type),
        fingerprint=fingerprint(
            [digests], [FORMAT_VERSION, LANGUAGE_VERSION, time_zone, event_time, *settings_of(annotations)], inputs
        ),
        time_zone=time_zone,
        event_time=event_time,
        stats={**stats, "build_seconds": round(time.perf_counter() - started, 6)},
        definition=RuleSource(digests),
        texts=texts,
        annotations=annotations,
        named_lists=named_lists,
    )


def _conjunction_stats(flat: FlattenedRules, inputs: Sequence[Leaf]) -> dict[str, int]:
    """The part of an index's statistics that counts conjunctions and what they are about."""
    conjunctions = flat.conjunctions
    return {
        "conjunctions": len(conjunctions.target),
        "gates": conjunctions.disjunctions,
        "terms": len(conjunctions.terms),
        "attributes": len(flat.regions),
        "derived": sum(leaf.text is not None for leaf in inputs),
        "codes": int(conjunctions.sizes.sum()),
    }


def flatten(
    rules: RuleColumns, scope: Scope, event_time: str | None, rejects: Rejects, templates: bool = True
) -> ConjunctionBuilder:
    """Compiles the rules to conjunctions, which the returned builder has collected. Adds those that do not compile to
    `rejects`.

    With `templates`, rules of one shape are compiled together first. The others are compiled one by one, so that no
    tree outlives its rule.
    """
    compiler = Compiler(scope)
    event_time_leaf = _event_time_leaf(scope.schema, event_time)
    builder = ConjunctionBuilder(rules)
    template_compiler = TemplateCompiler(rules, compiler, event_time_leaf, builder) if templates else None
    for rule in np.flatnonzero(~builder.kept).tolist():
        try:
            if template_compiler is None or not template_compiler.add(rule):
                builder.add_formula(rule, _formula(rules, rule, compiler, event_time_leaf))
        except RuleError as error:
            rejects.add(rules.rule_id(rule), with_suggestion(error, rules.text(rule), scope))
        except MemoryError:
            raise
        except Exception as error:  # whatever it is, the other rules must still be compiled
            rejects.add(rules.rule_id(rule), unforeseen(error))
    return builder


def _formula(rules: RuleColumns, rule: int, compiler: Compiler, event_time_leaf: Leaf | None) -> Formula:
    """The formula of a rule's text and validity. Raises `RuleError` if the rule is refused."""
    formula = compiler.compile(rules.text(rule))
    valid_from, valid_to = rules.validity(rule)
    if valid_from is None and valid_to is None:
        return formula
    if event_time_leaf is None:
        message = "The rule has valid_from or valid_to, but its scope has no event time to compare with."
        raise RuleError("NO_EVENT_TIME", message)
    return And((formula, validity(event_time_leaf, valid_from, valid_to, compiler.scope.time_zone)))


def _event_time_leaf(schema: pa.Schema, event_time: str | None) -> Leaf | None:
    """The event-time column, which validity is compared with; None without one. Raises `RulesIndexError` if the schema
    does not have it, or with another type."""
    if event_time is None:
        return None
    name = spelled(schema.names, event_time, column_key) if isinstance(event_time, str) else None
    if name is None:
        raise RulesIndexError(f"The event-time column {event_time} is not in the schema.")
    given = schema.field(name).type
    data_type = normalise(given)
    if data_type is None or not (pa.types.is_timestamp(data_type) or pa.types.is_date32(data_type)):
        raise RulesIndexError(f"The event-time column {name} is {given}; it must be a timestamp or a date.")
    return Leaf(quote(name), data_type)
