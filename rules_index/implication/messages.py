"""The messages of lint for the author of a rule: what is wrong, and what to change."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rules_index.names import quoted_text

_WITH_NULL = re.compile(r"(?is)(?P<left>.+?)(?P<is>(?<![<>])==?|<>|!=)\s*null|null\s*(?P<was>==?|<>|!=)(?P<right>.+)")
_ASKED = {"=": "IS NULL", "==": "IS NULL", "<>": "IS NOT NULL", "!=": "IS NOT NULL"}
_MOST_IDS, _MOST_COLUMNS, _LONGEST = 5, 8, 120
"""The most other rules and columns in a message, and the most letters of a quoted text."""


def contradiction(conflict: Sequence[str], cause: str | None) -> str:
    """The rule is never TRUE.

    conflict: one of the rule's comparisons that is never TRUE, or two that exclude each other, if they are known;
    cause: the message about the comparison that causes it, one with NULL or one that is never TRUE, if it is known.
    """
    if cause is not None:
        return f"The rule is never TRUE. {cause}"
    if len(conflict) == 1:
        return (
            f"The rule is never TRUE, because {quoted(conflict[0])} never is: check whether the ends of a BETWEEN are "
            "in the wrong order, or a value is beyond what the column can hold. Correct it, or remove the rule."
        )
    what = "its conditions"
    if conflict:
        what = " and ".join(map(quoted, conflict))
    return (
        f"The rule is never TRUE: {what} exclude each other. Change one of them, write OR if either will do, or remove "
        "the rule."
    )


def applies_never(valid_from: str, valid_to: str) -> str:
    """The rule's validity bounds leave no time between them."""
    return (
        f"The rule never applies, whatever its expression says: its valid_to, {valid_to}, is not after its valid_from, "
        f"{valid_from}. Correct one of them."
    )


def tautology() -> str:
    """The rule is always TRUE."""
    return (
        "The rule is TRUE on every row, so every row gets its id. If that is meant, write TRUE; else look for an OR "
        "that should be an AND, or for a condition that is too wide."
    )


def duplicate(others: Sequence[Any]) -> str:
    """The rule and others are equal."""
    which = "Rule {} says" if len(others) == 1 else "Rules {} say"
    return f"{which.format(named(others))} the same as this one, in these or other words. Keep one of them."


def implied(others: Sequence[Any], example: str | None) -> str:
    """Another rule is TRUE wherever this one is."""
    return (
        f"Every row that matches this rule matches rule {named(others)} too{_instance(example)}. If one id is enough, "
        "remove this rule; if the rows should have this id alone, narrow the other one."
    )


def implied_by_union(others: Sequence[Any], example: str | None) -> str:
    """One of several other rules is TRUE wherever this one is."""
    return (
        f"Every row that matches this rule matches at least one of the rules {named(others)} too{_instance(example)}. "
        "If their ids are enough, remove this rule."
    )


def redundant_alternative(text: str, example: str | None) -> str:
    """Without this alternative the rule would mean the same."""
    return (
        f"The alternative {quoted(text)} adds nothing: wherever it is TRUE, another one that it is ORed with is TRUE "
        f"too{_instance(example)}. Remove it, or correct it if it was meant to say something else."
    )


def redundant_in_context(text: str, example: str | None) -> str:
    """Without this alternative the rule would mean the same, because of the rest of the rule."""
    return (
        f"The alternative {quoted(text)} adds nothing to the rest of the rule: without it, the rule is TRUE on the "
        f"same rows{_instance(example)}. Remove it, or correct it if it was meant to say something else."
    )


def unreachable_alternative(text: str) -> str:
    """This alternative is never TRUE."""
    return f"The alternative {quoted(text)} is never TRUE: its conditions exclude each other. Correct it, or remove it."


def unreachable_in_context(text: str) -> str:
    """This alternative is never TRUE where the rest of the rule is."""
    return (
        f"The alternative {quoted(text)} is never TRUE where the rest of the rule is: the two exclude each other. "
        "Correct it, or remove it."
    )


def null_comparison(text: str, negated: bool, always: bool) -> str:
    """A comparison with NULL does not mean what its author meant. Arguments: as in `text_spans.NullComparison`."""
    if always:
        return (
            f"{quoted(text)} is NULL on every row, never TRUE and never FALSE: a comparison with NULL is neither. "
            f"Write {_asked(text)}."
        )
    where = "never FALSE, so that its NOT is never TRUE" if negated else "never TRUE"
    return (
        f"{quoted(text)} is {where}: what is compared with NULL is NULL. Leave NULL out of it, and ask for it by "
        "IS NULL or IS NOT NULL."
    )


def _asked(text: str) -> str:
    """What a comparison with NULL was probably meant to say."""
    found = _WITH_NULL.fullmatch(text)
    if found is None:
        return "IS NULL or IS NOT NULL"
    value = (found["left"] or found["right"]).strip()
    return quoted(f"{value} {_ASKED[found['is'] or found['was']]}")


def padded_id(rule_id: str) -> str:
    """The rule's id begins or ends with a blank."""
    return (
        f"The id {json.dumps(rule_id, ensure_ascii=False)} has a blank around it that nobody sees: a query for "
        f"{json.dumps(rule_id.strip(), ensure_ascii=False)} finds none of its rows. Write it without."
    )


def rejected(error: str, message: str, rest: str | None) -> str:
    """The rule does not compile; rest: its text from the error on."""
    where = ""
    if rest is not None:
        where = f" Correct it at {quoted(rest)}." if rest.strip() else " Correct it at its end."
    return f"The rule does not compile, so it matches nothing ({error}): {message}{where}"


def named(ids: Sequence[Any]) -> str:
    """Some ids; only the first few are named."""
    texts = [str(each) for each in ids[:_MOST_IDS]]
    if len(ids) > _MOST_IDS:
        return f"{', '.join(texts)} and {len(ids) - _MOST_IDS:,} more"
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def quoted(text: str) -> str:
    """A part of a rule on one line, shortened if it is long."""
    line = " ".join(text.split())
    return f"`{line if len(line) <= _LONGEST else line[: _LONGEST - 3] + '...'}`"


def _instance(example: str | None) -> str:
    return f" (for instance, a row with {example})" if example is not None else ""


def example_texts(examples: pa.StructArray, rules: Sequence[str]) -> list[str | None]:
    """The non-NULL columns of rows, with their values; None if there is no row, or the rule contains no such column.

    rules: [rows], the text of each row's rule; columns that it does not contain are left out.
    """
    columns = [
        (field.name, _last_part(field.name), _texts(column))
        for field, column in zip(examples.type, examples.flatten(), strict=True)
    ]
    found: list[str | None] = []
    for row, (valid, rule) in enumerate(zip(examples.is_valid().to_pylist(), rules, strict=True)):
        lower = rule.lower()
        parts = [
            f"{name} = {text}" for name, part, texts in columns if part in lower and (text := texts[row]) is not None
        ]
        if len(parts) > _MOST_COLUMNS:
            parts = [*parts[:_MOST_COLUMNS], "..."]
        if valid and not parts and all(texts[row] is None for _, _, texts in columns):
            parts = ["NULL in all columns"]
        found.append(", ".join(parts) if valid and parts else None)
    return found


def _last_part(name: str) -> str:
    """The last part of a column's or field's name, in lower case, which a rule that reads it contains."""
    return name.rsplit(".", 1)[-1].strip("`").lower()


def _texts(column: pa.Array) -> list[str | None]:
    """Values as text, None for NULL."""
    t = pa.types
    if t.is_string(column.type):
        return [None if value is None else quoted_text(value) for value in column.to_pylist()]
    if t.is_binary(column.type):
        return [None if value is None else f"X'{value.hex()}'" for value in column.to_pylist()]
    if t.is_nested(column.type):
        return [None if value is None else json.dumps(value, default=str) for value in column.to_pylist()]
    texts: list[str | None] = pc.cast(column, pa.string()).to_pylist()
    return texts
