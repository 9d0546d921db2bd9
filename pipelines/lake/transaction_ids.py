"""The transaction identifiers that make writes of micro-batches idempotent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake

GIVEN_UP = 1 << 62
"""The transaction version that fences off an abandoned series; one more if its last micro-batch was written."""


def application(series: str, name: str) -> str:
    """The `appId` of a series of micro-batches in the log of one table."""
    return f"deltatag/{series}/{name}"


def app_of(plan: Mapping[str, Any], name: str) -> str:
    """The `appId` of a planned micro-batch in the log of one table.

    If an earlier plan of the micro-batch has already written the table, it is that plan's.
    """
    return application(plan.get("written", {}).get(name, plan["series"]), name)


def retags_of(name: str) -> str:
    """The end of the `appId`s of all re-tags in the log of one table."""
    return f"/{name}/retag"


class _Log(Protocol):
    """A Delta log (`delta_log.DeltaLog`, or that of Spark's library)."""

    def commits(self) -> range: ...

    def commit(self, version: int) -> list[dict[str, Any]] | None: ...


def files_added_by(log: _Log, app: str, number: int) -> tuple[int, list[tuple[int, dict[str, Any]]]] | None:
    """The version that transaction `number` of an `appId` made of a table, and the files that it added, each with that
    version; None if the log no longer holds its commit."""
    for version in reversed(log.commits()):
        actions = log.commit(version) or []
        if any("txn" in a and (a["txn"]["appId"], a["txn"]["version"]) == (app, number) for a in actions):
            return version, [(version, action["add"]) for action in actions if "add" in action]
    return None


class Undone(NamedTuple):
    """A RESTORE of a table to a state from before a transaction. version: the newest one before it; state: the version
    that the table is like now, -1 if a RESTORE names a time and the log no longer has a version with the same files."""

    version: int
    state: int


def undone(log: _Log, apps: Collection[str], oldest: int = -1, suffix: str | None = None) -> Undone | None:
    """The RESTORE that has undone the last transaction of some `appId`s, or version `oldest` if none is later; None if
    there is none. suffix: of further such `appId`s."""

    def is_wanted(app: str) -> bool:
        """Whether this is one of the `appId`s."""
        return app in apps or (suffix is not None and app.endswith(suffix))

    targets: dict[int, int] = {}
    versions = log.commits()
    for version in reversed(versions):
        actions = log.commit(version) or []
        if version <= oldest or any(is_wanted(each["txn"]["appId"]) for each in actions if "txn" in each):
            break
        targets[version] = _before(log, version, actions)
    else:
        return None

    def state_at(each: int) -> int:
        """The version that an equal or later one is like; the transaction's if that is not undone."""
        while each > version:
            each = targets[each]
        return each

    state = state_at(versions[-1])
    if state == version:
        return None
    return Undone(next(each for each in reversed(versions) if state_at(each) == version), state)


def holds(log: _Log, state: int, version: int) -> bool | None:
    """Whether a table at version `state` has what the commit `version` wrote, since no RESTORE between them has undone
    it; None if the log no longer says what one has restored."""
    while state > version:
        actions = log.commit(state)
        state = -1 if actions is None else _before(log, state, actions)
    return None if state < 0 else state == version


def _before(log: _Log, version: int, actions: list[dict[str, Any]]) -> int:
    """The version that a commit has added something to: the one before it or, for a RESTORE, the one that the table is
    like after it, -1 if the log no longer has that."""
    for info in (each["commitInfo"] for each in actions if "commitInfo" in each):
        if info.get("operation") == "RESTORE":
            named = (info.get("operationParameters") or {}).get("version")
            return int(named) if named is not None else _version_like(log, version)
    return version - 1


def _version_like(log: _Log, version: int) -> int:
    """The newest version before a RESTORE, `version`, that has the same files as it; -1 if the log has none.

    For one that names a time: the log has only its text, in a time zone that it does not name.
    """
    first: dict[tuple[str, str], bool] = {}
    last: dict[tuple[str, str], bool] = {}
    changed: set[tuple[str, str]] = set()
    for each in range(version, log.commits().start, -1):
        actions = log.commit(each)
        if actions is None:
            return -1
        added, removed = ({_file(a[kind]) for a in actions if kind in a} for kind in ("add", "remove"))
        for file in added ^ removed:
            first[file] = file in added
            last.setdefault(file, file in added)
            # a file that is first removed and last added was there, and is there
            (changed.add if first[file] == last[file] else changed.discard)(file)
        if not changed:
            return each - 1
    return -1


def _file(action: Mapping[str, Any]) -> tuple[str, str]:
    """A file with its deletion vector, if it has one."""
    vector = action.get("deletionVector") or {}
    return action["path"], f"{vector.get('storageType')}{vector.get('pathOrInlineDv')}@{vector.get('offset')}"


def is_done(lake: Lake, name: str, app: str, number: int) -> bool:
    """True if the table holds transaction `number` of an `appId`, or a later one."""
    version = lake.delta(name).transaction_version(app)
    return version is not None and version >= number
