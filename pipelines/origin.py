"""Proves that the tagged table of another stream, the origin, holds every row that a stream's rules can match.

The origin's table may hold only rows that matched the rules in force when they were tagged. So for each slice that a
stream takes from it, each rule of the stream must be implied by the union of those rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

import rules_index as ri
from pipelines.errors import NotImpliedError, PipelineError, SourceError
from pipelines.indexed_rules import indexed_rules
from pipelines.lake.index_histories import (
    IndexHistories,
    index_histories,
    index_of_step,
    is_retagged,
    replaced_in_step,
    retag_scope,
    step,
)
from pipelines.lake.index_store import StoredIndex, fetch_index, index_to_tag_with, newest_index
from pipelines.lake.runs import DONE, FOLDED, PLANNED, MicroBatch, batches, newest_first
from pipelines.lake.transaction_ids import GIVEN_UP
from pipelines.rule_set import NOT_IMPLIED, REJECT_SCHEMA, RULE_COLUMNS, as_rejects
from pipelines.scopes import Scope, StreamScope
from pipelines.settings.model import Stream
from pipelines.settings.streams_over_streams import not_asked
from pipelines.sources.positions import Slice
from pipelines.sources.source import Source
from pipelines.table_definitions import tagged_table
from pipelines.value_lists import contents, read_lists
from pipelines.workspace import Workspace
from rules_index.domains.list_names import names_in

if TYPE_CHECKING:
    from rules_index.domains.value_lists import AnyList
    from rules_index.index.annotations import Annotations

_NAMED = 5
"""Maximum number of rules that a message names."""


@dataclass(frozen=True, slots=True)
class IndexedRules:
    """The rules that an index was compiled from.

    rules: the columns rule_id, expression, valid_from, valid_to; `lists` (`value_lists.contents`) if the index has
    value lists; `annotations`, each rule's as one text, if the index has annotations. event_time, time_zone: what the
    index was compiled with; annotations, lists: what the index has.
    """

    rules: pl.DataFrame
    rules_version: int
    event_time: str | None
    time_zone: str
    annotations: Annotations | None = None
    lists: Sequence[AnyList] = ()

    @classmethod
    def of(cls, workspace: Workspace, stored: StoredIndex) -> IndexedRules:
        """The rules of a stored index, as `rules` had them; SourceError if the index is not readable."""
        try:
            compiled = ri.load(fetch_index(workspace.lake, stored))
            found = indexed_rules(compiled)
        except (PipelineError, ri.RulesIndexError) as error:
            raise SourceError(
                f"The rules of {stored.scope} in version {stored.rules_version} of the table rules can no longer "
                f"be read, so it is not known which rows they matched: {error}"
            ) from error
        if compiled.annotations is not None:
            from rules_index.compiling.rule_annotations import texts

            annotated = pl.DataFrame({"rule_id": found["rule_id"], "annotations": texts(compiled.annotations.rules)})
            found = found.join(annotated, on="rule_id", how="left", maintain_order="left")
        lists = [*compiled.lists.values()]
        if lists:
            found = found.with_columns(contents(found, lists))
        zone = compiled.time_zone
        return cls(found, stored.rules_version, compiled.event_time, zone, compiled.annotations, lists)


class Origin:
    """The stream whose tagged rows another one reads."""

    def __init__(self, workspace: Workspace, stream: Stream) -> None:
        assert stream.source_stream is not None
        self.workspace, self.stream = workspace, stream
        self.origin = workspace.configuration.stream(stream.source_stream)

    def implies_now(self, rules: pl.DataFrame, known: str | None) -> tuple[str | None, pl.DataFrame]:
        """Finds out which of these rules the rules of the origin's newest index imply.

        rules: the stream's, with the columns of `RULE_COLUMNS`; known: a fingerprint for which that is already proven.
        Returns the index's fingerprint, and the rules to refuse, as rejects: those that are not implied and were not
        compiled before. The fingerprint is None if the origin keeps all rows, so that nothing must be implied. Raises
        NotImpliedError if a rule that was compiled before is no longer implied: the stream stops, since the rule would
        lose matches by an edit of the origin's rules; NoIndexError if the origin has no index; SourceError if nothing
        can be proven.
        """
        refused = pl.DataFrame(schema=REJECT_SCHEMA)
        if self.origin.output != "matched":
            return None, refused
        stored = index_to_tag_with(self.workspace.lake, self.origin.name)
        if stored.fingerprint != known:
            zone = self.workspace.configuration.rules.time_zone
            lists, _ = read_lists(self.workspace.configuration, rules["expression"])
            mine = IndexedRules(rules, stored.rules_version, self.stream.event_time, zone, lists=lists)
            theirs = IndexedRules.of(self.workspace, stored)
            missing = self._not_implied(mine, theirs)
            if missing.height:
                new = missing.join(self._new_among(rules), on="rule_id", how="semi")
                if new.height < missing.height:
                    raise NotImpliedError(self._message(missing, len(rules), stored.rules_version))
                refused = self._as_rejects(new, stored.rules_version)
        return stored.fingerprint, refused

    def newest(self) -> str | None:
        """The fingerprint that `implies_now` would return; None also if the origin has no index."""
        stored = newest_index(self.workspace.lake, self.origin.name) if self.origin.output == "matched" else None
        return None if stored is None else stored.fingerprint

    def _new_among(self, rules: pl.DataFrame) -> pl.DataFrame:
        """The rules that the stream's newest index lacks, or has with another text or validity.

        None of them if that index is not readable: then it is not known.
        """
        stored = newest_index(self.workspace.lake, self.stream.name)
        if stored is None:
            return rules
        try:
            before = IndexedRules.of(self.workspace, stored).rules.select(RULE_COLUMNS)
        except SourceError:
            return rules.clear()
        if before["rule_id"].dtype != rules["rule_id"].dtype:
            return rules
        return rules.cast(before.schema).join(before, on=RULE_COLUMNS, how="anti", nulls_equal=True)

    def _as_rejects(self, refused: pl.DataFrame, rules_version: int) -> pl.DataFrame:
        """Rules that are not implied, as rejects; refused: as `_not_implied` returns them."""
        name, origin = self.stream.name, self.origin.name

        def says(found: str) -> pl.Expr:
            """The message, given what was found out."""
            return pl.lit(
                f"{name} reads what {origin} has tagged, and {found} that the rules of {origin} in version "
                f"{rules_version} of rules imply this one: rows that it matches would be missing. Narrow it, widen the "
                f"rules of {origin}, or let {name} read the source itself: source in place of source_stream."
            )

        undecided = pl.col("implied").is_null()
        message = pl.when(undecided).then(says("it could not be shown")).otherwise(says("it is not so"))
        found = refused.with_columns(scope=pl.lit(name), error=pl.lit(NOT_IMPLIED), message=message, position=None)
        return as_rejects(found)

    def implies_taken(
        self,
        source: Source,
        taken: Slice,
        stored: StoredIndex,
        known: Collection[str | None],
        later_commits: bool = False,
    ) -> list[str]:
        """Proves that each index that tagged rows of the slice implies the stream's rules; returns them as steps.

        A step names an index, and rules of it whose texts were replaced since (`pipelines.lake.index_histories`). Only
        micro-batches in which the origin kept only matching rows count. known: steps for which it is already proven;
        later_commits: the stream has also taken, or will take, the rows that re-tags of the origin have added since.
        Raises NotImpliedError; SourceError if rows are missing for another reason, or nothing can be proven.
        """
        found = set[str]()
        for batch in self._batches(source, taken):
            if self._kept_only_matched(batch):
                # a commit has the rows as the micro-batch wrote them, a snapshot as the re-tags have left them
                retagged = taken.start.snapshot or later_commits
                histories = self._histories.of_batch(batch) if retagged else [(str(batch.fingerprint),)]
                found |= {step(each[0], {*chain.from_iterable(map(replaced_in_step, each))}) for each in histories}
        if unknown := sorted(found.difference(known)):
            mine = IndexedRules.of(self.workspace, stored)
            for each in unknown:
                fingerprint, replaced = index_of_step(each), replaced_in_step(each)
                before = newest_index(self.workspace.lake, self.origin.name, fingerprint)
                if before is None:
                    raise self._unknown(f"the index {fingerprint[:12]} that tagged them is no longer in rule_index")
                self._refuse_unless_implied(mine, before, replaced)
        return sorted(found)

    def _batches(self, source: Source, taken: Slice) -> Iterator[MicroBatch]:
        """The origin's micro-batches that wrote, or left out, rows of the slice."""
        if taken.skipped:
            return
        known = self._micro_batches
        for number in self._numbers_in(source, taken, known):
            if number not in known:
                raise self._unknown(f"its micro-batch {number} is no longer in runs")
            if known[number].plan.get("reset"):
                return
            if known[number].plan["files"]:
                yield known[number]

    @cached_property
    def _micro_batches(self) -> dict[int, MicroBatch]:
        """The origin's micro-batches by number; a row into which old ones were folded stands for each of them.

        Read once per run: a micro-batch is in `runs` before its rows are in the table, so none can be missing.
        """
        known = batches(self.workspace.lake, self.origin.name)
        return {number: each for each in known for number in range(each.plan.get(FOLDED, each.batch), each.batch + 1)}

    @cached_property
    def _histories(self) -> IndexHistories:
        """The indexes by which the rows of the origin's micro-batches are tagged now."""
        lake, name, through = self.workspace.lake, self.origin.name, max(self._micro_batches, default=-1)
        table = tagged_table(name)
        # a re-tag may have been stopped after it wrote the rows
        retags = (
            replace(each, state=DONE)
            if each.state == PLANNED and is_retagged(lake, each.plan, table, each.batch)
            else each
            for each in newest_first(lake, retag_scope(name))
        )
        return index_histories(newest_first(lake, name), retags, through)

    def _numbers_in(self, source: Source, taken: Slice, known: Collection[int]) -> Iterable[int]:
        """The numbers of the micro-batches of a slice; for a snapshot all numbers up to it, descending."""
        if taken.start.snapshot:
            later = self._numbers(source, range(taken.start.version + 1, source.version + 1))
            return range(min(later, default=max(known, default=-1) + 1) - 1, -1, -1)
        return self._numbers(source, range(taken.start.version, taken.end.version + (1 if taken.end.index else 0)))

    def _numbers(self, source: Source, versions: Iterable[int]) -> list[int]:
        """The numbers of the micro-batches that wrote these versions of the tagged table."""
        ending = f"/{tagged_table(self.origin)}"
        marks: Iterator[dict[str, Any]] = (
            action["txn"] for version in versions for action in source.log.commit(version) or () if "txn" in action
        )
        numbers = [int(mark["version"]) for mark in marks if str(mark["appId"]).endswith(ending)]
        return [number for number in numbers if number < GIVEN_UP]

    def _kept_only_matched(self, batch: MicroBatch) -> bool:
        """Whether the origin's micro-batch wrote only rows that matched.

        SourceError if the stream would lack rows: those that did not match, or those that only the origin quarantines.
        """
        plan, name, origin = batch.plan, self.stream.name, self.origin.name
        only_matched = bool(plan["output"] == "matched")
        if only_matched and self.stream.output != "matched":
            raise SourceError(
                f"Micro-batch {batch.batch} of {origin} wrote only rows that matched its rules, and {name} would lack "
                f'the others: write output = "matched" in [streams.{name}]. {self._from_scratch()}'
            )
        keys, checks = not_asked(self.stream, plan["key"], plan["checks"])
        if keys or checks:
            listed = [*(f"NULL in the key {key}" for key in keys), *(f"the check {check}" for check in checks)]
            raise SourceError(
                f"Micro-batch {batch.batch} of {origin} refused rows by {', '.join(listed)}, which {name} does not "
                f"have, so that {name} would lack them: add it to [streams.{name}]. {self._from_scratch()}"
            )
        return only_matched

    def _refuse_unless_implied(self, mine: IndexedRules, stored: StoredIndex, replaced: Sequence[Any]) -> None:
        """Raise NotImpliedError unless the index's rules together imply mine.

        replaced: ids of rules of the index that do not count.
        """
        try:
            theirs = IndexedRules.of(self.workspace, stored)
        except SourceError as error:
            raise self._unknown(
                f"the index {stored.fingerprint[:12]} that tagged them cannot be read, since another version of "
                "deltatag wrote it or it is damaged"
            ) from error
        theirs = replace(theirs, rules=theirs.rules.filter(~pl.col("rule_id").is_in(replaced)))
        missing = self._not_implied(mine, theirs)
        if missing.height:
            message = self._message(missing, len(mine.rules), theirs.rules_version)
            raise NotImpliedError(f"{message} {self._from_scratch()}")

    def _not_implied(self, mine: IndexedRules, theirs: IndexedRules) -> pl.DataFrame:
        """The rules of `mine` that those of `theirs` do not together imply, as `implied_by` returns them."""
        if theirs.time_zone != mine.time_zone:
            raise self._unknown(f"they were tagged by rules in the time zone {theirs.time_zone}, not {mine.time_zone}")
        self.workspace.progress(
            f"{self.stream.name}: do the rules of {self.origin.name} imply its {len(mine.rules):,}?"
        )
        found = implied_by(mine, theirs, StreamScope(self.workspace, self.origin).columns())
        return found.filter(~pl.col("implied").fill_null(False))

    def _message(self, refused: pl.DataFrame, count: int, rules_version: int) -> str:
        name, origin = self.stream.name, self.origin.name
        unknown = refused.filter(pl.col("implied").is_null()).height
        listed = ", ".join(map(str, refused.sort(pl.col("implied").is_null(), "rule_id")["rule_id"][:_NAMED]))
        more = f" and {refused.height - _NAMED:,} more" if refused.height > _NAMED else ""
        undecided = f" ({unknown:,} of them may be, which could not be shown)" if unknown else ""
        return (
            f"{name} reads what {origin} has tagged, and {refused.height:,} of the {count:,} rules of {name} are not "
            f"implied by the rules of {origin} in version {rules_version} of rules{undecided}, so that rows which they "
            f"match would be missing: {listed}{more}. Correct the rules of {name} or {origin}, or let {name} read the "
            "source itself: source in place of source_stream."
        )

    def _unknown(self, reason: str) -> SourceError:
        name, origin = self.stream.name, self.origin.name
        return SourceError(
            f"Whether the rows that {origin} has tagged are all that {name} needs is not known: {reason}. "
            f"Let {name} read the source itself (source in place of source_stream). {self._from_scratch()}"
        )

    def _from_scratch(self) -> str:
        """Advice for a message: how to tag all rows again."""
        name, origin = self.stream.name, self.origin.name
        return f"Or tag all rows again: deltatag tag {origin} --restart, then deltatag tag {name} --restart"


def implied_by(mine: IndexedRules, theirs: IndexedRules, schema: pa.Schema) -> pl.DataFrame:
    """For each rule of `mine`, whether the rules of `theirs` together imply it: the columns rule_id and implied.

    implied is NULL for a rule for which `rules_index.implied_by_union` cannot decide it, or that does not compile over
    `schema`.
    """
    others, event_time = theirs.rules, mine.event_time or theirs.event_time
    if event_time is not None and (theirs.event_time or event_time).lower() != event_time.lower():
        # bounds on another event time cannot be compared with mine
        others = others.filter(pl.col("valid_from").is_null() & pl.col("valid_to").is_null())
    lists = {each.name: each for each in (*theirs.lists, *mine.lists)}
    edited = {each.name for each in theirs.lists if lists[each.name].digest != each.digest}
    if edited:
        # these rules cannot be compiled together with mine, for which the name stands for other values
        others = others.filter(
            pl.Series([edited.isdisjoint(names_in(text)) for text in others["expression"]], dtype=pl.Boolean)
        )
    found = ri.implied_by_union(
        mine.rules.to_arrow(), others.to_arrow(), schema, event_time, mine.time_zone, [*lists.values()]
    )
    # NULL for a rule that does not compile with these columns
    return mine.rules.select("rule_id").join(pl.DataFrame(pl.from_arrow(found)), on="rule_id", how="left")


def origin_of(scope: Scope) -> Origin | None:
    """The origin of a stream that reads another stream's tagged rows; None for other scopes."""
    if not isinstance(scope, StreamScope) or scope.stream.source_stream is None:
        return None
    return Origin(scope.workspace, scope.stream)
