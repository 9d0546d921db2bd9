"""Random rules over the columns of `expressions_rows`, for comparing with Spark."""

from __future__ import annotations

import random

NUMBERS = ["i", "l", "t", "h", "d", "w", "v", "f", "x"]
INTEGERS = ["i", "l", "t", "h"]
LITERALS = {
    "number": [
        "0", "1", "-1", "5", "6", "127", "128", "-129", "1000", "2147483648", "9223372036854775807", "1.5", "0.1",
        "5.50", "-1.500", "1.005", "5.49999", "1e18", "0.1D", "1.5F", "0.1F", "1e300", "-0.0D", "5Y", "300S", "7L",
        "99999999.99", "1e-3", "'5'", "'1.5'", "' 6 '", "NULL", "1 + 4", "-(-3)", "2 * 3", "CAST('5' AS INT)",
        "CAST(0.1 AS FLOAT)", "16777217", "9007199254740993", "1.5BD", "9999999999999999999",
    ],
    "text": [
        "'a'", "''", "'abc'", "'ab'", "'b'", "'é'", "'😀'", "'5'", "'a%c'", "NULL", "'a' 'b'", "\"abc\"", "r'a\\c'",
        "'\\u00e9'", "'it''s'", "'zz'", "'\\n'",
    ],
    "date": [
        "'2024-01-01'", "DATE'2024-01-01'", "DATE'1970-01-01'", "'2023'", "TIMESTAMP'2024-01-01 00:00:01'",
        "TIMESTAMP_NTZ'2024-01-01 10:00:00'", "'2024-01-02'", "NULL", "DATE'0001-01-01'", "CAST('2024-01-01' AS DATE)",
    ],
    "time": [
        "'2024-01-01'", "TIMESTAMP'2024-01-01 00:00:00.000001'", "DATE'2024-01-01'", "'2024-01-01T10:00:00Z'",
        "TIMESTAMP_NTZ'2024-01-01 12:00:00.123456'", "'2024-01-01 01:00:00+01:00'", "NULL", "TIMESTAMP'1970-01-01'",
    ],
    "bool": ["true", "false", "NULL", "'true'"],
}  # fmt: skip
COLUMNS = {"number": NUMBERS, "text": ["s", "u", "st.q"], "date": ["dt"], "time": ["ts", "n"], "bool": ["b", "c"]}
COMPARISONS = ["=", "<>", "!=", "<", "<=", ">", ">=", "<=>", "=="]
PATTERNS = ["'a%'", "'%'", "'abc'", "'%b%'", "'a_c'", "'a\\\\_c'", "'_'", "''", "'%c'", "'a%c'", "'é%'", "NULL"]
REGEXES = ["'^a'", "'b$'", "'[0-9]+'", "'^$'", "'a.c'", "'(?i)ABC'", "'a|b'"]


class Generator:
    """Draws rules; the same seed gives the same rules."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, choices: list[str]) -> str:
        """One of the choices."""
        return self.random.choice(choices)

    def rule(self, depth: int = 3) -> str:
        """A Boolean expression."""
        kind = self.random.random()
        if depth <= 0 or kind < 0.45:
            return self.atom(depth)
        if kind < 0.62:
            return f"{self.rule(depth - 1)} AND {self.rule(depth - 1)}"
        if kind < 0.76:
            return f"({self.rule(depth - 1)} OR {self.rule(depth - 1)})"
        if kind < 0.86:
            return f"NOT ({self.rule(depth - 1)})"
        if kind < 0.94:
            test = self.pick(["TRUE", "FALSE", "UNKNOWN", "NULL"])
            return f"({self.rule(depth - 1)}) IS {self.pick(['', 'NOT '])}{test}"
        return f"CASE WHEN {self.rule(depth - 1)} THEN {self.rule(depth - 1)} ELSE {self.rule(depth - 1)} END"

    def atom(self, depth: int) -> str:
        """One predicate."""
        family = self.pick(["number"] * 6 + ["text"] * 3 + ["date", "time", "bool"])
        value = self.value(family, depth)
        kind = self.random.random()
        if kind < 0.5:
            other = self.operand(family, depth)
            sides = (value, other) if self.random.random() < 0.8 else (other, value)
            return f"{sides[0]} {self.pick(COMPARISONS)} {sides[1]}"
        if kind < 0.6:
            word = self.pick(["BETWEEN", "NOT BETWEEN"])
            return f"{value} {word} {self.operand(family, depth)} AND {self.operand(family, depth)}"
        if kind < 0.72:
            items = ", ".join(self.operand(family, 0) for _ in range(self.random.randint(1, 4)))
            return f"{value} {self.pick(['IN', 'NOT IN'])} ({items})"
        if kind < 0.8:
            return f"{value} IS {self.pick(['', 'NOT '])}NULL"
        if kind < 0.85:
            return f"{value} IS {self.pick(['', 'NOT '])}DISTINCT FROM {self.operand(family, depth)}"
        if family == "text":
            return self.match(value)
        if family == "bool":
            return self.pick([value, f"NOT {value}", f"{value} IS NOT TRUE"])
        return f"{value} {self.pick(COMPARISONS)} {self.operand(family, depth)}"

    def match(self, value: str) -> str:
        """A LIKE, ILIKE or RLIKE."""
        negated = self.pick(["", "NOT "])
        kind = self.random.random()
        if kind < 0.2:
            return f"{value} {negated}RLIKE {self.pick(REGEXES)}"
        if kind < 0.4:
            items = ", ".join(self.pick(PATTERNS) for _ in range(2))
            return f"{value} {negated}{self.pick(['LIKE', 'ILIKE'])} {self.pick(['ANY', 'ALL'])} ({items})"
        return f"{value} {negated}{self.pick(['LIKE', 'LIKE', 'ILIKE'])} {self.pick(PATTERNS)}"

    def operand(self, family: str, depth: int) -> str:
        """A constant, or now and then a value of rows."""
        if self.random.random() < 0.75:
            return self.pick(LITERALS[family])
        return self.value(family, depth)

    def value(self, family: str, depth: int) -> str:
        """A column, or a computation over columns."""
        column = self.pick(COLUMNS[family])
        if depth <= 0 or self.random.random() < 0.6:
            return column
        if family == "number":
            return self.number(depth - 1)
        if family == "text":
            one, other = self.value("text", 0), self.value("text", 0)
            return self.pick(
                [f"upper({one})", f"coalesce({one}, {other})", f"substring({one}, 1, 2)", f"({one} || {other})",
                 f"nullif({one}, 'a')", f"CAST({self.pick(INTEGERS)} AS STRING)", f"if(b, {one}, {other})",
                 f"trim({one})", f"left({one}, 2)", f"right({one}, 1)", f"replace({one}, 'a', 'b')",
                 "CAST(b AS STRING)",
                 f"greatest({one}, {other})", f"TRIM(LEADING FROM {one})"]
            )  # fmt: skip
        if family == "date":
            return self.pick(
                ["dt + 1", "CAST(ts AS DATE)", "coalesce(dt, DATE'2024-01-01')", "last_day(dt)", "date_sub(dt, t)",
                 "add_months(dt, 1)", "trunc(dt, 'MM')", "CAST(s AS DATE)", "TRY_CAST(s AS DATE)", "dt - h",
                 "least(dt, DATE'2024-01-01')"]
            )  # fmt: skip
        if family == "time":
            unit = self.pick(["DAY", "HOUR", "MONTH", "week"])
            return self.pick(["ts + INTERVAL 1 HOUR", f"date_trunc('{unit}', ts)", "coalesce(ts, n)"])
        return self.pick(["(b AND c)", "(i > 5)", "coalesce(b, c)", "(s = u)", "(NOT b)"])

    def number(self, depth: int) -> str:
        """A numeric computation."""
        one, other = self.value("number", depth), self.value("number", depth)
        literal = self.pick(["1", "2", "1.5", "3L", "0.5D", "10Y"])
        whole = self.pick(INTEGERS)
        return self.pick(
            [f"({one} + {literal})", f"({one} - {other})", f"({whole} * {literal})", f"(- {one})", f"abs({one})",
             f"({one} / {literal})", f"({whole} % {self.pick(INTEGERS)})", f"({whole} DIV {self.pick(INTEGERS)})",
             f"coalesce({one}, {other})", f"nullif({one}, {literal})", f"if(c, {one}, {other})", "length(s)",
             f"CASE WHEN b THEN {one} WHEN {whole} > 3 THEN {other} END", f"CAST({one} AS DOUBLE)",
             f"CAST({one} AS {self.pick(['INT', 'BIGINT', 'TINYINT', 'DECIMAL(12,3)', 'FLOAT'])})", f"({whole} & 4)",
             "size(arr)", "arr[0]", "m['a']", "st.p", f"greatest({one}, {other})", f"round({self.pick(['f', 'x'])})",
             "year(dt)", f"ceil({one})", "CAST(s AS INT)", "TRY_CAST(s AS INT)", "CAST(s AS DOUBLE)", "CAST(b AS INT)",
             f"least({one}, {literal})", f"pmod({whole}, {self.pick(INTEGERS)})", f"mod({whole}, 3)", "round(x, 2)",
             f"TRY_CAST({one} AS SMALLINT)", "TRY_CAST(s AS DOUBLE)", f"({whole} ^ {self.pick(INTEGERS)})", "sign(x)",
             f"sqrt({whole})", "element_at(arr, 1)", "element_at(arr, -2)", "get(arr, t)", "arr[t]", "m['zz']",
             "instr(s, 'b')", "locate('a', u)", "extract(DOW FROM ts)", "extract(YEAROFWEEK FROM dt)",
             "unix_seconds(ts)", "unix_timestamp(ts)", "array_size(arr)", "element_at(m, 'a')"]
        )  # fmt: skip
