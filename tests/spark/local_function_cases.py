"""Rows at the edges of each type, and calls over them of every function that is evaluated without Spark."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from rules_index.language.special_calls import _FIELDS
from tests.cases import SOAK
from tests.spark.odd_texts import DATES, NUMBERS, TEXTS, TIMES

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CHANGES = ["2024-03-31 00:59:59", "2024-03-31 01:00:00", "2024-10-27 00:30:00", "2024-10-27 01:30:00",
            "1893-03-31 23:06:31", "1893-03-31 23:06:32", "1945-05-24 00:00:00", "1935-03-30 03:30:52",
            "1980-04-06 01:00:00", "2011-11-06 04:30:00", "2037-10-25 00:59:59", "2500-07-01 00:00:00",
            "9000-03-31 01:00:00", "4096-10-31 00:30:00"]  # fmt: skip


SPELLED_TRUTHS = ["t", "TRUE", "Yes", "1", " y\t", "\x7ftrue\x00", "f", "False", "NO", "n", "0", "", " ", "tru", "10",
                  "01", "on", "ｔ", "YEſ", "\u00a0t", "t\u2003", "a", "b", "x", "y", "y es"]  # fmt: skip


CARDS = ["4111111111111111", "4111111111111112", "79927398713", "0", "", " ", "0 ", "-0", "4111-1111", "٠", "١٨",
         "１８", "8１", "\U0001d7ce", "0\U0001d7ce", "5" * 999, "0" * 2_000, "9x", "²", "1\u00008"]  # fmt: skip
ESCAPED = ["%41", "a+b%20c", "%E2%82%AC", "%e2%82", "%ff%FE%41", "%ED%A0%80", "%F0%9F%98%80%F0", "%C0%AF", "%", "%4",
           "%zz", "%%41", "%+f", "%-0", "%-1", "%Ａ１", "%٤١", "%𝟎1", "%😀", "%4😀", "+%2B+",
           "€%41€", "%00", "% 1", "%1 ", "%\n1", "%++", "100%", "..%2f..%2Fetc", "%25%32%35", "", "plain"]  # fmt: skip
PARSED = ["2024-02-29", "2023-02-29", "2024-2-9", "2024-02-30", "0000-01-01", "-0000-01-01", "-0001-12-31",
          "+2024-01-01", "+12024-01-01", "12024-01-01", "+00002024-01-01", "9999-12-31", " 2024-01-01",
          "2024-01-01 ", "2024-13-01", "2024-00-10", "2024-01-00", "2024-01-32", "٢٠٢٤-01-01", "2011-12-30",
          "20240229", "20240230", "120240229", "-2024", "+12024", "+20240", "2024022", "29.02.2024", "9.2.2024",
          "29.2.2023", "009.002.2024", "31.12.-2024", "2024-03-31T02:30:15", "2024-03-31t02:30:15",
          "2024-10-27T02:30:15", "2024-01-01T24:00:00", "2024-01-01T23:60:00", "2024-01-01T23:59:60",
          "2024-01-01T23:59:59.5", "2024-01-01T23:59:59.123456", "2024-01-01T23:59:59.1234567", "12/31/2024 9:05",
          "12/31/2024 09:05", "12/31/2024 9:5", "2/3/2024 23:00", "2024-01-01T23:59:59.", "", "x", "02-29", "12-31",
          "202402", "2024", "29022024", "1.1.1", "2024-01-01\n", "2018-11-04T00:00:00", "0001-01-01", "1582-10-10",
          "000000000000000000009.2.2024", "0000000000000000009.2.2024"]  # fmt: skip
PARSED_DAYS = ["2024-02-29", "2023-12-31", "0001-01-01", "9999-12-31", "1582-10-10", "+12024-01-01", "-0044-03-15"]
PARSED_HOURS = [
    "2024-03-31 02:30:00",
    "2023-12-31 23:59:59.999999",
    "2024-10-27T02:30:00",
    "2024-02-29",
    "1999-07-04 1:2",
]
_PATTERNS = ("yyyy-MM-dd", "yyyyMMdd", "dd.MM.yyyy", "d.M.yyyy", "MM-dd", "yyyy", "yyyyMM", "ddMMyyyy")
_CLOCKS = ("yyyy-MM-dd\\'T\\'HH:mm:ss", "yyyy-MM-dd\\'T\\'HH:mm:ss.SSS", "MM/dd/yyyy H:mm", "M/d/yyyy HH:m",
           "yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSSSS")  # fmt: skip


def rows() -> pa.Table:
    chance = random.Random(3)
    moments = [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in _CHANGES]
    moments += [datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, 23, 59, 59, 999_999, tzinfo=UTC), _EPOCH]
    moments += [
        _EPOCH + timedelta(microseconds=chance.randint(-62_135_000_000_000_000, 253_402_000_000_000_000))
        for _ in range(2_000 if SOAK else 500)
    ]
    moments += [
        _EPOCH + timedelta(seconds=chance.randint(-3_000_000_000, 4_000_000_000))
        for _ in range(6_000 if SOAK else 1_500)
    ]
    count = len(moments)
    days = [moment.date() for moment in moments]

    def drawn(values: list[Any]) -> list[Any]:
        found = values[:count] + [chance.choice(values) for _ in range(count - len(values))]
        return [None if chance.random() < 0.1 and k >= len(values) else value for k, value in enumerate(found)]

    letters = [chr(point) for point in range(1, 0x2FFF) if not 0xD800 <= point < 0xE000]
    doubles = [0.0, -0.0, 2.5, -2.5, 1e300, -1e300, 2.0**63, 2.0**62, -(2.0**63), 2.0**53 + 1, float("nan"),
               float("inf"), float("-inf"), 0.9999999999, -1e-300]  # fmt: skip
    columns = {
        "ts": pa.array(moments, pa.timestamp("us", "UTC")),
        "n": pa.array([moment.replace(tzinfo=None) for moment in moments[::-1]], pa.timestamp("us")),
        "d": pa.array(days[::-1], pa.date32()),
        "e": pa.array(drawn([date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29)]), pa.date32()),
        "s": pa.array(drawn([*TEXTS, *("".join(chance.choices(letters, k=5)) for _ in range(3_000))]), pa.string()),
        "u": pa.array(drawn(TEXTS), pa.string()),
        "k": pa.array(drawn(NUMBERS), pa.string()),
        "l": pa.array(drawn([*TIMES, *(str(each.replace(tzinfo=None)) for each in moments[-3000:])]), pa.string()),
        "i": pa.array(drawn([0, 1, -1, 2**31 - 1, -(2**31)]), pa.int32()),
        "x": pa.array(drawn(doubles), pa.float64()),
        "j": pa.array(drawn([0, 7, 1, -1, -(2**31), 2**31 - 1, 3, -3]), pa.int32()),
        "b": pa.array(drawn([-(2**63), 2**63 - 1, 0, 1, -1, 10, -7]), pa.int64()),
        "c": pa.array(drawn([-1, 0, 2, -2, 2**63 - 1, -(2**63), 3]), pa.int64()),
        "y": pa.array(drawn([*doubles[::-1], 3.0, -0.1]), pa.float64()),
        "f": pa.array(drawn([0.0, -0.0, 1.5, -0.1, 3.4e38, 1e-45, float("nan"), float("-inf")]), pa.float32()),
        "t": pa.array(drawn([-128, 127, 0, -1, 5]), pa.int8()),
        "later": pa.array([moments[chance.randrange(count)] for _ in moments], pa.timestamp("us", "UTC")),
        "p": pa.array(drawn(list(map(Decimal, ["0.00", "1.50", "-1.50", "99999999.99"]))), pa.decimal128(10, 2)),
        "y2": pa.array(drawn(list(map(Decimal, ["0.0005", "-0.0005", "9.9995", "99999.9999", "-1.2344", "1.5",
        "-2.5"]))),
                       pa.decimal128(9, 4)),
        "q": pa.array(drawn(DATES), pa.string()),
        "w": pa.array(drawn([0, 1, -1, 2, -2, 12, -13, 2_932_896, 2**31 - 1, -(2**31)]), pa.int32()),
        "h": pa.array(drawn([0, 1, -1, 127, -128, 3]), pa.int16()),
        "z": pa.array(
            drawn([0.5, -0.5, 1.5, 2.5, 0.125, 1.005, 2.675, -1.115, 0.045, 1e15 + 0.5, 2.0**52 + 0.5,
            4503599627370495.5,
                   0.49999999999999994, 1e-5, 5e-4, 123456789.12345, *(chance.randrange(10**7) / 10**chance.randint(1,
                   6) for _ in
                   range(3_000)), *(chance.random() * 10.0 ** chance.randint(-8,
                   16) for _ in range(3_000))]), pa.float64()),
        "v": pa.array(drawn([True, False]), pa.bool_()),
        "r": pa.array(drawn([[], [1], [1, None], [3, 2, 1], [-5] * 7]), pa.list_(pa.int32())),
        "o": pa.array(drawn([[], [(1, "a")], [(2, None), (1, "b"), (-1, "c")]]), pa.map_(pa.int32(), pa.string())),
        "a": pa.array(drawn([[], ["x"], ["y", None], [None], ["x", None]]), pa.list_(pa.string())),
        "g": pa.array(drawn([[], [2.5, float("nan"), -1.0, None], [1.0], [float("nan")], [0.0, None], [-0.0]]),
                      pa.list_(pa.float64())),
        "pairs": pa.array(
            drawn([[], [{"k": "x", "v": 1}], [None, {"k": None, "v": 2}], [{"k": "y", "v": None}, {"k": "x", "v": 3}]]),
            pa.list_(pa.struct([("k", pa.string()), ("v", pa.int32())])),
        ),
        "repeated": pa.array(drawn([letter * size for letter in "aé" for size in (*range(40), 100)]), pa.string()),
        "small": pa.array(drawn(list(map(Decimal, ["0", "1E-18", "-1E-10", "12.5", "99999999999999999999"]))),
                          pa.decimal128(38, 18)),
        "nested": pa.array(drawn([[], [date(2024, 2, 29), None], [date(1, 1, 1), date(9999, 12, 31)]]),
                           pa.list_(pa.date32())),
        "fd": pa.array(drawn(PARSED), pa.string()),
        "fh": pa.array(drawn(PARSED_HOURS), pa.string()),
        "fv": pa.array(drawn(PARSED_DAYS), pa.string()),
        "tf": pa.array(drawn(SPELLED_TRUTHS), pa.string()),
        "card": pa.array(drawn([*CARDS, *(f"{chance.randrange(10**size):0{size}}" for size in (1, 2, 15, 16, 16, 19)
                                          for _ in range(200))]), pa.string()),
        "typed": pa.array(drawn(["".join(chance.choices("paypl.é😀", k=chance.randint(0, 9)))
                                 for _ in range(2_000)]), pa.string()),
        "dense": pa.array(drawn([[chance.choice([None, -1, 0, 1, 2, 2**31 - 1]) for _ in range(chance.randint(0, 7))]
                                 for _ in range(500)]), pa.list_(pa.int32())),
        "url": pa.array(drawn(ESCAPED), pa.string()),
        "m": pa.array(drawn([[], [("a", 1)], [("a", None), ("b", 2)]]), pa.map_(pa.string(), pa.int32())),
    }  # fmt: skip
    return pa.table(columns)


PARTS = ("year", "quarter", "month", "day", "dayofmonth", "dayofyear", "dayofweek", "weekday", "weekofyear")
CASES: dict[str, list[str]] = {
    **{name: [f"{name}(ts)", f"{name}(n)"] for name in ("hour", "minute", "second")},
    **{name: [f"{name}(ts)", f"{name}(n)", f"{name}(d)"] for name in PARTS},
    **{name: [f"extract({name} FROM ts)", f"date_part('{name}', n)", f"extract({name} FROM d)"] for name in
       ("yearofweek", "dayofweek_iso")},
    "date_add": ["date_add(d, w)", "date_add(d, 1)", "date_add(e, h)", "d + 7", "d + w", "d + h"],
    "date_sub": ["date_sub(d, w)", "date_sub(d, 1)", "e - 7", "d - w"],
    **{name: [f"{name}(ts)", f"{name}(d)", f"{name}(n)"] for name in ("dayname", "monthname")},
    "make_date": ["make_date(i, 2, 29)", "make_date(2024, h, w)", "make_date(h, 12, t)", "make_date(w, 2, 29)",
        "make_date(1900, 2, j)", "make_date(i, j, w)", "make_date(5881580, 7, j)",
        "make_date(-5877641, 7, j)"],
    "next_day": [f"next_day({of}, '{day}')" for of in "de" for day in ("MO", "tue", "Wednesday", "TH", "FRI", "sa",
        "SUNDAY")],
    "date_from_unix_date": ["date_from_unix_date(w)", "date_from_unix_date(i)", "date_from_unix_date(h)"],
    "from_unixtime": ["from_unixtime(b)", "from_unixtime(i)", "from_unixtime(unix_seconds(ts), 'EEE HH:mm')",
        "from_unixtime(c, 'yyyy-MM-dd')", "from_unixtime(h, 'h a')", "from_unixtime(unix_seconds(later))"],
    "levenshtein": ["levenshtein(s, u)", "levenshtein(u, 'xaby')", "levenshtein(typed, 'paypal.é')",
        "levenshtein('', k)", *(f"levenshtein({of}, {limit})" for of in ("s, u", "typed, 'paypal'", "u, k", "k, q")
        for limit in (0, 1, 2, 5, 100))],
    "luhn_check": ["luhn_check(card)", "luhn_check(k)", "luhn_check(s)", "luhn_check(right(card, 9))"],
    "array_distinct": ["size(array_distinct(a))", "size(array_distinct(dense))", "get(array_distinct(dense), 1)",
        "get(array_distinct(dense), 2)", "size(array_distinct(nested))", "size(array_distinct(split(s, 'a')))"],
    **{name: [*(f"{call}({name}({of}{at}" for of in ("dense, array(2, 1, 2)", "dense, array(-1)", "a, array('x', 'q')")
                for call, at in (("size", "))"), ("get", "), 0)"), ("get", "), 1)"))),
              f"size({name}(nested, array(DATE'2024-02-29')))", f"size({name}(array_distinct(dense), array(0, 1)))",
              f"array_contains({name}(dense, array(1, 0)), 1)"] for name in ("array_intersect", "array_except")},
    **{name: [f"{name}(i)", f"{name}(t)"] for name in ("timestamp_seconds", "timestamp_millis", "timestamp_micros")},
    "intervals": [f"{of} {sign} INTERVAL {length}" for of in "de" for sign in "+-" for length in
                  ("1 MONTH", "18 YEARS", "3 DAYS", "2 YEARS 5 MONTHS", "'-7' DAYS")],
    "add_months": ["add_months(d, 1)", "add_months(d, -1)", "add_months(e, 13)", "add_months(d, -1200)",
        "add_months(d, 100000)"],
    "last_day": ["last_day(d)", "last_day(e)"],
    "trunc": [f"trunc(d, '{unit}')" for unit in ("YEAR", "yyyy", "YY", "Quarter", "month", "MM", "mon", "WEEK")],
    "date_trunc": [f"date_trunc('{unit}', {of})" for unit in ("YEAR", "quarter", "Month", "WEEK", "DAY", "dd", "HOUR",
        "minute",
                                                              "SECOND", "MILLISECOND") for of in ("ts", "later")],
    "time_add": [f"{of} {sign} INTERVAL {length}" for of in ("ts", "n", "later") for sign in "+-" for length in
                 ("1 HOUR", "1 DAY", "'2' WEEKS", "'-2' DAYS", "-3 DAYS 4 HOURS", "90 MINUTES 7 SECONDS",
                  "1 microsecond", "180 days")],
    "time_months_add": [f"{of} {sign} INTERVAL {length}" for of in ("ts", "n", "later") for sign in "+-" for length in
                        ("1 MONTH", "18 YEARS", "'-7' MONTHS", "2 YEARS 5 MONTHS", "9999 YEARS")],
    "timestamp_of": ["CAST(d AS TIMESTAMP)", "CAST(n AS TIMESTAMP)", "CAST(e AS TIMESTAMP)", "date_trunc('MONTH', d)",
        "date_trunc('HOUR', n)"],
    "ntz_of": ["CAST(d AS TIMESTAMP_NTZ)", "CAST(ts AS TIMESTAMP_NTZ)", "CAST(later AS TIMESTAMP_NTZ)"],
    **{name: [f"{name}({of}, '{zone}')" for of in ("ts", "later", "d", "n") for zone in ("Europe/Berlin",
        "Asia/Kolkata", "America/St_Johns", "UTC", "+05:30")] for name in ("from_utc_timestamp", "to_utc_timestamp")},
    "months_between": ["months_between(ts, later)", "months_between(later, d)", "months_between(d, e)",
        "months_between(ts, date_trunc('MONTH', later))", "months_between(last_day(d), last_day(ts))"],
    **{f"{name}_letters": [f"{name}('x', u)", f"{name}('0 -', k)", f"{name}('yxß', s)"] for name in
       ("trim", "ltrim", "rtrim")},
    "implicit casts": ["last_day(ts)", "add_months(n, 2)", "trunc(ts, 'MM')", "date_add(ts, 3)", "ts || u", "u || i",
        "concat(u, '-', b, '-', d)", "concat(i, t)", "concat_ws('/', u, i, d, v)", "year(fv)", "hour(fh)",
        "datediff(ts, '2024-02-29')", "datediff(fv, d)", "nvl2(u, 1, i)", "nvl2(i, u, s)", "date_format(fh, 'HH:mm')",
        "concat(ts, n)", "dayofweek(fh)", "next_day(ts, 'MO')", "next_day(fv, 'Fri')",
        "luhn_check(b)", "luhn_check(i)", "luhn_check(w)", "luhn_check(p)", "TRIM(LEADING 'x' FROM u)",
        "TRIM(BOTH 'ab ' FROM s)"],
    "instant_add": [f"timestampadd({unit}, {count}, {of})" for unit in ("MICROSECOND", "SECOND", "MINUTE", "HOUR")
        for count in (1, -36, 1000) for of in ("ts", "n")],
    "timestampadd": [f"dateadd({unit}, {count}, {of})" for unit in ("DAY", "WEEK") for count in (1, -36, 1000)
        for of in ("ts", "n")] + [f"timestampadd({unit}, {count}, {of})" for unit in ("MONTH", "quarter", "YEAR")
        for count in (1, -5, 70000) for of in ("ts", "n")],
    "arrays_overlap": ["arrays_overlap(a, array('x'))", "arrays_overlap(a, array('q', 'x'))",
        "arrays_overlap(r, array(3, 1))",
        "arrays_overlap(array('y'), a)", "arrays_overlap(g, array(0.0D, DOUBLE('NaN')))"],
    **{name: [f"{name}({of})" for of in ("a, y -> y = 'x'", "a, y -> y LIKE 'y%'", "r, y -> y > 1", "a, y -> y IS NULL",
        "r, y -> y % 2 = 1 OR y IS NULL", "g, y -> y >= 0", "a, y -> upper(y) IN ('X', 'Z')", "r, y -> NOT (y = 2)",
        "g, y -> y + 1 > 0", "pairs, p -> p.k = 'x' AND p.v > 1", "pairs, p -> p IS NULL",
        "pairs, p -> p.v IS NULL OR p.k LIKE 'x%'", "a, Y -> y <=> 'x'")] for name in ("exists", "forall")},
    "filter": [f"size(filter({of}))" for of in ("a, y -> y = 'x'", "r, y -> y > 1", "g, y -> y >= 0",
        "a, y -> y IS NULL", "pairs, p -> p.k = 'x' AND p.v > 1", "pairs, p -> p IS NULL",
        "map_values(m), y -> y <> 1")] + [
        "get(filter(r, y -> y <> 1), 0)", "array_max(filter(r, y -> y < 3))",
        "array_contains(filter(a, y -> y > 'x'), 'y')"],
    "time_between": ["ts - later", "d - e", "later - ts", "e - d", "(n + INTERVAL 180 days) - n", "abs(ts - later)",
                     "ts - TIMESTAMP'2024-07-01 12:00:00'", "DATE'2024-02-29' - d"],
    "unix_date": ["unix_date(d)"],
    **{name: [f"{name}(ts)"] for name in ("unix_micros", "unix_millis", "unix_seconds", "unix_timestamp",
        "to_unix_timestamp")},
    **{name: [f"{name}(ts)", f"{name}(n)", f"{name}(d)"] for name in ("date", "to_date")},
    **{name: [f"{name}(d, e)", f"{name}(e, ts)", f"{name}(n, d)"] for name in ("datediff", "date_diff")},
    **{name: [f"{name}(s)"] for name in ("upper", "ucase", "lower", "lcase", "trim", "btrim", "ltrim", "rtrim",
                                         "length", "char_length", "character_length", "len")},
    "concat": ["concat(s, u)", "concat(u, 'x', s)", "s || u"],
    **{name: [f"{name}(s, {at}{size})" for at in (1, 0, 3, -1, -2, -7, 2147483647, -2147483648, "j", "instr(s, 'a')")
              for size in ("", ", 2", ", 0", ", -1", ", 2147483647", ", w")] for name in ("substring", "substr")},
    "left": [f"left(s, {length})" for length in (0, 1, 3, -1, 2147483647, -2147483648, "j", "w")],
    "right": [f"right(s, {length})" for length in (0, 1, 3, -1, 2147483647, -2147483648, "j", "w")],
    "replace": ["replace(s, 'é', 'bb')", "replace(s, 'ß')", "replace(s, '', 'x')", "replace(u, 'aa', 'a')",
        "replace(s, 'x', '')"],
    **{name: [f"{name}(s, {rest})" for rest in ("5, 'ab'", "5", "3, 'é\U0001f600'", "0, 'x'", "-1, 'x'", "4, ''",
        "1000, 'xyz'", "-1000, 'x'")] for name in ("lpad", "rpad")},
    "substring_index": [f"substring_index({of}, {rest})" for of in "suk" for rest in ("'a', 1", "'aa', 2", "'aa', -2",
        "'.', -1", "'', 1", "'b', 0", "'é', 2", "' ', -2", "'a', 2147483647", "'a', -2147483647")],
    "split_part": [f"split_part({of}, {rest})" for of in "suk" for rest in ("'a', 1", "'aa', 2", "'aa', -1", "'.', 2",
        "'', 1", "'', -1", "'', 2", "'é', -2", "'a', 2147483647", "'a', -2147483647")],
    "translate": ["translate(s, 'ab', 'x')", "translate(u, 'aba', 'bxy')", "translate(s, 'é', 'e')",
        "translate(s, '', '')"],
    **{name: [f"{name}(s)", f"{name}(u)"] for name in ("md5", "sha", "sha1")},
    "sha2": [f"sha2(s, {bits})" for bits in (0, 224, 256, 384, 512)],
    "concat_ws": ["concat_ws('-', s, u)", "concat_ws('', u)", "concat_ws('|', s, upper(u), k)",
        "concat_ws('é', s, NULL, u)"],
    "isnan": ["isnan(x)", "isnan(f)", "isnan(z)"],
    "regexp_extract": ["regexp_extract(l, '([0-9]+)-([0-9]+)', 2)", "regexp_extract(s, '(a|é)(b?)(.*)', 3)",
        "regexp_extract(s, '^(.)', 1)", "regexp_extract(k, '([0-9]+)$')", "regexp_extract(s, '[^a-z]+', 0)",
        "regexp_extract(u, '(x)|(y)', 2)", "regexp_extract(l, '(.+?)( |T)', 1)", "regexp_extract(s, '(?i)(A+)b*', 1)",
        "regexp_extract(q, '-([0-9]{2})-?', 1)", "regexp_extract(u, 'b', 0)"],
    "regexp_substr": ["regexp_substr(s, '[a-z]+')", "regexp_substr(l, '[0-9]{2}:[0-9]{2}')", "regexp_substr(u, 'é')",
        "regexp_substr(s, '^[a-b]*')", "regexp_substr(l, '1|')"],
    "regexp_count": ["regexp_count(l, '[0-9]')", "regexp_count(s, 'aa?')", "regexp_count(u, '.')"],
    "regexp_replace": ["regexp_replace(k, '[^0-9]', '')", "regexp_replace(l, '[0-9]+', '#')",
        "regexp_replace(k, '^0+', '')", "regexp_replace(s, 'a|b', 'c')", "regexp_replace(s, 'é', '')",
        "regexp_replace(u, '..?', 'x')"],
    "split": ["size(split(l, '-'))", "get(split(l, '-'), 1)", "get(split(s, 'a'), 0)", "get(split(q, '[-T ]'), 2)",
        "size(split(u, 'x'))", "array_contains(split(s, 'b'), '')", "get(split(k, '[.]'), 1)"],
    "date_format": [f"date_format({of}, '{pattern}')" for of in ("ts", "d", "later") for pattern in ("yyyy-MM-dd",
        "EEEE", "E", "MMM", "MMMM d", "HH", "H:mm", "hh:mm:ss a", "h a", "yyyy-MM-dd\\'T\\'HH:mm:ss", "M/d/yyyy EE")],
    "instr": ["instr(s, 'a')", "instr(s, 'b')", "instr(s, '')", "instr(u, 'A')", "instr(s, 'Σ')"],
    "locate": ["locate('b', s)", "locate('', s)"],
    "position": ["position('b' IN s)", "position('b', u)"],
    **{name: [f"{name}(x)", f"{name}(i)", f"{name}(p)"] for name in ("floor", "ceil", "ceiling")},
    "round": ["round(x)", "round(i)", "round(b, 2)", *(f"round(z, {digits})" for digits in (0, 1, 2, 3, 5, 8, 12)),
        "round(x, 2)"],
    "bround": ["bround(x)", "bround(i)", "bround(b, 2)", *(f"bround(z, {digits})" for digits in (0, 1, 2, 3, 5, 12))],
    "bround_decimal": ["bround(p)", "bround(p, 1)", "bround(y2, 3)", "bround(y2)", "bround(p, 4)"],
    "rint": ["rint(x)", "rint(y)", "rint(z)", "rint(b)", "rint(f)", "rint(p)", "rint(small)"],
    "numbers": ["nanvl(x, y)", "nanvl(y, x)", "nanvl(f, f + f)", "nanvl(x, 0.0D)", "positive(x) / 2.5",
        "abs(positive(p))", "nullifzero(x)", "nullifzero(i)", "nullifzero(f)", "greatest(zeroifnull(t), -5)",
        "greatest(zeroifnull(b), -5L)", "least(zeroifnull(x), 2.0D)",
        "greatest(zeroifnull(f), x)", "signum(p)", "sign(small)", "sign(f)", "signum(y2)", "sqrt(p)", "sqrt(f)"],
    "round_decimal": ["round(p)", "round(p, 1)", "round(p, 2)", "round(p, 5)", "round(y2, 3)", "round(y2)"],
    **{name: [f"{name}(x)", f"{name}(z)", f"{name}(i)"] for name in ("sign", "signum", "sqrt")},
    **{operator: [f"i {operator} j", f"b {operator} c", f"t {operator} i", f"h {operator} 5"] for operator in "&|^"},
    **{name: [f"{name}(a)", f"{name}(m)"] for name in ("size", "cardinality")},
    **{of: [call for each in ("a", "dense", "nested", "split(s, 'a')", "g")
            for call in (f"size({name}({each}))", f"get({name}({each}), 0)", f"get({name}({each}), 1)")]
       for of, name in (("array_compact", "array_compact"), ("reverse_array", "reverse"))},
    "array_remove": [f"{call}(array_remove({of}){end}" for of in ("a, 'x'", "dense, 2", "a, tf", "r, j", "g, y")
                     for call, end in (("size", ")"), ("get", ", 0)"), ("get", ", 1)"))],
    **{of: [f"{call}({name}({both}){end}" for both in more for call, end in (("size", ")"), ("get", ", 0)"),
            ("get", ", 1)"), ("get", ", 2)"))] for of, name, more in (
        ("array_union", "array_union", ("r, dense", "dense, r", "a, a", "a, split(u, 'x')")),
        ("concat_arrays", "concat", ("r, dense", "a, a, a", "nested, nested", "g, g", "split(s, 'a'), a")))},
    "overlap": ["arrays_overlap(r, dense)", "arrays_overlap(a, split(tf, ' '))", "arrays_overlap(a, a)",
                "arrays_overlap(array_compact(a), split(tf, '-'))", "arrays_overlap(nested, nested)"],
    "array_join": ["array_join(a, ',')", "array_join(a, '', 'é')", "array_join(split(s, 'a'), '-')",
        "array_join(array_union(a, split(u, 'b')), ', ', '')", "array_join(a, '', '')"],
    "among": [f"IF(array_contains(array({of}), 1, 0)" for of in ("'x', 'y'), tf", "1, -1), j", "3), c", "1, 7L), j")],
    **{name: [f"{name}(url)", f"{name}(s)", f"{name}(concat(url, u))"] for name in ("url_decode", "try_url_decode")},
    "find_in_set": ["find_in_set(tf, 't,f,y,t,,x')", "find_in_set(s, '')", "find_in_set(u, 'a,  ab ,ß,ß')",
        "find_in_set(s, ',')", "find_in_set(concat(u, ','), 'a,')"],
    **{name: [f"{name}(i)", f"{name}(b)", f"{name}(t)", f"{name}(c)", f"{name}(w)"] for name in ("hex", "bin")},
    "seconds_of": [f"{name}({of})" for name in ("unix_timestamp", "to_unix_timestamp") for of in
        ("fd, 'yyyy-MM-dd'", "fd, 'dd.MM.yyyy'", "fd, 'MM/dd/yyyy H:mm'", "fh")],
    "array_size": ["array_size(a)", "array_size(r)"],
    "[]": ["a[0]", "a[1]", "a[-1]", "r[2]", "r[h]", "r[w]", "g[0]"],
    "get": ["get(a, 0)", "get(r, w)", "get(r, -1)"],
    "element_at": ["element_at(a, 1)", "element_at(r, -1)", "element_at(r, 3)", "element_at(a, 0)",
        "element_at(r, -2147483647)"],
    "map_contains_key": ["map_contains_key(m, 'a')", "map_contains_key(m, '')", "map_contains_key(o, -1)",
        "map_contains_key(m, tf)", "map_contains_key(o, i)"],
    **{name: [f"{name}(s, u)", f"{name}(u, s)", f"{name}('xaby', u)", f"{name}(s, s)", f"{name}(k, left(k, 1))"]
       for name in ("startswith", "endswith", "contains")},
    "reverse": ["reverse(s)", "reverse(u)"],
    "map_value": ["m['a']", "m['b']", "m['']", "m.b", "element_at(m, 'a')", "o[1]", "o[-1]", "element_at(o, 2)",
        "try_element_at(o, 3)", "m[tf]", "o[i]", "element_at(m, tf)"],
    "array_contains": ["array_contains(a, 'x')", "array_contains(g, 0.0D)", "array_contains(g, DOUBLE('NaN'))",
        "array_contains(a, tf)", "array_contains(r, j)", "array_contains(g, y)"],
    **{name: [f"{name}({of})" for of in ("i", "b", "t", "h", "v", "x", "z", "f", "ts", "n", "d", "p", "y2", "s", "u",
        "s, i, p", "i, s", "l", "repeated")] for name in ("hash", "xxhash64")},
    "crc32": ["crc32(s)", "crc32(u)", "crc32(l)"],
    "~": ["~i", "~b", "~t", "~h"],
    "bit_count": ["bit_count(i)", "bit_count(b)", "bit_count(t)"],
    **{name: [f"{name}({of})" for of in ("i, j", "b, i", "t, 3", "b, -1", "i, 33", "h, t", "7, j")]
       for name in ("shiftleft", "shiftright", "shiftrightunsigned")},
    "shifts": ["i << 2", "b >> 3", "i >>> j", "t << h"],
    **{name: [f"{name}(s)", f"{name}(u)", f"{name}(l)"] for name in ("octet_length", "bit_length", "ascii")},
    "array_position": ["array_position(a, 'x')", "array_position(r, 1)", "array_position(r, j)",
        "array_position(g, 0.0D)", "array_position(g, y)", "array_position(a, tf)"],
    **{name: [f"{name}({of})" for of in ("r", "g", "map_values(m)", "map_keys(o)", "nested")]
       for name in ("array_max", "array_min")},
    **{name: [f"size({name}(m))", f"array_contains({name}(m), {value})", f"get({name}(o), 1)",
              f"array_position({name}(m), {value})"]
       for name, value in (("map_keys", "'b'"), ("map_values", "2"))},
    "timestampdiff": [
        *(f"timestampdiff({unit}, ts, {of})" for unit in ("MONTH", "quarter", "YEAR") for of in ("later", "d")),
        *(f"timestampdiff({unit}, ts, later)" for unit in ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK")),
        "datediff(HOUR, later, ts)", "timestampdiff(DAY, ts, TIMESTAMP'2024-03-31 12:00:00')",
    ],
    "operators": [
        *(f"{left} / {right}" for left, right in ("xy", "yx", "ij", "bc", "fy", "tf", "px")),
        "i / 60", "x / 2.5", "7 / j", "x / -0.0D", "b / 0",
        *(f"{left} % {right}" for left, right in ("xy", "yx", "ij", "bc", "tt", "ti", "ff", "fy", "xi")),
        "i % 7", "b % -1", "x % 2.5D", "7 % t",
        *(f"{left} DIV {right}" for left, right in ("ij", "bc", "tt", "cb", "ib")), "i DIV 7", "b DIV -1", "7 DIV t",
        *(f"pmod({left}, {right})" for left, right in ("xy", "yx", "ij", "bc", "tt", "ti", "ff", "fy", "xi", "hh",
        "ww")),
        "p / 3", "p / 0.03", "p / p", "p / y2", "y2 / p", "1 / p", "p / j", "j / y2", "p / 7L", "t / y2", "100.00 / p",
        "p / b", "y2 / b", "1.5 / b", "100.00 / c",
        "p % 100", "p % 0.03", "p % p", "p % y2", "y2 % p", "p % i", "7 % p", "p % -7L", "t % p", "p % 1.125",
        "p * 2", "p * i", "p * p", "p * 1.10", "-3 * p", "y2 * 7L", "t * p", "b * p",
        *(f"try_{name}({of})" for name in ("divide", "mod", "add", "subtract", "multiply") for of in ("x, y", "i, j",
        "b, c", "f, y", "t, i", "i, 60", "7, t", "b, 0", "b, -1L", "t, t", "h, 300S", "i, b", "f, f", "x, i", "b, 3")),
        "pmod(i, 7)", "pmod(b, -3)", "pmod(-7, t)", "mod(i, j)", "mod(b, 10)", "div(i, j)", "div(b, 3)",
    ],
    "fields": [f"extract({field} FROM {of})" for field in _FIELDS for of in ("ts", "n")],
    "extremes": [f"{name}({arguments})" for name in ("greatest", "least") for arguments in
                 ("x, y", "i, b", "x, z, y", "s, u", "ts, later", "d, e", "p, 1.5", "t, h, w, b", "i, 5", "v, TRUE",
                 "x, -0.0D")],
    "shown_time": ["CAST(ts AS STRING)", "CAST(n AS STRING)", "CAST(d AS STRING)", "CAST(later AS STRING)"],
    "parse_date": [f"to_date(fd, '{pattern}')" for pattern in (*_PATTERNS, *_CLOCKS)],
    "try_parse_date": [f"try_to_date(fd, '{pattern}')" for pattern in _PATTERNS],
    "parse_timestamp": [f"to_timestamp(fd, '{pattern}')" for pattern in (*_PATTERNS, *_CLOCKS)],
    "try_parse_timestamp": [f"try_to_timestamp(fd, '{pattern}')" for pattern in _CLOCKS],
    "parse_timestamp_ntz": ["to_timestamp_ntz(fv, 'yyyy-MM-dd')"],
    **{name: [f"{name}(i, 3)", f"{name}(b, 31)", f"{name}(j, 0)"] for name in ("getbit", "bit_get")},
    **{name: [f"{name}(x, 2)", f"{name}(z, 2.0D)", f"{name}(i, 2L)", f"{name}(y2, 2)"] for name in ("power", "pow")},
    "try_element_at": [f"try_element_at({of}, {place})" for of in ("a", "r", "dense") for place in (1, -1, 3, -4)],
    "slice": [call for of in ("a", "r", "dense", "nested", "split(s, 'a')") for at in (1, 2, -2, -4, 6)
              for count in (0, 1, 3, 1000) for call in (f"size(slice({of}, {at}, {count}))",
              f"get(slice({of}, {at}, {count}), 1)")],
    "sort_array": [f"get(sort_array({of}{order}), {at})" for of in ("a", "r", "g", "dense", "nested", "split(s, 'a')")
                   for order in ("", ", false", ", true") for at in (0, 1)] + ["size(sort_array(dense))"],
    "to_timestamp": ["to_timestamp(l)", "CAST(l AS TIMESTAMP)", "to_timestamp(q)", "to_timestamp(k)",
                     "timestamp(l)"],
    "to_timestamp_ntz": ["to_timestamp_ntz(l)", "CAST(l AS TIMESTAMP_NTZ)", "CAST(q AS TIMESTAMP_NTZ)"],
    "try_to_timestamp": ["try_to_timestamp(l)", "TRY_CAST(l AS TIMESTAMP)"],
    "casts": ["to_date(q)", "try_to_date(q)", "CAST(tf AS BOOLEAN)", "TRY_CAST(tf AS BOOLEAN)",
        "CAST(k AS DOUBLE)", "CAST(k AS DECIMAL(10,2))", "CAST(k AS DECIMAL(38,0))", "CAST(k AS DECIMAL(5,5))",
              "CAST(k AS DECIMAL(38,18))", "TRY_CAST(k AS DECIMAL(4,1))", "CAST(q AS DATE)", "CAST(i AS STRING)",
              "CAST(b AS STRING)", "CAST(t AS STRING)", "CAST(p AS STRING)",
        "CAST(y2 AS STRING)", "CAST(small AS STRING)", "concat(p, 'x')", "p || i",
        "CAST(v AS STRING)",
              "CAST(v AS INT)", "CAST(v AS BIGINT)", "TRY_CAST(k AS INT)", "TRY_CAST(x AS INT)",
              "TRY_CAST(b AS TINYINT)",
              "TRY_CAST(p AS SMALLINT)", "TRY_CAST(k AS DOUBLE)", "TRY_CAST(q AS DATE)", "CAST(k AS INT)",
              "CAST(k AS BIGINT)", "CAST(k AS TINYINT)", "CAST(k AS SMALLINT)", "CAST(ts AS DATE)",
              "CAST(n AS DATE)", *(f"CAST({of} AS BOOLEAN)" for of in ("x", "f", "i", "b", "t", "p", "y2", "small")),
              "TRY_CAST(x AS BOOLEAN)", "CAST(ts AS DOUBLE)", "CAST(ts AS BIGINT)", "CAST(later AS DOUBLE)",
              "TRY_CAST(ts AS INT)", "abs(CAST(later AS BIGINT) - CAST(ts AS BIGINT))", "BIGINT(ts)"],
}  # fmt: skip
