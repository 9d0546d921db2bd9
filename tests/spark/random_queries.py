"""Draws queries of one table."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa

from tests.random_expressions import DECIMALS, NUMBERS, TIMES, WHOLE, Grammar

PLAIN = ["pk", "i", "l", "s", "t", "b", "dt", "ts", "nt", "st.x", "st.y"]
"""Columns that are grouped and ordered by here; floating-point numbers and decimals are ordered only."""
FIELDS = ["st.x", "st.y", "st.z", "st.z.w", "st.*", "st.z.*"]
FUNCTIONS = ("count", "min", "max", "sum", "avg", "count_if")
JOINS = [
    "q JOIN words w ON q.s = w.word",
    "AS q INNER JOIN words ON word = s AND q.s = words.word",
    "q JOIN numbers n ON q.i = number",
    "q JOIN numbers n ON n.number = q.i2 AND n.number = i",
    "q LEFT JOIN words w ON q.s = w.word",
    "q LEFT OUTER JOIN numbers n ON q.i = number AND rank_numbers < 3",
    "q SEMI JOIN words w ON q.s2 = word",
    "q LEFT ANTI JOIN numbers n ON n.number = i AND n.rank_numbers % 2 = 0",
]
"""Joins of the table with lists, in which no row has more than one partner."""
GROUPED = (*WHOLE, *TIMES, "string", "boolean")
"""Types of expressions that rows are grouped by."""


class Queries:
    """Random queries of a table."""

    def __init__(self, seed: int, table: str, schema: pa.Schema) -> None:
        self.choice, self.grammar, self.computed = random.Random(seed), Grammar(seed), Grammar(seed, variety=0.6)
        self.plain_table = self.table = table
        self.schema = schema
        self.plain = [name for name in PLAIN if name.partition(".")[0] in schema.names]

    def query(self) -> str:
        """One query; where it has a limit, its order tells all rows apart."""
        self.table = (
            self.plain_table if self.choice.random() < 0.75 else f"{self.plain_table} {self.choice.choice(JOINS)}"
        )
        where = f" WHERE {self.grammar.rule()}" if self.choice.random() < 0.6 else ""
        if self.choice.random() < 0.25:
            where = (
                f"{where} {self.choice.choice(['AND', 'OR'])} {self._subquery()}"
                if where
                else (f" WHERE {self._subquery()}")
            )
        draw = self.choice.random()
        if draw > 0.85:
            return self._exploded(where)
        return self._grouped(where) if draw < 0.4 else self._distinct(where) if draw < 0.5 else self._rows(where)

    def _subquery(self) -> str:
        """A condition on the values of a subquery."""
        column, inner = self.choice.choice([("i", "l"), ("s", "s2"), ("i", "i"), ("st.x", "st.x"), ("dt", "dt")])
        source = f"{self.plain_table} x WHERE {self.grammar.rule()}"
        if self.choice.random() < 0.3:
            operator, function = self.choice.choice(["=", "<", ">=", "<>", "<=>"]), self.choice.choice(["min", "max"])
            return f"{column} {operator} (SELECT {function}({inner}) FROM {source})"
        word, at_most = self.choice.choice(["IN", "NOT IN"]), self.choice.choice(["", f" AND x.{inner} IS NOT NULL"])
        return f"{column} {word} (SELECT {inner} FROM {source}{at_most})"

    def _exploded(self, where: str) -> str:
        column, view, names = self.choice.choice(
            [("ai", "AS e", ["e"]), ("sa", "v AS e", ["e"]), ("sa", "v e", ["e"]), ("mp", "AS e, w", ["e", "w"])]
        )
        source = f"{self.table} LATERAL VIEW explode({self._spelled(column)}) {view}{where}"
        if names == ["e"] and self.choice.random() < 0.3:
            source += f"{' AND' if where else ' WHERE'} e {self.choice.choice(['IS NOT NULL', '> 0', '< 5'])}"
        if self.choice.random() < 0.5:
            items = ", ".join([*names, f"{self._aggregate()[1]} AS a", "sum(m5)", "count(DISTINCT pk)"])
            return f"SELECT {items} FROM {source} GROUP BY {', '.join(names)} ORDER BY {', '.join(names)}"
        shown = self.choice.choice(["*", f"{self._computed()} AS c, pk, {names[-1]}"])
        return f"SELECT {shown} FROM {source} ORDER BY pk, {', '.join(names)}"

    def _spelled(self, name: str) -> str:
        parts = [
            each if each == "*" else self.choice.choice([each, each.upper(), f"`{each}`"]) for each in name.split(".")
        ]
        return ".".join(parts)

    def _rows(self, where: str) -> str:
        names = self.choice.sample([*self.schema.names, *FIELDS], self.choice.randint(1, 5))
        shown = [
            self._spelled(name) + ("" if "*" in name else self.choice.choice(["", f" AS `{name}_x`", f" z{place}"]))
            for place, name in enumerate(names)
        ]
        shown += [f"{self._computed()} AS e{place}" for place in range(self.choice.randint(0, 2))]
        listed = "*" if self.choice.random() < 0.2 else ", ".join(shown)
        keys = [
            f"{self._spelled(name)}{self._direction()}"
            for name in self.choice.sample([*self.plain, "f", "d", "m18", "st.z.w"], 2)
        ]
        if self.choice.random() < 0.2:
            keys.insert(0, f"{self._computed()}{self._direction()}")
        order = f" ORDER BY {', '.join([*keys, 'pk'])}"
        end = self.choice.choice(["", order, f"{order} LIMIT {self.choice.randint(0, 40)}"])
        return f"SELECT {listed} FROM {self.table}{where}{end}"

    def _computed(self, kinds: Sequence[str] = (*NUMBERS, *TIMES, "string", "boolean")) -> str:
        """An expression of one of these types."""
        return self.computed.value(self.choice.choice(kinds), 1)

    def _direction(self) -> str:
        return self.choice.choice(["", " ASC", " DESC"]) + self.choice.choice(["", "", " NULLS FIRST", " NULLS LAST"])

    def _distinct(self, where: str) -> str:
        items = [self._spelled(name) for name in self.choice.sample([*self.plain, "m18", "b"], 2)]
        items += [f"{self._computed(GROUPED)} AS e" for _ in range(self.choice.randint(0, 1))]
        order = f" ORDER BY {', '.join(map(str, range(1, len(items) + 1)))}"
        return f"SELECT DISTINCT {', '.join(items)} FROM {self.table}{where}{self.choice.choice(['', order])}"

    def _grouped(self, where: str) -> str:
        keys = self.choice.sample([*self.plain, "m18"], self.choice.randint(0, 2))
        items = [self._spelled(key) for key in keys]
        if self.choice.random() < 0.3:
            keys.append(self._computed(GROUPED))
            items.append(f"{keys[-1]} AS k")
        for place in range(self.choice.randint(1, 3)):
            function, asked = self._aggregate()
            plain = function and self.choice.random() < 0.5
            items.append(asked + (self.choice.choice(["", f" AS a{place}"]) if plain else f" AS b{place}"))
        by = ", ".join(str(place + 1) if self.choice.random() < 0.3 else key for place, key in enumerate(keys))
        group = f" GROUP BY {by}" if keys else ""
        having = f" HAVING {self._aggregate()[1]} IS NOT NULL AND count(*) > 1" if self.choice.random() < 0.3 else ""
        sorted_by = [f"{self.choice.choice([place + 1, key])}{self._direction()}" for place, key in enumerate(keys)]
        if not having and self.choice.random() < 0.3:
            sorted_by.insert(0, f"{self.choice.choice(['count(*)', 'max(i) - count(DISTINCT l)'])}{self._direction()}")
        order = f" ORDER BY {', '.join(sorted_by)}" if keys else ""
        end = self.choice.choice(["", order, f"{order} LIMIT {self.choice.randint(0, 9)}" if order else ""])
        return f"SELECT {', '.join(items)} FROM {self.table}{where}{group}{having}{end}"

    def _aggregate(self) -> tuple[bool, str]:
        """An aggregate, and whether it has a name without an alias."""
        function = self.choice.choice(FUNCTIONS)
        if function == "count_if":
            return False, f"count_if({self.grammar.rule()})"
        if self.choice.random() < 0.3:
            kinds = (*WHOLE, *DECIMALS) if function in ("sum", "avg") else GROUPED
            return False, f"{function}({self._computed(kinds)})"
        numbers = ["m5", "m18", "m20"] if function in ("sum", "avg") else ["f", "d", "m5", "m38", "st.z.w"]
        column = self._spelled(self.choice.choice([*self.plain, *numbers]))
        distinct = "" if function != "count" else self.choice.choice(["", "DISTINCT "])
        asked = [f"{function}({distinct}{column})", f"{function.upper()}({distinct}{column})"]
        return True, self.choice.choice(["count(*)", "count(1)", *asked])
