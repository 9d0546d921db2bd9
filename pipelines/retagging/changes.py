"""Finds the rules that tagged rows must be matched with again: those that differ between the indexes that tagged the
rows and the newest one.

A rule does not differ, and matches the same rows as before, if it has the same text, validity bounds and list contents,
and if the event time, the time zone and the types of the columns that it names are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.errors import PipelineError, TableError
from pipelines.lake.index_histories import NEW_RULES, History, index_of_step, replaced_in_step, step
from pipelines.lake.index_store import StoredIndex, indexes_by_fingerprint, newest_index
from pipelines.origin import IndexedRules
from pipelines.rule_set import RULE_COLUMNS
from pipelines.value_lists import LISTS
from pipelines.workspace import Workspace
from rules_index.index.annotate import Annotate

if TYPE_CHECKING:
    from rules_index.domains.value_lists import AnyList


@dataclass(frozen=True, slots=True)
class Changes:
    """The rules that rows must be matched with again.

    rules: those of the newest index, with their texts and bounds; former: the rules that tagged the rows in their
    place, and removed rules; ids_in_rows: the ids of all these rules that rows may have now. If `everything` is set, it
    is not known which rules tagged the rows, or these mean something else now: the rows lose all their ids, and `rules`
    are all rules. types_changed: rules that tagged the rows name columns whose types have changed since, so it cannot
    be found out again what they matched. lists: the value lists of the newest index and of those that tagged the rows,
    one for each digest.
    """

    rules: pl.DataFrame
    former: pl.DataFrame
    ids_in_rows: tuple[Any, ...]
    everything: bool = False
    types_changed: bool = False
    lists: tuple[AnyList, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if no row can get or lose an id."""
        return not self.everything and self.rules.is_empty() and not self.ids_in_rows

    @property
    def ids(self) -> pl.Series:
        """The ids of all rules that differ, without duplicates."""
        return pl.concat([self.rules["rule_id"], self.former["rule_id"]]).unique()


_TYPES = "types"
"""The column of a base with the former types of those columns that a rule names and whose types have changed since;
NULL if there are none."""
_NO_RULES = pl.DataFrame(schema={"rule_id": pl.Null})
_NONE = Changes(_NO_RULES, _NO_RULES, ())
"""No rule differs."""


def changes_of(
    bases: Iterable[pl.DataFrame | None], now: pl.DataFrame, only_new: bool, command: str = "deltatag retag"
) -> Changes:
    """Returns the rules that differ between `now`, the newest rules, and any of the bases.

    A base has the rules that tagged some of the rows, or is None if these are not known. Bases and `now` have the
    columns rule_id, expression, valid_from, valid_to and lists, and annotations and types if there are any. A rule that
    differs from only one of several bases is included: matching a row with more rules than necessary changes nothing.
    only_new: only rules whose id a base lacks. Raises TableError if `only_new` is set and a base is not known; command:
    what then applies all rules.
    """
    bases = list(bases)
    known = [base.with_columns(_no_types(base)) for base in bases if base is not None]
    now = now.with_columns(_no_types(now))
    if any(base is None for base in bases):
        if only_new:
            raise TableError(
                "Which rules are new is not known: the index that tagged the rows, or the version of rules that it "
                f"was made from, no longer exists. Bring all rules up to date once: {command}"
            )
        return Changes(now.drop(_TYPES), now.drop(_TYPES).clear(), (), everything=True)
    compared = [*RULE_COLUMNS, *(name for name in now.columns if name in ("annotations", LISTS, _TYPES))]
    key = ["rule_id"] if only_new else compared
    differ = pl.concat(
        [now.clear(), *(now.join(base, on=key, how="anti", nulls_equal=True) for base in known)]
    ).unique()
    former = [now.clear()]
    for base in known:
        replaceable = base.join(differ, on="rule_id", how="semi") if only_new else base
        former.append(replaceable.join(now, on=compared, how="anti", nulls_equal=True))
    rules = differ.drop(_TYPES).unique().sort("rule_id")
    replaced = pl.concat(former).drop(_TYPES).unique()
    changed = pl.concat([rules["rule_id"], replaced["rule_id"]]).unique()
    # not just the ids of `replaced`: if one base has a rule as it is now and another lacks it, rows have its id, too
    held = [base.filter(pl.col("rule_id").is_in(changed.implode()))["rule_id"] for base in known]
    ids = pl.concat(held).unique().sort() if held else changed.clear()
    types_changed = any(base[_TYPES].is_not_null().any() for base in known)
    return Changes(rules, replaced, tuple(ids.to_list()), types_changed=types_changed)


def _no_types(rules: pl.DataFrame) -> list[pl.Expr]:
    return [] if _TYPES in rules.columns else [pl.lit(None, pl.String).alias(_TYPES)]


@dataclass(frozen=True, slots=True)
class _Meaning:
    """Everything besides the rules' texts that decides which rows they match and how these are annotated."""

    event_time: str | None
    time_zone: str
    columns: Mapping[str, str]
    annotate: Annotate | None = None

    def agrees(self, other: _Meaning) -> bool:
        """True if equal texts have equal meaning, provided that the columns that they name have the same types."""
        same = self._event_column() == other._event_column() and self.time_zone == other.time_zone
        return same and self.annotate == other.annotate

    def _event_column(self) -> tuple[str, str | None]:
        """The event time's column in lower case, and its type: validity bounds refer to it without naming it."""
        name = (self.event_time or "").lower()
        return name, next((kind for column, kind in self.columns.items() if column.lower() == name), None)

    def types_named(self, now: _Meaning) -> pl.Expr:
        """Returns an expression over rules with this meaning: the columns that a rule names and whose types have
        changed until `now`, each with its former type, as one text; NULL if there are none.

        A name that merely occurs in the text counts, too: matching with a rule in vain changes nothing.
        """
        texts = pl.col("expression").str.to_lowercase()
        types = [
            pl.when(texts.str.contains(name.replace("`", "``").lower(), literal=True)).then(pl.lit(f"{name} {kind}"))
            for name, kind in self.columns.items()
            if now.columns.get(name, kind) != kind
        ]
        listed = pl.concat_str(types, separator=", ", ignore_nulls=True) if types else pl.lit("")
        return pl.when(listed != "").then(listed).alias(_TYPES)


class RuleSets:
    """The rules of stored indexes; those of each index are read once."""

    def __init__(self, workspace: Workspace, scope: str) -> None:
        self._workspace, self._scope = workspace, scope
        self._found: dict[str, tuple[pl.DataFrame, _Meaning] | None] = {}
        self._folded: dict[History, History] = {}
        self._lists: dict[tuple[str, str], AnyList] = {}

    def changes(self, histories: Iterable[History], stored: StoredIndex, mode: str) -> Changes:
        """Returns the rules that differ between these index histories and a stored index.

        SourceError if the rules of the stored index are gone; not if it has tagged all rows, since then nothing
        differs.
        """
        histories = frozenset(histories)
        if histories <= {(stored.fingerprint,)}:
            return _NONE
        now = IndexedRules.of(self._workspace, stored)
        meaning = _meaning(now, stored)
        rules = _with_times(now.rules)
        self._found[stored.fingerprint] = (rules, meaning)
        bases = [self.of_history(history, meaning) for history in sorted(histories)]
        self._lists |= {(each.name, each.digest): each for each in now.lists}
        stream = self._workspace.configuration.streams.get(self._scope)
        only_matched = stream is not None and stream.output == "matched"
        command = f"deltatag tag {self._scope} --restart" if only_matched else f"deltatag retag {self._scope}"
        return replace(changes_of(bases, rules, mode == NEW_RULES, command), lists=tuple(self._lists.values()))

    def of_history(self, history: History, meaning: _Meaning | None = None) -> pl.DataFrame | None:
        """Returns the rules that tagged the rows of a history; None if they are not known, or have another meaning now.

        meaning: what rules mean now, by which the column `types` is added; None skips the comparison, and the column.
        """
        rules: pl.DataFrame | None = None
        for each in history:
            known = self._of_index(index_of_step(each))
            if known is None or (meaning is not None and not known[1].agrees(meaning)):
                return None
            added = known[0] if meaning is None else known[0].with_columns(known[1].types_named(meaning))
            if rules is None:
                rules = added
                continue
            rules = rules.filter(~pl.col("rule_id").is_in(replaced_in_step(each)))
            rules = pl.concat([rules, added.join(rules, on="rule_id", how="anti")])
        return rules

    def folded(self, history: History) -> History:
        """Returns a history of the same rules, without the indexes that add none to those before and after them.

        Without this, histories would grow with each re-tag by added rules, and so would the cost of the next one.
        """
        found = history[-1:]
        for each in reversed(history[:-1]):
            whole = (each, *found)
            if whole not in self._folded:
                self._folded[whole] = self._without_needless(whole)
            found = self._folded[whole]
        return (index_of_step(found[0]), *found[1:])

    def _without_needless(self, history: History) -> History:
        last = self._of_index(index_of_step(history[-1]))
        rules = self.of_history(history, last[1]) if last is not None else None
        if last is None or rules is None:
            return history
        place = 0
        while place < len(history) - 1:
            fewer = _without_step(history, place)
            if _are_same(self.of_history(fewer, last[1]), rules):
                history = fewer
            else:
                place += 1
        return history

    @cached_property
    def _stored(self) -> dict[str, StoredIndex]:
        return indexes_by_fingerprint(self._workspace.lake, self._scope)

    def _of_index(self, fingerprint: str) -> tuple[pl.DataFrame, _Meaning] | None:
        if fingerprint not in self._found:
            found, lake = None, self._workspace.lake
            try:
                # another run may have stored one since
                stored = self._stored.get(fingerprint) or newest_index(lake, self._scope, fingerprint)
                if stored is not None:
                    indexed = IndexedRules.of(self._workspace, stored)
                    found = (_with_times(indexed.rules), _meaning(indexed, stored))
                    self._lists |= {(each.name, each.digest): each for each in indexed.lists}
            except PipelineError:
                found = None
            self._found[fingerprint] = found
        return self._found[fingerprint]


def _without_step(history: History, place: int) -> History:
    """Leaves a step out. The next one also replaces the texts that it replaced, since steps before may have others."""
    left_out, later = history[place : place + 2]
    replaced = {*replaced_in_step(left_out), *replaced_in_step(later)}
    return (*history[:place], step(index_of_step(later), replaced), *history[place + 2 :])


def _are_same(some: pl.DataFrame | None, others: pl.DataFrame) -> bool:
    """Whether two frames of rules have the same ones, each at most once."""
    if some is None or some.height != others.height:
        return False
    return some.join(others, on=others.columns, how="anti", nulls_equal=True).is_empty()


def _with_times(rules: pl.DataFrame) -> pl.DataFrame:
    """Returns the rules with bounds of one type, even if their version of `rules` had no such columns, and with a
    column `lists`, which is NULL if the index has no value lists."""
    missing = [name for name in ("valid_from", "valid_to") if rules.schema[name] == pl.Null]
    found = rules.with_columns(pl.col(name).cast(pl.Datetime("us", "UTC")) for name in missing)
    return found if LISTS in found.columns else found.with_columns(pl.lit(None, pl.String).alias(LISTS))


def _meaning(indexed: IndexedRules, stored: StoredIndex) -> _Meaning:
    annotate = indexed.annotations.annotate if indexed.annotations is not None else None
    return _Meaning(indexed.event_time, indexed.time_zone, stored.columns, annotate)
