"""What a refused text is told to be written as: the suggestion is there, and what it proposes compiles."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import rules_index as ri
from rules_index.errors import RuleError
from rules_index.language.compiler import compile_expression
from rules_index.language.scope import Scope
from rules_index.language.suggestions import with_suggestion

SCHEMA = pa.schema(
    {
        "amount": pa.float64(),
        "mcc": pa.int32(),
        "channel": pa.string(),
        "vip": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "labels": pa.map_(pa.string(), pa.string()),
        "flags": pa.list_(pa.string()),
        "person": pa.struct({"first name": pa.string(), "age": pa.int32()}),
        "Amount EUR": pa.float64(),
        "Card-Type": pa.string(),
    }
)
SCOPE = Scope(SCHEMA)
SUGGESTIONS = [
    ("amount > 5 EUR", "Write the number alone, 5,", "amount > 5"),
    ("amount > 5%", "as a plain number", "amount > 5"),
    ("amount > €5", "without a currency", "amount > 5"),
    ("amount > 1_000", "1000", "amount > 1000"),
    ("amount > 10k", "digits alone", "amount > 10000"),
    ("amount > 1,234,567", "1234567", "amount > 1234567"),
    ("amount > 1.000,50", "1000.50", "amount > 1000.50"),
    ("amount ≥ 5", "Write >=.", "amount >= 5"),
    ("amount ≠ 5", "Write <>.", "amount <> 5"),
    ("amount > 5 # large", "A comment begins with --", "amount > 5 -- large"),
    ("amount > 5 // large", "A comment begins with --", "amount > 5 -- large"),
    ("channel contains 'a'", "contains(channel, 'a')", "contains(channel, 'a')"),
    ("channel startswith 'a'", "startswith(channel, 'a')", "startswith(channel, 'a')"),
    ("channel ~ 'a'", "RLIKE", "channel RLIKE 'a'"),
    ("channel REGEX 'a'", "RLIKE", "channel RLIKE 'a'"),
    ("channel matches 'a'", "RLIKE", "channel RLIKE 'a'"),
    ("channel NOT = 'a'", "Write <> .", "channel <> 'a'"),
    ("payments.mcc > 5", "write mcc alone", "mcc > 5"),
    ("payments.`card-type` = 'x'", "write `Card-Type` alone", "`Card-Type` = 'x'"),
    ("mcc = TRUE", "write mcc = 1.", "mcc = 1"),
    ("false <> mcc", "write mcc <> 0.", "mcc <> 0"),
    ("channel not null", "IS NOT NULL", "channel IS NOT NULL"),
    ("channel null", "IS NULL", "channel IS NULL"),
    ("channel IS NULL OR IS NOT NULL", "Name the column before each IS", "channel IS NULL OR channel IS NOT NULL"),
    ("channel IS 'a'", "Write = 'a'", "channel = 'a'"),
    ("channel IS NOT 'a'", "Write <> 'a'", "channel <> 'a'"),
    ("channel IN 'a'", "IN ('a')", "channel IN ('a')"),
    ("channel IN ['a']", "round brackets", "channel IN ('a')"),
    ("channel IN {'a'}", "round brackets", "channel IN ('a')"),
    ("'a' IN flags", "array_contains(flags, 'a')", "array_contains(flags, 'a')"),
    ("amount BETWEEN 5 TO 9", "BETWEEN 5 AND 9", "amount BETWEEN 5 AND 9"),
    ("mcc = 1 XOR vip", "(...) <> (...)", "(mcc = 1) <> (vip)"),
    ("channel LIKE 'a%' OR LIKE 'b%'", "before each LIKE", "channel LIKE 'a%' OR channel LIKE 'b%'"),
    ("amount > 9 OR < 5", "before each <", "amount > 9 OR amount < 5"),
    ("mcc IN (1) AND NOT IN (2)", "before each IN", "mcc IN (1) AND mcc NOT IN (2)"),
    ("contains(channel, ecom)", "write 'ecom'", "contains(channel, 'ecom')"),
    ("day = today()", "valid_from", None),
    ("channel IN (ECOM, POS)", "write 'ECOM'", "channel IN ('ECOM', 'POS')"),
    ("channel.lower() = 'a'", "lower(channel)", "lower(channel) = 'a'"),
    ("vip = 1", "write vip.", "vip"),
    ("vip <> 1", "write NOT vip.", "NOT vip"),
    ("labels = 'x'", "labels['key']", "labels['key'] = 'x'"),
    ("person = 'x'", "person.`first name`", None),
    ("AGE = 5", "Write person.age.", "person.age = 5"),
    ("`First name` = 'x'", "Write person.`first name`.", "person.`first name` = 'x'"),
    ("person.first name = 'x'", "back-quotes: `first name`", "person.`first name` = 'x'"),
    ("flags IN ('a', 'b')", "arrays_overlap(flags, array('a', 'b'))", "arrays_overlap(flags, array('a', 'b'))"),
    ("flags <> 'a'", "NOT array_contains(flags, 'a')", "NOT array_contains(flags, 'a')"),
    ("mcc = 1 OR 2", "mcc IN (1, 2)", "mcc IN (1, 2)"),
    ("day = 20261001", "DATE'2026-10-01'", "day = DATE'2026-10-01'"),
    ("at >= 2026-10-01", "TIMESTAMP'2026-10-01'", "at >= TIMESTAMP'2026-10-01'"),
    ("1 < amount <= 9", "1 < amount AND amount <= 9", "1 < amount AND amount <= 9"),
    ("IF amount > 5 THEN TRUE", "without IF", "amount > 5"),
    ("at > current_timestamp", "valid_from", None),
    ("amount eur > 5", "`Amount EUR`", "`Amount EUR` > 5"),
    ("vip AND Card-Type = 'x'", "`Card-Type`", "vip AND `Card-Type` = 'x'"),
    ("channel = „ECOM“", "straight quotes", "channel = 'ECOM'"),
    ("amount => 5 AND vip", ">=", "amount >= 5 AND vip"),
    ("amount > 5 | mcc > 1", "write OR", "amount > 5 OR mcc > 1"),
    ("channel = 'a' & amount > 5", "write AND", "channel = 'a' AND amount > 5"),
    ("SELECT * FROM t WHERE amount > 5", "follow WHERE", "amount > 5"),
]


def refused(text: str) -> RuleError:
    with pytest.raises(RuleError) as found:
        compile_expression(text, SCOPE)
    return found.value


def without_general_advice(error: RuleError) -> str:
    """The message as it stands before a suggestion, which says better what to do than to cast."""
    return error.message.replace("; cast one of them.", ".")


@pytest.mark.parametrize(("text", "suggestion", "corrected"), SUGGESTIONS, ids=[each[0] for each in SUGGESTIONS])
def test_a_suggestion(text: str, suggestion: str, corrected: str | None) -> None:
    (reject,) = ri.compile_rules([(1, text)], SCHEMA).rejects.to_pylist()
    error = refused(text)
    assert (reject["error"], reject["position"]) == (error.error, error.position)
    assert reject["message"].startswith(without_general_advice(error) + " ") and suggestion in reject["message"]
    if corrected is not None:
        assert ri.compile_rules([(1, corrected)], SCHEMA).rejects.num_rows == 0


@pytest.mark.parametrize(
    "text",
    [
        "amount >",
        "amount > 5 AND",
        "(amount > 5",
        "sum(amount) > 5",
        "rand() > 0.5",
        "channel RLIKE '['",
        "",
        "mcc + 1",
    ],
)
def test_no_suggestion_where_none_is_known(text: str) -> None:
    assert with_suggestion(refused(text), text, SCOPE).message == refused(text).message


def test_of_any_text_only_the_message_grows() -> None:
    draw = random.Random(3)
    parts = "amount channel ECOM 'a' 5 1,000 => = < > & && || ( ) [ ] , . NOT NULL IS IN ‘ ’ € # // vip flags now() `x`"
    for _ in range(3_000):
        text = " ".join(draw.choices(parts.split(" "), k=draw.randint(1, 9)))
        try:
            compile_expression(text, SCOPE)
        except RuleError as error:
            corrected = with_suggestion(error, text, SCOPE)
            assert (corrected.error, corrected.position) == (error.error, error.position)
            assert corrected.message.startswith((error.message, without_general_advice(error) + " "))
