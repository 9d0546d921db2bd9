"""Random Boolean Spark SQL expressions over the columns of `random_rows`, from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.random_rows import COLUMNS, DECIMALS, FIELDS, NUMBERS, TIMES, WHOLE, literal, quoted

PATTERNS = (
    "%",
    "",
    "a%",
    "%b",
    "a_c",
    "%b%",
    "_",
    "a\\%b",
    "a\\_%",
    "abc",
    "%a%b%",
    "__%",
    "é%",
    "日_語",
    "%\n",
    "A%",
    "%é",
    "🙂",
    "_%_",
    "%ß%",
    "%i%",
    "a%b%c",
    "1%",
    "%\\%%",
)
REGEXES = (
    "a",
    "^a",
    "b$",
    "^abc$",
    "a.c",
    "[a-c]+",
    "\\d+",
    "\\s",
    "(a|b)c?",
    "^$",
    "^.$",
    "\\w+",
    "[^a-z]",
    "(?i)abc",
    "a{2,}",
    "é",
    "\\bab",
    "^\\s*\\d",
    "[\\x00-\\x1f]",
    "\\p{L}+",
    ".*b.*",
    "^.{3}$",
    "(?s)^.*$",
    "x{40}",
    "\\.",
    "[日本]",
)


# How to make a value of each type from values of others, separated by semicolons: {type} stands for a value of the
# type, {type!} for a literal, {0} for the type that is wanted.
_MAKERS = {
    "whole": """
        {0} + {0} ; {0} - {0} ; {0} * {0!} ; -{0} ; {0} % {0} ; {0} DIV {0} ; abs({0}) ; pmod({0}, {0}) ;
        {0} & {0} ; {0} | {0} ; {0} ^ {0} ; ~{0} ; sign({0}) ; shiftleft({0}, 2) ; {0} << 1 ; +{0}
    """,
    "int": """
        length({string}) ; year({date}) ; month({timestamp}) ; day({timestamp_ntz}) ; datediff({date}, {date}) ;
        size({array<int>}) ; {array<int>}[0] ; element_at({array<int>}, {tinyint!}) ; {map}['a'] ; mp.a ;
        ascii({string}) ; instr({string}, {string!}) ; locate('b', {string}) ; CAST({string} AS INT) ;
        hour({timestamp}) ; hash({string}, {int}) ; size({map}) ; dayofweek({date}) ; octet_length({string}) ;
        cardinality({array<string>}) ; bit_count({bigint}) ; aggregate({array<int>}, 0, (acc, x) -> acc + x) ;
        array_max({array<int>}) ; get({array<int>}, {int}) ; weekday({date}) ; extract(DAY FROM {date}) ;
        date_part('YEAR', {timestamp}) ; levenshtein({string}, {string!}) ; try_element_at({map}, 'b') ;
        try_add({int}, {int}) ; try_divide({int}, {int!}) :: int ; array_size({array<int>}) ;
        find_in_set({string}, 'a,b,abc') ; hash({date}, {decimal(5,2)}, {timestamp}) ; hash({bigint}, {string}) ;
        bit_length({string}) ; array_min({array<int>}) ; hash({double}, {boolean}) ; size(map_keys({map})) ;
        shiftrightunsigned({int}, 1)
    """,
    "bigint": """
        CAST({double} AS BIGINT) ; CAST({decimal(38,10)} AS BIGINT) ; unix_date({date}) + 0L ;
        xxhash64({string}) ; {bigint} + {int} ; unix_micros({timestamp}) ; crc32({binary}) ; ceil({double}) ;
        floor({double}) ; CAST({timestamp} AS BIGINT) ; array_position({array<int>}, {int!}) ;
        crc32({string}) ; xxhash64({decimal(18,6)}, {int}) ; xxhash64({float}, {string}) ; shiftright({bigint}, {int}) ;
        {int} * 1000000000000 ; bigint({string}) ; {string} - {int} ; {bigint} % {string} ; try_cast({string} AS BIGINT)
    """,
    "tinyint": """
        CAST({int} AS TINYINT) ; {tinyint} + {tinyint!} ; try_cast({bigint} AS TINYINT)
    """,
    "smallint": """
        CAST({bigint} AS SMALLINT) ; {smallint} - {tinyint} ; smallint({double})
    """,
    "double": """
        {double} + {double} ; {double} - {int} ; {double} * {double} ; {double} / {double} ; {int} / {int} ;
        -{double} ; sqrt({double}) ; exp({double}) ; ln({double}) ; pow({double}, 2) ; round({double}, 1) ;
        abs({double}) ; CAST({string} AS DOUBLE) ; {double} % {double!} ; nanvl({double}, {double!}) ;
        cbrt({double}) ; CAST({decimal(18,6)} AS DOUBLE) ; {float} + {double} ; atan2({double}, {double!}) ;
        {string} / {int} ; {int} / {string} ;
        rint({double}) ; hypot({double}, 1D) ; CAST({timestamp} AS DOUBLE) ; log10({double}) ; {string} * 2 ;
        months_between({timestamp}, {timestamp}) ; try_divide({double}, {double}) ; try_mod({double!}, {double})
    """,
    "float": """
        CAST({double} AS FLOAT) ; {float} * {float} ; {float} + {float!} ; -{float} ; abs({float}) ;
        float({string})
    """,
    "decimal": """
        {0} + {0} ; {0} - {0} ; {0} * {0!} ; {0} / {0!} ; -{0} ; abs({0}) ; {0} % {0} ; {0} + {int} ;
        round({0}, 1)
    """,
    "decimal(5,2)": """
        CAST({double} AS DECIMAL(5,2)) ; CAST({string} AS DECIMAL(5,2)) ; CAST({int} AS DECIMAL(5,2))
    """,
    "decimal(20,0)": """
        CAST({bigint} AS DECIMAL(20,0)) ; CAST({decimal(38,10)} AS DECIMAL(20,0)) ; ceil({decimal(18,6)})
    """,
    "decimal(38,10)": """
        CAST({decimal(18,6)} AS DECIMAL(38,10)) ; CAST({string} AS DECIMAL(38,10)) ; {decimal(18,6)} * {bigint}
    """,
    "string": """
        upper({string}) ; lower({string}) ; trim({string}) ; substring({string}, 1, 2) ; substring({string}, -2) ;
        concat({string}, {string}) ; {string} || {string!} ; replace({string}, 'a', 'b') ; left({string}, 2) ;
        reverse({string}) ; lpad({string}, 5, '*') ; initcap({string}) ; CAST({int} AS STRING) ;
        CAST({double} AS STRING) ; CAST({date} AS STRING) ; CAST({timestamp} AS STRING) ;
        CAST({boolean} AS STRING) ; CAST({decimal(5,2)} AS STRING) ; CAST({binary} AS STRING) ; hex({string}) ;
        concat_ws('-', {string}, {string}) ; {array<string>}[{int!}] ; date_format({timestamp}, 'yyyy-MM') ;
        split_part({string}, 'b', 1) ; translate({string}, 'ab', 'xy') ; repeat({string}, 2) ; md5({string}) ;
        regexp_replace({string}, '[a-b]', 'z') ; regexp_extract({string}, '(a)(b)?', 1) ;
        element_at({array<string>}, 1) ; rtrim({string}) ; array_join({array<string>}, ',') ;
        elt(1, {string}, {string}) ; overlay({string} PLACING 'z' FROM 1) ; trim(LEADING 'a' FROM {string}) ;
        sha2({string}, 256) ; base64({binary}) ; substr({string} FROM 2 FOR 2) ; right({string}, 1) ;
        soundex({string}) ; concat({string}, '-', {int}) ; {string} || {date} ; trim(BOTH 'a' FROM {string}) ;
        nvl2({int}, {string}, {string!}) ; concat_ws('/', {string}, {bigint}, {boolean}) ; CAST({tinyint} AS STRING)
    """,
    "binary": """
        CAST({string} AS BINARY) ; unhex({string}) ; {binary} || {binary} ; encode({string}, 'UTF-8') ;
        substring({binary}, 1, 1) ; reverse({binary})
    """,
    "date": """
        date_add({date}, {tinyint}) ; {date} + 1 ; {date} - 30 ; CAST({timestamp} AS DATE) ; to_date({string}) ;
        last_day({date}) ; trunc({date}, 'MM') ; CAST({string} AS DATE) ; add_months({date}, 1) ;
        {date} + INTERVAL '1' MONTH ; make_date({int}, 2, 29) ; CAST({timestamp_ntz} AS DATE) ;
        next_day({date}, 'MON') ; try_to_date({string}) ; to_date({string}, 'yyyy-MM-dd') ;
        try_to_date({string}, 'dd.MM.yyyy') ; last_day({timestamp}) ; trunc({timestamp}, 'MM') ;
        date_from_unix_date({smallint})
    """,
    "timestamp": """
        CAST({date} AS TIMESTAMP) ; {timestamp} + INTERVAL '1' HOUR ; date_trunc('DAY', {timestamp}) ;
        CAST({string} AS TIMESTAMP) ; timestamp_seconds({int}) ; CAST({timestamp_ntz} AS TIMESTAMP) ;
        {timestamp} - INTERVAL 1 DAY ; to_utc_timestamp({timestamp}, 'Asia/Tokyo') ;
        timestampadd(MINUTE, 90, {timestamp}) ; make_timestamp(2024, 2, {tinyint}, 12, 30, 0) ;
        to_timestamp({string}) ; to_timestamp({string}, 'yyyy-MM-dd HH:mm:ss') ;
        from_utc_timestamp({timestamp}, 'America/St_Johns') ; date_trunc('MONTH', {date}) ;
        {timestamp} + INTERVAL 1 MONTH ; timestampadd(YEAR, -1, {timestamp})
    """,
    "timestamp_ntz": """
        CAST({date} AS TIMESTAMP_NTZ) ; {timestamp_ntz} + INTERVAL '2' DAY ; CAST({timestamp} AS TIMESTAMP_NTZ) ;
        CAST({string} AS TIMESTAMP_NTZ) ; {timestamp_ntz} - INTERVAL '13' MONTHS
    """,
    "array<int>": """
        array({int}, {int!}, NULL) ; filter({array<int>}, x -> x > {int!}) ; transform({array<int>}, x -> x + 1) ;
        sort_array({array<int>}) ; array_distinct({array<int>}) ; slice({array<int>}, 1, 2) ;
        array_union({array<int>}, array(1, 2)) ; map_values({map}) ; sequence(1, 3)
    """,
    "array<string>": """
        split({string}, 'b') ; array({string}, 'a') ; map_keys({map}) ;
        transform({array<string>}, e -> upper(e))
    """,
    "map": """
        map('a', {int}, 'b', {int!}) ; map({string}, {int})
    """,
    "boolean": """
        CAST({string} AS BOOLEAN) ; CAST({int} AS BOOLEAN)
    """,
}
_ANY = """
    coalesce({0}, {0}) ; nullif({0}, {0!}) ; CASE WHEN {boolean} THEN {0} ELSE {0} END ;
    CASE WHEN {boolean} THEN {0} END ; if({boolean}, {0}, {0}) ; greatest({0}, {0}) ; least({0}, {0!}) ;
    ifnull({0}, {0}) ; nvl2({0}, {0}, {0!}) ; CASE {0} WHEN {0!} THEN {0} WHEN {0} THEN {0!} ELSE NULL END ;
    ({0}) ; coalesce(NULL, {0})
"""


def _templates(text: str) -> list[str]:
    return [template.strip() for template in text.split(";")]


MAKERS = {name: _templates(text) for name, text in _MAKERS.items()}
ANY = _templates(_ANY)

# Predicates over a value {0} of one scalar type.
PREDICATES: Sequence[tuple[int, str]] = (
    (14, "{0} {op} {0!}"),
    (5, "{0!} {op} {0}"),
    (6, "{0} {op} {0}"),
    (5, "{0} {op} {other}"),
    (3, "{other} {op} {0}"),
    (4, "{0} {not}BETWEEN {0!} AND {0!}"),
    (1, "{0} {not}BETWEEN {0} AND {0}"),
    (2, "{0!} BETWEEN {0} AND {0}"),
    (4, "{0} {not}IN ({0!}, {0!}, {0!})"),
    (3, "{0} {not}IN ({0!}, NULL, {0!})"),
    (1, "{0} {not}IN ({0!}, {other!})"),
    (1, "{0} {not}IN ({0}, {0!}, {0})"),
    (4, "{0} IS {not}NULL"),
    (3, "{0} <=> {0!}"),
    (1, "{0} <=> NULL"),
    (1, "{0} <=> {0}"),
    (2, "{0} IS {not}DISTINCT FROM {0!}"),
    (1, "{0} IS {not}DISTINCT FROM {0}"),
    (1, "({0}, {int}) = ({0}, {int})"),
    (1, "({0}, {string}) {not}IN (({0!}, {string!}), ({0!}, {string!}))"),
    (1, "({0}, {0}) {op} ({0}, {0})"),
    (1, "CASE {0} WHEN {0!} THEN TRUE WHEN {0!} THEN {bool} ELSE FALSE END"),
    (1, "isnull({0})"),
    (1, "isnotnull({0})"),
    (1, "equal_null({0}, {0!})"),
    (1, "nullif({0}, {0!}) {op} {0!}"),
    (1, "coalesce({0}, {0!}) {op} {0!}"),
    (1, "NOT {0} {op} {0!}"),
    (1, "{0} {op} NULL"),
)
TEXTUAL: Sequence[tuple[int, str]] = (
    (6, "{string} {not}LIKE {pattern}"),
    (1, "{string} {not}LIKE '%x!%y%' ESCAPE '!'"),
    (2, "{string} {not}ILIKE {pattern}"),
    (4, "{string} {not}RLIKE {regex}"),
    (1, "regexp_like({string}, {regex})"),
    (1, "{string} REGEXP {regex}"),
    (1, "{string} {not}LIKE ANY ({pattern}, {pattern})"),
    (1, "{string} {not}LIKE ALL ({pattern}, {pattern})"),
    (1, "{string} LIKE SOME ({pattern}, NULL)"),
    (1, "{string} ILIKE ALL ({pattern}, {pattern})"),
    (1, "startswith({string}, {string!})"),
    (1, "endswith({string}, {string})"),
    (1, "contains({string}, {string!})"),
    (1, "like({string}, {pattern})"),
)
OTHERS: Sequence[tuple[int, str]] = (
    (3, "{boolean}"),
    (2, "{boolean} IS {not}TRUE"),
    (2, "{boolean} IS {not}FALSE"),
    (2, "{boolean} IS {not}UNKNOWN"),
    (2, "({bool}) IS {not}TRUE"),
    (2, "({bool}) IS {not}FALSE"),
    (1, "({bool}) IS {not}UNKNOWN"),
    (1, "({bool}) IS {not}NULL"),
    (1, "({bool}) <=> ({bool})"),
    (1, "({bool}) = ({bool})"),
    (1, "CASE WHEN {bool} THEN {bool} WHEN {bool} THEN {bool} ELSE {bool} END"),
    (1, "CASE WHEN {bool} THEN {bool} END"),
    (1, "coalesce({bool}, {bool})"),
    (1, "if({bool}, {bool}, {bool})"),
    (1, "isnan({double})"),
    (2, "exists({array<int>}, x -> x {op} {int!})"),
    (1, "exists({array<string>}, x -> x LIKE {pattern})"),
    (1, "{array<string>} IS {not}NULL"),
    (1, "{array<int>} IS {not}NULL"),
    (1, "size(filter({array<int>}, x -> x {op} {int!})) > 1"),
    (1, "forall({array<int>}, x -> x IS NOT NULL AND x {op} {int!})"),
    (1, "array_contains({array<int>}, {int!})"),
    (1, "array_contains({array<string>}, {string})"),
    (1, "arrays_overlap({array<int>}, array(1, 2, NULL))"),
    (1, "map_contains_key({map}, {string!})"),
    (1, "{array<int>} {op} array(1, 2)"),
    (1, "{array<int>} = {array<int>}"),
    (1, "st IS {not}NULL"),
    (1, "{array<int>} IS {not}NULL"),
    (1, "{map} IS {not}NULL"),
    (1, "i <> 0 AND l / i > {double!}"),
    (1, "{timestamp} - {timestamp} {op} INTERVAL '90' MINUTE"),
    (1, "abs({timestamp_ntz} - {timestamp_ntz}) {not}BETWEEN INTERVAL 1 HOUR AND INTERVAL 400 DAYS"),
    (1, "{date} - {date} {op} INTERVAL -30 DAYS"),
    (1, "INTERVAL 1 DAY {op} {timestamp} - {date}"),
    (1, "CAST(NULL AS BOOLEAN)"),
    (1, "(NULL AND {boolean})"),
    (1, "TRUE"),
    (1, "FALSE"),
    (1, "1 / 0 > 1"),
    (1, "{int!} {op} {int!}"),
)
OPERATORS = ("=", "<", "<=", ">", ">=", "<>", "!=", "==", "<", ">", "=", "<=>")
SCALARS = (*NUMBERS, "string", "string", "string", "binary", "boolean", *TIMES)


@dataclass
class Grammar:
    """Draws Boolean expressions.

    `variety` is the share of values that are computed instead of read from a column, `constants` the share of the
    others that are literals. `parts` holds the Boolean expressions that the last rule is made of, for finding the least
    one that shows a fault.
    """

    seed: int
    variety: float = 0.25
    constants: float = 0.0
    parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.choice = random.Random(self.seed)

    def rule(self) -> str:
        """One Boolean expression of one to some twenty predicates."""
        self.parts = []
        return self.boolean(self.choice.choice((0, 0, 1, 1, 2, 3)))

    def boolean(self, depth: int) -> str:
        """A Boolean expression whose AND, OR and NOT are nested `depth` deep at most."""
        draw = self.choice.random()
        if depth <= 0 or draw < 0.15:
            text = self.predicate(depth)
        elif draw < 0.3:
            text = f"{self.choice.choice(('NOT ', 'NOT ', '!'))}({self.boolean(depth - 1)})"
        else:
            word = self.choice.choice((" AND ", " OR ", " and ", "\n  OR "))
            count = self.choice.choice((2, 2, 2, 3, 4))
            operands = [self.boolean(depth - 1) for _ in range(count)]
            text = word.join(f"({part})" if self.choice.random() < 0.7 else part for part in operands)
        self.parts.append(text)
        return text

    def predicate(self, depth: int) -> str:
        """One comparison or other Boolean function."""
        draw = self.choice.random()
        if draw < 0.62:
            return self.fill(self.weighted(PREDICATES), depth, self.choice.choice(SCALARS))
        return self.fill(self.weighted(TEXTUAL if draw < 0.82 else OTHERS), depth, "int")

    def weighted(self, templates: Sequence[tuple[int, str]]) -> str:
        """One template, the heavier the likelier."""
        return self.choice.choices([text for _, text in templates], [weight for weight, _ in templates])[0]

    def value(self, name: str, depth: int) -> str:
        """An expression of a type: most often a column of it."""
        computed = self.choice.random() < self.variety
        if depth < 0 or not computed:
            if self.constants and name in SCALARS and self.choice.random() < self.constants:
                text = literal(name, self.choice)
                return f"({text})" if text.startswith("-") else text
            names = [column for column, kind in COLUMNS.items() if kind == name] + FIELDS.get(name, [])
            return self.choice.choice(names)
        if self.choice.random() < 0.25 and name in SCALARS:
            return self.fill(self.choice.choice(ANY), depth - 1, name)
        makers = [*MAKERS.get(name, ())]
        if name in WHOLE:
            makers += MAKERS["whole"]
        if name in DECIMALS:
            makers += MAKERS["decimal"]
        text = self.fill(self.choice.choice(makers), depth - 1, name)
        return text if text.isalnum() else f"({text})"

    def other(self, name: str, draw: Callable[[str], str]) -> str:
        """A value of another type that Spark compares with `name`."""
        if name in NUMBERS:
            kinds: Sequence[str] = (*NUMBERS, "string")
        elif name in TIMES:
            kinds = (*TIMES, "string")
        elif name == "string":
            kinds = (*NUMBERS, *TIMES, "boolean", "binary")
        else:
            kinds = (name, "string")
        return draw(self.choice.choice(kinds))

    def fill(self, template: str, depth: int, name: str) -> str:
        """`template` with every {placeholder} drawn anew; {0} is of the type `name`."""
        pieces = []
        rest = template
        while "{" in rest:
            before, _, rest = rest.partition("{")
            hole, _, rest = rest.partition("}")
            pieces += [before, self.draw(hole, depth, name)]
        return "".join([*pieces, rest])

    def draw(self, hole: str, depth: int, name: str) -> str:
        """What stands in one placeholder."""
        choice = self.choice
        if hole == "op":
            return choice.choice(OPERATORS)
        if hole == "not":
            return choice.choice(("", "", "NOT "))
        if hole == "bool":
            return self.boolean(min(depth, 1) - 1)
        if hole == "pattern":
            return quoted(choice.choice(PATTERNS), choice)
        if hole == "regex":
            return quoted(choice.choice(REGEXES), choice)
        if hole == "other":
            return self.other(name, lambda kind: self.value(kind, min(depth, 1)))
        if hole == "other!":
            return self.other(name, lambda kind: literal(kind, choice))
        kind, is_literal = hole.rstrip("!"), hole.endswith("!")
        kind = name if kind == "0" else kind
        return literal(kind, choice) if is_literal else self.value(kind, min(depth, 2))
