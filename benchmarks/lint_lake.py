"""Lint over many rules of a lake, with planted ones that only sources and past runs give away.

    python -m benchmarks.lint_lake [--rules 100000] [--planted 1000] [--rows 20000]

Tags rows by rules of which some ask for values that the source does not have, match no row, match most rows or raise
errors, and tells what `deltatag lint` says of them. Nothing is printed unless each planted rule was found, and nothing
was told of another one.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from benchmarks import lakes
from benchmarks.report import machine, print_table
from pipelines.lint_kinds import DEAD, NOISY, OUT_OF_RANGE, RUN_TIME_ERRORS, UNKNOWN_VALUE

if TYPE_CHECKING:
    from pipelines.lint import LintResult
    from pipelines.workspace import Workspace

SEED = 5
GAP = 10
"""Of so many accounts one has no row."""
KINDS = (OUT_OF_RANGE, RUN_TIME_ERRORS, DEAD, NOISY)


def planted(rules: int, each: int, rows: pa.Table) -> tuple[list[str], dict[int, str]]:
    """So many rules, `each` of every kind, in any order; and the kinds of those that were planted, by number."""
    draw = np.random.default_rng(SEED)
    most = rows.num_rows * GAP // (GAP - 1)
    texts = []
    for n in range(each):
        texts += [
            (OUT_OF_RANGE, (f"account = {most + 1 + n}", f"score < 0 AND account <> {n}", f"origin = 'a{n}'")[n % 3]),
            (RUN_TIME_ERRORS, f"CAST(code AS INT) = {n} OR account = {_account(n, rows.num_rows)}"),
            (DEAD, f"account = {(n % (most // GAP - 1) + 1) * GAP} AND score >= {n % 900}"),
            (NOISY, f"score >= {n % 400} AND account <> {most + 1 + n}"),
        ]
    if len(texts) > rules:
        raise SystemExit(f"{each:,} rules of every kind are more than {rules:,}.")
    texts += [("", _of_row(draw, rows)) for _ in range(rules - len(texts))]
    order = draw.permutation(len(texts)).tolist()
    return [texts[n][1] for n in order], {place: texts[n][0] for place, n in enumerate(order) if texts[n][0]}


def _account(number: int, rows: int) -> int:
    """An account that has a row."""
    number %= rows
    return number + number // (GAP - 1) + 1


def _of_row(draw: np.random.Generator, rows: pa.Table) -> str:
    """A rule that is in order: some row satisfies it."""
    row = int(draw.integers(0, rows.num_rows))
    account, score, origin = (rows[name][row].as_py() for name in ("account", "score", "origin"))
    least = score - int(draw.integers(0, 30))
    return f"account = {account} AND score BETWEEN {least} AND {score}" + f" AND origin = '{origin}'" * (row % 2)


def source_rows(count: int) -> pa.Table:
    """Rows of one account each; codes are numbers but for a few."""
    draw = np.random.default_rng(SEED)
    code = draw.integers(2_000, 9_999, count).astype(str)
    code[::50] = "none"
    return pa.table(
        {
            "account": [_account(n, count) for n in range(count)],
            "score": draw.integers(0, 1_000, count),
            "origin": np.char.add("A", draw.integers(0, 400, count).astype(str)),
            "code": code,
        }
    )


def wrong(result: LintResult, kinds: dict[int, str]) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """What was planted and not told, and what was told without reason."""
    told = {(int(each.rule_id or 0), kind) for each in result.findings if (kind := _kind(each.kind)) in KINDS}
    wanted = set(kinds.items())
    # what no row of the source can match has matched no row
    unasked = {(rule, kind) for rule, kind in told - wanted if (kind, kinds.get(rule)) != (DEAD, OUT_OF_RANGE)}
    return sorted(wanted - told), sorted(unasked)


def _kind(kind: str) -> str:
    """A text beyond the source's values is told of as the value near to it, where there is one."""
    return OUT_OF_RANGE if kind == UNKNOWN_VALUE else kind


def _lint(workspace: Workspace) -> tuple[LintResult, float]:
    from pipelines.lint import lint_scopes

    started = time.perf_counter()
    (result,) = lint_scopes(workspace, ["accounts"])
    return result, time.perf_counter() - started


def main(arguments: list[str] | None = None) -> None:
    """Plant, tag, look, compare, print."""
    from pipelines.tag import tag_stream

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rules", type=int, default=100_000)
    parser.add_argument("--planted", type=int, default=1_000, help="rules of each kind")
    parser.add_argument("--rows", type=int, default=20_000)
    options = parser.parse_args(arguments)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="deltatag-bench-") as name:
        folder = Path(name)
        rows = source_rows(options.rows)
        write_deltalake(str(folder / "accounts"), rows)
        texts, kinds = planted(options.rules, options.planted, rows)
        streams = {"accounts": {"source": str(folder / "accounts")}}
        workspace = lakes.lake(
            folder / "lake", lakes.session(folder), "accounts", texts, id_type="bigint", streams=streams
        )
        tagged = tag_stream(workspace, "accounts")
        result, seconds = _lint(workspace)
    not_told, unasked = wrong(result, kinds)
    if result.error or not_told or unasked:
        raise SystemExit(result.error or f"Not told: {not_told[:5]}; told without reason: {unasked[:5]}.")
    findings = [_kind(each.kind) for each in result.findings if kinds.get(int(each.rule_id or 0)) == _kind(each.kind)]
    told, plan = Counter(findings), Counter(kinds.values())
    title = f"{options.rules:,} rules, {tagged.rows:,} rows tagged, {seconds:.1f} s; {machine()}"
    print_table(title, ("kind", "planted", "told"), [(kind, plan[kind], told[kind]) for kind in KINDS])


if __name__ == "__main__":
    main()
