"""The text of a rule as tokens with their positions, by the lexical rules of Spark SQL."""

from __future__ import annotations

import re

from rules_index.errors import RuleError
from rules_index.work_budget import Work


def words(text: str) -> frozenset[str]:
    """The set of the words of a text."""
    return frozenset(text.split())


MAX_LENGTH = 1 << 20
"""The longest text of a rule, in characters."""

TOKENS_A_STEP = 4
"""How many tokens are read, or copied into a text for Spark, in one step of work."""

STRING = "'"
QUOTED_NAME = "`"
NUMBER = "0"
END = ""

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\n\f\r\x0b\xa0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000]+)
  | (?P<comment>--(?:\\\n|[^\r\n])*\r?\n?)
  | (?P<bracketed>/\*)
  | (?P<number>(?:[0-9]++[yslYSL]
      |(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?(?:[fFdD]|[bB][dD])?)(?![A-Za-z0-9_]))
  | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|[rR](?:'[^']*'|"[^"]*"))
  | (?P<word>[A-Za-z0-9_]+)
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<operator><=>|>>>|<=|>=|<>|!=|!<|!>|==|=>|<<|>>|\|\||->|::|[-+*/%~&|^=<>()\[\],.!:?])
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACE_GROUP, _COMMENT, _BRACKETED, _NUMBER, _STRING, _WORD, _QUOTED, _OPERATOR = range(1, 9)
_BRACKET = re.compile(r"/\*|\*/")
_SAME = {"==": "=", "!=": "<>", "!>": "<=", "!<": ">="}
OPERATORS = words("<=> >>> <= >= <> != !< !> == => << >> || -> :: - + * / % ~ & | ^ = < > ( ) [ ] , . ! : ?")
"""Kinds of tokens that are operators or punctuation."""


class Tokens:
    """The tokens of one text.

    `kinds[i]` is the upper-case word of an identifier or keyword, the operator's own text (`==` as `=`, `!=` as `<>`),
    or one of `STRING`, `QUOTED_NAME`, `NUMBER`; the last is `END`. `starts[i]` and `ends[i]` are the offsets of token i
    in `text`. `work` is the rest of the rule's budget of work. `names_lists` is True if the text
    names a value list.
    """

    __slots__ = ("ends", "kinds", "names_lists", "starts", "text", "work")

    def __init__(self, text: str) -> None:
        self.text = text
        self.work = Work()
        self.kinds: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.names_lists = False

    def spelling(self, index: int) -> str:
        """The text of one token as its author wrote it."""
        return self.text[self.starts[index] : self.ends[index]]

    def is_name(self, index: int) -> bool:
        """Whether a token can be an identifier; keywords of Spark SQL are not reserved."""
        kind = self.kinds[index]
        return kind == QUOTED_NAME or (kind not in OPERATORS and kind not in (STRING, NUMBER, END))

    def name(self, index: int) -> str:
        """The identifier of a name token, without back-quotes."""
        spelling = self.spelling(index)
        return spelling[1:-1].replace("``", "`") if spelling[0] == "`" else spelling


def tokenise(text: str) -> Tokens:
    """Splits a rule's text into tokens. Raises `RuleError` if no token can begin."""
    if len(text) > MAX_LENGTH:
        raise RuleError(
            "TOO_LONG",
            f"The expression has {len(text):,} characters; the limit is {MAX_LENGTH:,}.",
            MAX_LENGTH,
        )
    tokens = Tokens(text)
    kinds, starts, ends = tokens.kinds, tokens.starts, tokens.ends
    match = _TOKEN.match
    position, length = 0, len(text)
    while position < length:
        found = match(text, position)
        if found is None:
            raise _unexpected(text, position)
        end = found.end()
        group = found.lastindex
        if group == _SPACE_GROUP:
            position = end
            continue
        if group == _WORD:
            kinds.append(text[position:end].upper())
        elif group == _OPERATOR:
            kind = text[position:end]
            kinds.append(_SAME.get(kind, kind))
        elif group == _NUMBER:
            kinds.append(NUMBER)
        elif group == _STRING:
            kinds.append(STRING)
        elif group == _QUOTED:
            kinds.append(QUOTED_NAME)
        else:
            position = _end_of_comment(text, position) if group == _BRACKETED else end
            continue
        starts.append(position)
        ends.append(end)
        position = end
    tokens.work.spend(len(kinds) // TOKENS_A_STEP, 0)
    kinds.append(END)
    starts.append(length)
    ends.append(length)
    return tokens


def _end_of_comment(text: str, start: int) -> int:
    """The offset behind a bracketed comment; comments nest."""
    if text.startswith("/*+", start):
        raise RuleError(
            "SYNTAX",
            "A hint /*+ ... */ has no place in a rule; write a comment as /* ... */.",
            start,
        )
    depth, position = 0, start
    while True:
        found = _BRACKET.search(text, position)
        if found is None:
            raise RuleError("SYNTAX", "The comment that starts here is not closed by */.", start)
        depth += 1 if found.group() == "/*" else -1
        position = found.end()
        if depth == 0:
            return position


def _unexpected(text: str, position: int) -> RuleError:
    character = text[position]
    if character in "'\"":
        return RuleError(
            "SYNTAX",
            "The string that starts here is not closed by the same quote.",
            position,
        )
    if character == "`":
        return RuleError(
            "SYNTAX",
            "The name that starts here is not closed by a back-quote.",
            position,
        )
    if character == ";":
        return RuleError("SYNTAX", "A rule is one expression: remove the semicolon.", position)
    if character.isalpha():
        return RuleError(
            "SYNTAX",
            f"A name with the letter {character!r} must be in back-quotes: `...`.",
            position,
        )
    return RuleError("SYNTAX", f"The character {character!r} means nothing here.", position)
