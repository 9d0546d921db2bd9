"""What `implies` holds of functions in Spark: of those that it takes to be NULL where an argument is, each is."""

from __future__ import annotations

import re

import pytest

from rules_index.implication.null_propagation import _STRICT_CALLS
from rules_index.language.tokens import words

VALUES = {
    "s": "'2024-01-01'",
    "z": "'1'",
    "d": "0.5D",
    "e": "2D",
    "i": "1",
    "j": "2",
    "day": "DATE'2024-01-31'",
    "eve": "DATE'2024-01-30'",
    "at": "TIMESTAMP'2024-01-01 10:00:00'",
    "raw": "X'61'",
    "list": "array(1, 2)",
    "more": "array(2, 3)",
    "map": "map('a', 1)",
}
CALLS = sorted(
    words("""
    abs(d) acos(d) add_months(day,i) array_contains(list,i) array_distinct(list) array_max(list) array_min(list)
    array_union(list,more) arrays_overlap(list,more) ascii(s) asin(d) atan(d) atan2(d,e) base64(raw) bigint(z)
    binary(s) bit_count(i) bit_length(s) boolean(z) bround(d,1) btrim(s) btrim(s,z) cbrt(d) ceil(d) ceil(d,1)
    ceiling(d) char_length(s) character_length(s) concat(s,z) concat(list,more) contains(s,z) cos(d) crc32(raw) date(s)
    date_add(day,i) date_diff(day,eve) date_format(at,'yyyy') date_format(at,s) date_from_unix_date(i)
    date_sub(day,i) date_trunc('DAY',at) date_trunc(s,at) datediff(day,eve) day(day) dayofmonth(day) dayofweek(day)
    dayofyear(day) degrees(d) double(z) encode(s,'UTF-8') endswith(s,z) exists(list,x->x>0) exp(d) expm1(d)
    filter(list,x->x>0) float(z) floor(d) floor(d,1) forall(list,x->x>0) hex(i) hex(s) hour(at) hypot(d,e)
    ilike(s,z) initcap(s) instr(s,z) int(z) last_day(day) lcase(s) left(s,i) len(s) length(s) length(raw)
    like(s,z) ln(d) log10(d) log1p(d) log2(d) lower(s) lpad(s,i) lpad(s,i,z) ltrim(s) ltrim(s,z)
    map_contains_key(map,z) map_keys(map) map_values(map) md5(raw) minute(at) mod(i,j) mod(d,e) month(day)
    months_between(day,eve) months_between(at,day) negative(d) next_day(day,'MON') next_day(day,z) octet_length(s)
    overlay(s,z,i) overlay(s,z,i,j) pmod(i,j) positive(d) pow(d,e) power(d,e) quarter(day) radians(d) regexp(s,z)
    regexp_count(s,z) regexp_extract(s,z) regexp_extract(s,z,0) regexp_instr(s,z) regexp_instr(s,z,0)
    regexp_like(s,z) regexp_replace(s,z,z) regexp_replace(s,z,s) regexp_substr(s,z) repeat(s,2) repeat(s,i)
    replace(s,z) replace(s,z,s) reverse(s) reverse(list) right(s,i) rint(d) rlike(s,z) round(d,1) round(d)
    rpad(s,i) rtrim(s)
    rpad(s,i,z) sha(raw) sha1(raw) sha2(raw,256) sha2(raw,i) shiftleft(i,j) shiftright(i,j) sign(d) signum(d) sin(d)
    slice(list,i,j) smallint(z) sort_array(list) soundex(s) split(s,z) split(s,z,i) split_part(s,z,i) sqrt(d)
    startswith(s,z) string(d) substr(s,i) substr(s,i,j) substring(s,i,j) substring_index(s,z,i) tan(d) timestamp(s)
    timestamp_micros(i) timestamp_millis(i) timestamp_seconds(i) tinyint(z) to_date(s) to_date(s,'yyyy-MM-dd')
    to_date(s,z) to_timestamp(s) to_timestamp(s,'yyyy-MM-dd') transform(list,x->x+1) translate(s,z,z)
    translate(s,z,s) trim(s) trim(s,z) trunc(day,'MM') trunc(day,z) ucase(s) unbase64(s) unhex(z) unix_date(day)
    unix_micros(at) unix_millis(at) unix_seconds(at) upper(s) weekday(day) weekofyear(day) year(day)
""")
)


def test_every_function_that_needs_its_arguments_is_tried() -> None:
    assert {call.split("(")[0] for call in CALLS} == set(_STRICT_CALLS)


@pytest.mark.parametrize("column", VALUES)
def test_a_function_of_null_is_null(spark, column: str) -> None:
    values = VALUES | {column: f"if(false, {VALUES[column]}, NULL)"}
    row = ", ".join(f"{value} AS {name}" for name, value in values.items())
    calls = [call for call in CALLS if column in re.findall(r"[a-z]+", call.split("(", 1)[1])]
    assert calls
    found = spark.sql(f"SELECT {', '.join(calls)} FROM (SELECT {row})").first()
    assert [call for call, value in zip(calls, found, strict=True) if value is not None] == []
