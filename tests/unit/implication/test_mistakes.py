"""Sixty rules over card payments: forty mistakes that people make, each with its suggestion, and twenty right ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import rules_index as ri
from rules_index.implication.mistakes.find_mistakes import mistakes
from rules_index.implication.mistakes.known_values import folded
from rules_index.language.scope import Scope

SCHEMA = pa.schema(
    {
        "amount": pa.float64(),
        "fee": pa.decimal128(9, 2),
        "quantity": pa.int32(),
        "mcc": pa.int32(),
        "channel": pa.string(),
        "currency": pa.string(),
        "country": pa.string(),
        "merchant": pa.string(),
        "email": pa.string(),
        "txn_date": pa.date32(),
        "txn_time": pa.timestamp("us", "UTC"),
        "discount_pct": pa.float64(),
        "fraud_probability": pa.float64(),
        "labels": pa.map_(pa.string(), pa.string()),
        "flags": pa.list_(pa.string()),
        "vip": pa.bool_(),
        "Amount EUR": pa.float64(),
        "Card-Type": pa.string(),
    }
)
ROWS = 2_000


def _known() -> dict[str, ri.KnownValues]:
    rng = np.random.default_rng(1)

    def texts(*values: str) -> pa.Array:
        return pa.array([*values] * (ROWS // len(values)))

    columns = {
        "amount": pa.array(rng.gamma(2, 40, ROWS)),
        "quantity": pa.array(rng.integers(0, 5, ROWS), pa.int32()),
        "mcc": pa.array(rng.choice([5411, 5812, 7995], ROWS), pa.int32()),
        "channel": texts("ECOM", "POS", "MOTO", "ATM"),
        "currency": texts("EUR", "USD"),
        "country": texts("DE", "FR", "IT", "AT"),
        "merchant": pa.array([f"Shop {place:05}" for place in range(ROWS)]),
        "discount_pct": pa.array(rng.uniform(0, 60, ROWS)),
        "fraud_probability": pa.array(rng.uniform(0, 1, ROWS)),
        "labels": pa.array([[("segment", "vip"), ("tier", "1")]] * ROWS, SCHEMA.field("labels").type),
        "flags": pa.array([["vpn", "proxy"], []] * (ROWS // 2), SCHEMA.field("flags").type),
    }
    return {name: ri.known_values(column, True) for name, column in columns.items()}


KNOWN = _known()
MISTAKES = [
    # never compiles; told with what to write
    ("txn_date > 2026-10-01", "rejected", "DATE'2026-10-01'"),
    ("txn_time BETWEEN 2026-1-1 AND 2026-12-31", "rejected", "TIMESTAMP'2026-01-01'"),
    ("channel = `ECOM`", "rejected", "write 'ECOM'"),
    ("channel = ECOM", "rejected", "write 'ECOM'"),
    ("amount => 1000", "rejected", "Write >="),
    ("amount =< 1000", "rejected", "Write <="),
    ("amount > 1,000", "rejected", "1000"),
    ("amount > 1,5", "rejected", "1.5"),
    ("amount > 5 && vip", "rejected", "Write AND"),
    ("amount > 5 || fee > 1", "rejected", "write OR"),
    ("WHERE amount > 1000", "rejected", "without WHERE"),
    ("channel = ‘ECOM’", "rejected", "straight quotes"),
    ("channel = “ECOM”", "rejected", "straight quotes"),
    ("Amount EUR > 5", "rejected", "`Amount EUR`"),
    ("Card-Type = 'debit'", "rejected", "`Card-Type`"),
    ("flags = 'vpn'", "rejected", "array_contains(flags, 'vpn')"),
    ("txn_time > now()", "rejected", "valid_from"),
    ("merchant = 'O'Neil'", "rejected", "'O''Neil'"),
    ("10 < amount < 20", "rejected", "10 < amount AND amount < 20"),
    # compiles, and says something else than was meant
    ("amount = 'high'", "always_raises", "Compare it with a number"),
    ("txn_date > '01.10.2026'", "always_raises", "DATE'2026-10-01'"),
    ("amount / 0 > 1", "always_raises", "divides by 0"),
    ("txn_date > to_date('31.12.2026')", "always_raises", "Write the year first: DATE'2026-12-31'"),
    ("txn_time > CAST('2026-13-01' AS TIMESTAMP)", "always_raises", "There is no such day"),
    ("quantity > CAST('high' AS INT)", "always_raises", "'high' is no INT"),
    ("txn_date > to_date('2026-12-31', 'dd.MM.yyyy')", "always_raises", "Correct its arguments"),
    ("channel = 'ECOM' OR 'POS'", "always_raises", "channel IN ('ECOM', 'POS')"),
    ("NOT 'POS'", "always_raises", "Write the whole comparison"),
    ("'amount' > 5", "always_raises", "without quotes: amount"),
    ("channel = 'ECOM' OR channel = 'POS' AND amount > 1000", "missing_brackets",
     "(channel = 'ECOM' OR channel = 'POS') AND amount > 1000"),
    ("country <> 'DE' OR country <> 'FR'", "true_unless_null", "country NOT IN ('DE', 'FR')"),
    ("channel = 'ecom'", "unknown_value", "Write 'ECOM'"),
    ("labels['segmnt'] = 'vip'", "unknown_value", "Write 'segment'"),
    ("array_contains(flags, 'VPN')", "unknown_value", "Write 'vpn'"),
    ("country = 'Germany'", "unknown_value", "'AT', 'DE', 'FR', 'IT'"),
    ("country IN ('AT, DE')", "unknown_value", "'AT', 'DE', 'FR', 'IT'"),
    ("amount > 5 AND country IN ('AT' 'DE')", "unknown_value", "'AT', 'DE', 'FR', 'IT'"),
    ("txn_time > '2026-10-01 25:00:00'", "always_raises", "no time of day"),
    ("currency = 'EUR '", "padded_text", "Write 'EUR'"),
    ("currency = 'NULL'", "null_text", "currency IS NULL"),
    ("email LIKE 'mail'", "no_wildcard", "'%mail%'"),
    ("email LIKE '*mail*'", "no_wildcard", "'%mail%'"),
    ("mcc IN (7995.5, 7996)", "never_true", "whole numbers"),
    ("upper(channel) = 'ecom'", "never_true", "Write 'ECOM'"),
    ("discount_pct > 0.15", "unit", "Write 15"),
    ("fraud_probability > 80", "unit", "Write 0.8"),
    ("amount / quantity > 100", "may_raise", "quantity <> 0` too, or divide by `nullif(quantity, 0)`"),
    ("txn_date > to_date(merchant, 'dd.mm.yyyy')", "time_pattern", "write MM for the month"),
    ("date_format(txn_time, 'HH:MM') > '22:00'", "time_pattern", "write mm for the minute"),
    ("date_format(txn_time, 'hh:mm') > '22:00'", "time_pattern", "write HH"),
    ("mcc IN (5,411, 5,812, 7,995)", "separated_number", "5411"),
]  # fmt: skip
RIGHT = [
    "amount > 1000",
    "amount > '1000'",
    "txn_date > '2026-10-01'",
    "txn_date = DATE'2026-10-01' OR txn_date IS NULL",
    "(channel = 'ECOM' OR channel = 'POS') AND amount > 1000",
    "channel = 'ECOM' OR (channel = 'POS' AND amount > 1000)",
    "channel = 'ECOM' AND amount > 9 OR channel = 'POS' AND amount > 99",
    "country <> 'DE' AND country <> 'FR'",
    "NOT (country = 'DE' OR country = 'FR')",
    "channel IN ('ECOM', 'ecom', 'Ecom')",
    "lower(channel) = 'ecom' AND upper(country) IN ('DE', 'FR')",
    "merchant = 'Shop 99999' OR merchant LIKE 'Shop 1%'",
    "email ILIKE 'mail' OR email LIKE 'a\\_%' OR email RLIKE 'mail'",
    "labels['segment'] = 'vip' AND array_contains(flags, 'proxy')",
    "quantity <> 0 AND amount / quantity > 100",
    "try_divide(amount, quantity) > 100 OR amount / nullif(quantity, 0) > 7",
    "discount_pct > 15 AND fraud_probability > 0.8",
    "mcc BETWEEN 5000 AND 5999.5 AND fee = 7995.5",
    "mcc IN (5, 411, 812) OR hour(txn_time) >= 23",
    "to_date(merchant, 'dd.MM.yyyy') > txn_date OR to_timestamp(merchant, 'yyyyMMdd HHmmss') > txn_time",
    "date_format(txn_time, 'HH:mm') > '22:00' OR date_format(txn_time, 'hh:mm a MMM') = '10:00 PM Oct'",
    "`Amount EUR` > 5 AND `Card-Type` = 'debit' AND (vip OR amount < 5)",
]


def told(text: str, known: dict[str, ri.KnownValues] | None = None) -> list[tuple[str, str]]:
    found = ri.lint([("rule", text)], SCHEMA, known=KNOWN if known is None else known)
    return list(zip(found["kind"].to_pylist(), found["message"].to_pylist(), strict=True))


def test_there_are_at_least_sixty() -> None:
    assert len(MISTAKES) >= 40 and len(RIGHT) >= 20


@pytest.mark.parametrize(("text", "kind", "suggestion"), MISTAKES, ids=[each[0] for each in MISTAKES])
def test_a_mistake_is_told_with_its_suggestion(text: str, kind: str, suggestion: str) -> None:
    (found,) = told(text)
    assert found[0] == kind and suggestion in found[1]


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_right_is_not_told(text: str) -> None:
    assert told(text) == []
    assert told(text, {}) == []


@pytest.mark.parametrize(("text", "kind", "suggestion"), MISTAKES[19:], ids=[each[0] for each in MISTAKES[19:]])
def test_a_place_in_the_text_is_told(text: str, kind: str, suggestion: str) -> None:
    whole = f"amount > 3 AND ({text})"
    found = [each for each in ri.lint([("rule", whole)], SCHEMA, known=KNOWN).to_pylist() if each["text"]]
    assert found and all(whole[each["position"] :].startswith(each["text"]) for each in found)


def test_comparisons_that_are_told_to_be_never_true_never_are() -> None:
    texts = [
        "mcc = 7995.5", "mcc IN (1, 2.5)", "fee = 1.505", "fee <=> 0.001", "upper(channel) = 'Ecom'",
        "lower(channel) IN ('A', 'b')", "hour(txn_time) > 23", "month(txn_time) = 13", "quantity = 3000000000",
        "'channel' = 'ECOM'", "dayofweek(txn_time) = 0", "minute(txn_time) >= 60",
    ]  # fmt: skip
    scope = Scope(SCHEMA)
    for text in texts:
        kinds = {each.kind for _, each in mistakes(pa.array([text], pa.large_string()), scope, {})}
        assert kinds == {"never_true"}, text


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "NOT (country = 'DE' AND country = 'FR')",
        "amount < 5 OR amount >= 5 OR vip",
        "mcc <> 7.5",
        "quantity < 3000000000",
        "vip AND (country NOT IN ('DE') OR country NOT IN ('FR'))",
    ],
)
def test_parts_that_leave_out_nothing_but_null(text: str) -> None:
    assert "true_unless_null" in [kind for kind, _ in told(text)]
    rows = pa.table({name: pa.nulls(1, kind) for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True)})
    columns = {"country": ["XX"], "amount": [5.0], "mcc": [7], "quantity": [-5], "vip": [False]}
    rows = rows.set_column(0, "amount", pa.array(columns["amount"]))
    for name in ("country", "mcc", "quantity"):
        place = SCHEMA.get_field_index(name)
        rows = rows.set_column(place, name, pa.array(columns[name], SCHEMA.field(name).type))
    rows = rows.set_column(SCHEMA.get_field_index("vip"), "vip", pa.array(["vip AND" in text]))
    assert ri.compile_rules([(1, text)], SCHEMA).match(rows.cast(SCHEMA)).to_pylist() == [[1]]


def test_nothing_is_told_where_the_value_is_there() -> None:
    odd = {"currency": ri.known_values(pa.array(["EUR ", "NULL", "null"] * 400), True)}
    assert told("currency IN ('EUR ', 'NULL', 'null')", odd) == []


def test_of_a_sample_only_near_values_are_told() -> None:
    some = {"country": ri.known_values(pa.array(["DE", "FR"] * 1_000), False)}
    assert told("country = 'Germany'", some) == []
    ((kind, message),) = told("country = 'de'", some)
    assert kind == "unknown_value" and "None of the 2,000 rows that were looked at" in message


@pytest.mark.parametrize("text", ["merchant = 'Shop 00001 '", "merchant = 'shop 00001'", "merchant = 'SHOP-00001'"])
def test_a_spelling_is_found_among_many(text: str) -> None:
    assert "'Shop 00001'" in told(text)[0][1]


def test_ids_with_blanks_are_told() -> None:
    found = ri.lint([("late ", "amount > 5"), ("early", "amount > 7 AND vip"), (" x", "vip")], SCHEMA)
    padded = [each["rule_id"] for each in found.to_pylist() if each["kind"] == "padded_id"]
    assert padded == [" x", "late "]


def test_a_text_is_folded() -> None:
    assert folded("Ä-b_C d") == folded("äbcd") == "abcd"


def test_bytes_that_are_no_text_are_known_as_spark_reads_them() -> None:
    stored = pa.array([b"DE\xff", b"FR", None], pa.binary()).view(pa.string())
    assert ri.known_values(stored, True).texts == {"DE\ufffd", "FR"}


def test_known_values_of_every_kind() -> None:
    def of(values: list[object], kind: pa.DataType) -> ri.KnownValues | None:
        return ri.known_values(pa.chunked_array([pa.array(values[:1], kind), pa.array(values[1:], kind)]), True)

    assert of([None, "a", "b"], pa.string()).texts == {"a", "b"}
    assert of([None, "a"], pa.dictionary(pa.int8(), pa.string())).texts == {"a"}
    assert of([None, ["a", None], []], pa.list_(pa.string())).texts == {"a"}
    assert of([None, [("k", None)]], pa.map_(pa.string(), pa.int64())).texts == {"k"}
    numbers = of([None, float("nan"), float("inf"), -1.5, 0.25], pa.float64())
    assert (numbers.low, numbers.high, numbers.has_zero, numbers.has_fraction) == (-1.5, 0.25, False, True)
    assert of([None], pa.int64()) is None
    assert ri.known_values(pa.array([], pa.string()), True) is None
    assert ri.known_values(pa.array([True]), True) is None


@pytest.mark.parametrize(
    "text", ["amount BETWEEN 5 AND 'high'", "amount NOT BETWEEN 5 AND 'high'", "mcc IN ('5411', 'high')"]
)
def test_only_the_bound_or_item_that_raises_is_named(text: str) -> None:
    """`amount NOT BETWEEN 5 AND 'high'` is TRUE where the amount is below 5, and the IN where `mcc` is 5411."""
    (found,) = ri.lint([("r", text)], SCHEMA).to_pylist()
    assert (found["kind"], found["text"]) == ("always_raises", "'high'")


DAYS = [
    ("txn_time <= DATE'2026-01-31'", "write `txn_time < DATE'2026-02-01'`"),
    ("txn_time BETWEEN '2026-01-01' AND '2026-1-31'", "write `txn_time < DATE'2026-02-01'`"),
    ("DATE'2026-12-31' >= txn_time", "write `txn_time < DATE'2027-01-01'`"),
    ("txn_time = DATE'2026-01-31'", "write `CAST(txn_time AS DATE)`"),
    ("amount > 1 AND txn_time IN (DATE'2026-01-31', DATE'2026-02-28')", "write `CAST(txn_time AS DATE)`"),
]
PLAIN_TIMES = [
    "txn_time < DATE'2026-02-01' AND txn_time >= '2026-01-01'",
    "txn_time > DATE'2026-01-31'",
    "txn_time <= DATE'9999-12-31' AND txn_time <> '9999-12-31'",
    "txn_time <= TIMESTAMP'2026-01-31' OR txn_time = '2026-01-31 00:00:00' OR txn_time = '2026-02-30'",
    "CAST(txn_time AS DATE) = DATE'2026-01-31' AND date_trunc('DAY', txn_time) <= DATE'2026-01-31'",
    "txn_date <= DATE'2026-01-31'",
]


def times(step: int, zone: str = "UTC") -> dict[str, ri.KnownValues]:
    """Known times from 1970 on, so many minutes from one to the next by the clocks of a time zone."""
    local = pa.array(np.arange(0, 50 * 525_600, step) * 60_000_000, pa.timestamp("us"))
    known = ri.known_values(pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest"), True)
    assert known is not None
    return {"txn_time": known}


@pytest.mark.parametrize(("text", "told_with"), DAYS)
def test_a_day_beside_times_is_told_to_be_its_midnight(text: str, told_with: str) -> None:
    ((kind, message),) = [each for each in told(text, times(60 * 24 + 97)) if each[0] != "always_raises"]
    assert kind == "midnight" and told_with in message
    # columns of days, and columns of which nothing is known
    assert told(text, times(60 * 24, "America/New_York")) == told(text, times(60 * 24, "Europe/Lisbon")) == []
    assert told(text, {}) == []


@pytest.mark.parametrize("text", PLAIN_TIMES)
def test_what_says_which_times_it_means_is_not_told(text: str) -> None:
    assert not [each for each in told(text, times(60 * 24 + 97)) if each[0] == "midnight"]
