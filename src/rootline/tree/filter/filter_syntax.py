r"""The parser of filter text: a tree of tests, with names and literals as in the text.

Owns: the grammar, and the position that an error message shows.
Does not own: the meaning of names and literals (`filters`).
Invariants: Parsing takes time linear in the length of the text. A filter nested too deeply or with too many tests is
refused. A list of values may have any length.

Grammar (keywords in any case, a name in double quotes may be any text, with `""` for a quote):

    filter  := all ("or" all)*             all := one ("and" one)*
    one     := "not" one | "(" filter ")" | "true" | "false" | test
    test    := term ("=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=") term
             | column ["not"] "in" "(" literal ("," literal)* ")" | column ["not"] "between" term "and" term
             | column ["not"] "like" pattern | column "is" ["not"] ("null" | "nan")
    term    := column | literal            column := name ("." name)*

In a pattern `%` matches any number of characters and `_` one character. `\%`, `\_` and `\\` are literal characters.

Source: docs/decisions/0058.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from pyiceberg.expressions.literals import BooleanLiteral, DecimalLiteral, Literal, LongLiteral, StringLiteral

from rootline.schemas.errors import Invalid
from rootline.tree.filter.conditions import NEGATED, Operator

MAX_FILTER_DEPTH: Final = 64
MAX_FILTER_TESTS: Final = 10_000
_DIGITS_MAX: Final = 400
_EXAMPLE: Final = "write it as in \"dep_delay > 60 and carrier = 'UA'\""


@dataclass(frozen=True, slots=True)
class Name:
    """A column: the parts of its path, and its position in the text (from `at` to before `end`)."""

    parts: tuple[str, ...]
    at: int
    end: int


@dataclass(frozen=True, slots=True)
class Value:
    """A literal, and its position in the text."""

    literal: Literal[Any]
    at: int


@dataclass(frozen=True, slots=True)
class Test:
    """A test of a column against literal values.

    A null or NaN test has no values, a comparison or prefix test has one, and IN has a list.
    """

    __test__ = False

    column: Name
    operator: Operator
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class NamePair:
    """A comparison of two columns."""

    left: Name
    operator: Operator
    right: Name


@dataclass(frozen=True, slots=True)
class Joined:
    """The AND (`is_all`) or OR of its parts. Without parts, AND is true and OR is false."""

    is_all: bool
    parts: tuple[Tree, ...] = ()


@dataclass(frozen=True, slots=True)
class Negation:
    """A negated condition."""

    inner: Tree


Tree = Test | NamePair | Joined | Negation
_Operand = Name | Value


class _Kind(Enum):
    SPACE = "space"
    TEXT = "text"
    QUOTED = "quoted"
    NUMBER = "number"
    WORD = "word"
    COMPARISON = "comparison"
    SIGN = "sign"
    OTHER = "other"
    END = "end"


_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)|(?P<text>'(?:[^']|'')*')|(?P<quoted>"(?:[^"]|"")*")
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<word>[^\W\d][\w$]*)
    |(?P<comparison><=|>=|<>|!=|==|=|<|>)|(?P<sign>\|\||[-+*/%])|(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_KINDS: Final = {kind.value: kind for kind in _Kind}
_COMPARISONS: Final = {
    "=": Operator.EQ,
    "==": Operator.EQ,
    "!=": Operator.NE,
    "<>": Operator.NE,
    "<": Operator.LT,
    "<=": Operator.LE,
    ">": Operator.GT,
    ">=": Operator.GE,
}
_SWAPPED: Final = {
    Operator.LT: Operator.GT,
    Operator.LE: Operator.GE,
    Operator.GT: Operator.LT,
    Operator.GE: Operator.LE,
}
_LIKE_PART: Final = re.compile(r"\\([%_\\])|([%_])|(.)", re.DOTALL)
"""An escaped character, a wildcard, or any other character."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: _Kind
    text: str
    at: int

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind is _Kind.WORD else ""


def read_filter(text: str) -> Tree:
    """Parse a filter.

    Raises:
        Invalid: `filter-invalid`, the text is not a filter. The message shows the position.
    """
    return _Reader(text).whole()


def marked(text: str, at: int, end: int) -> str:
    """The excerpt of `text` for an error message, with a mark after the characters `at` to `end - 1`, which are at
    fault.
    """
    end = min(end, at + 80)
    before = text[max(0, at - 60) : end]
    after = text[end : end + 30]
    cut = "…" if at > 60 else ""
    rest = "…" if len(text) > end + 30 else ""
    return f"at character {at + 1}: {cut}{before} <-- here{' ' if after.strip() else ''}{after.strip()}{rest}"


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        found = ((match, _KINDS[match.lastgroup or ""]) for match in _TOKEN.finditer(text))
        self._tokens = [_Token(kind, match[0], match.start()) for match, kind in found if kind is not _Kind.SPACE]
        self._tokens.append(_Token(_Kind.END, "", len(text)))
        self._next = 0
        self._tests = 0
        self._refuse_depth()

    def whole(self) -> Tree:
        tree = self._any(0)
        if self._peek.kind is not _Kind.END:
            raise self._unreadable("the filter should end here")
        return tree

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += token.kind is not _Kind.END
        return token

    def _took_word(self, word: str) -> bool:
        if self._peek.word != word:
            return False
        self._next += 1
        return True

    def _took(self, sign: str) -> bool:
        if self._peek.kind is not _Kind.OTHER or self._peek.text != sign:
            return False
        self._next += 1
        return True

    def _refuse_depth(self) -> None:
        depth = deepest = 0
        for token in self._tokens:
            if token.kind is _Kind.OTHER:
                depth += (token.text == "(") - (token.text == ")")
                deepest = max(deepest, depth)
        if deepest > MAX_FILTER_DEPTH:
            reason = f"the filter nests {deepest} parentheses; at most {MAX_FILTER_DEPTH} are read"
            raise Invalid("filter-invalid", reason)

    def _unreadable(self, reason: str) -> Invalid:
        token, before = self._peek, self._tokens[self._next - 1]
        if token.kind is _Kind.SIGN:
            reason = f"{token.text!r} is arithmetic, which filters do not have; compare columns and literals"
        elif token.kind is _Kind.OTHER and token.text in "'\"":
            reason = "a quote is opened here and never closed"
        elif token.text == "(" and self._next and before.kind is _Kind.WORD:
            reason = f"{before.text} is called, and filters have no functions; compare columns and literals"
        else:
            reason = f"cannot be read: {reason}"
        return self._refusal(token, reason)

    def _refusal(self, token: _Token, reason: str) -> Invalid:
        end = token.at + max(len(token.text), 1)
        return Invalid("filter-invalid", f"{reason}; {marked(self._text, token.at, end)}; {_EXAMPLE}")

    def _any(self, depth: int) -> Tree:
        parts = [self._all(depth)]
        while self._took_word("or"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else Joined(False, tuple(parts))

    def _all(self, depth: int) -> Tree:
        parts = [self._one(depth)]
        while self._took_word("and"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else Joined(True, tuple(parts))

    def _one(self, depth: int) -> Tree:
        if depth > 2 * MAX_FILTER_DEPTH:
            raise self._refusal(self._peek, "the filter is nested too deeply: write it with fewer brackets")
        if self._took_word("not"):
            return Negation(self._one(depth + 1))
        if self._took("("):
            tree = self._any(depth + 1)
            if not self._took(")"):
                raise self._unreadable("a parenthesis is not closed")
            return tree
        if self._peek.word in ("true", "false") and self._tokens[self._next + 1].kind is not _Kind.COMPARISON:
            return Joined(self._take().word == "true")
        return self._test()

    def _test(self) -> Tree:
        self._tests += 1
        if self._tests > MAX_FILTER_TESTS:
            raise Invalid(
                "filter-invalid",
                f"the filter has more than {MAX_FILTER_TESTS} tests; write many values of a column as a list: x in (…)",
            )
        left = self._operand()
        if self._peek.kind is _Kind.COMPARISON:
            operator = _COMPARISONS[self._take().text]
            return self._compared(left, operator, self._operand())
        if not isinstance(left, Name):
            raise self._unreadable("a comparison such as = is expected after a literal")
        negated = self._took_word("not")
        found = self._worded(left)
        if found is None:
            raise self._unreadable("a comparison such as = is expected after a column")
        return Negation(found) if negated else found

    def _worded(self, column: Name) -> Tree | None:
        """A test whose operator is a keyword after `column`, or `None` if no such keyword follows. A NOT before the
        keyword is already consumed.
        """
        if self._took_word("in"):
            return Test(column, Operator.IN, self._list())
        if self._took_word("between"):
            low = self._operand()
            if not self._took_word("and"):
                raise self._unreadable("AND is expected between the two bounds of BETWEEN")
            high = self._operand()
            return Joined(True, (self._compared(column, Operator.GE, low), self._compared(column, Operator.LE, high)))
        if self._took_word("like"):
            return self._like(column)
        if self._tokens[self._next - 1].word != "not" and self._took_word("is"):
            negated = self._took_word("not")
            operator = {"null": Operator.IS_NULL, "nan": Operator.IS_NAN}.get(self._peek.word)
            if operator is None:
                raise self._unreadable("NULL or NAN is expected after IS")
            self._take()
            return Test(column, NEGATED[operator] if negated else operator)
        return None

    def _compared(self, left: _Operand, operator: Operator, right: _Operand) -> Tree:
        if isinstance(left, Name):
            return Test(left, operator, (right,)) if isinstance(right, Value) else NamePair(left, operator, right)
        if isinstance(right, Name):
            return Test(right, _SWAPPED.get(operator, operator), (left,))
        self._next -= 1
        raise self._unreadable("two literals are compared, and at least one side must be a column")

    def _list(self) -> tuple[Value, ...]:
        if not self._took("("):
            raise self._unreadable("a list of values in parentheses is expected after IN")
        found: list[Value] = []
        while True:
            value = self._operand()
            if not isinstance(value, Value):
                self._next -= 1
                raise self._unreadable("a list of IN contains literals only; write strings in single quotes")
            found.append(value)
            if self._took(")"):
                return tuple(found)
            if not self._took(","):
                raise self._unreadable("a comma or a closing parenthesis is expected in a list")

    def _like(self, column: Name) -> Tree:
        """The tests of a LIKE pattern.

        The text before the first wildcard becomes an equality or prefix test, which statistics can decide. The whole
        pattern is tested as well, unless the first test already decides it.
        """
        token = self._peek
        if token.kind is not _Kind.TEXT:
            raise self._unreadable("a string in single quotes is expected after LIKE")
        self._take()
        parts = [(escaped or plain, wild) for escaped, wild, plain in _LIKE_PART.findall(_unquoted(token.text))]
        first = next((at for at, (_, wild) in enumerate(parts) if wild), len(parts))
        prefix = Value(StringLiteral("".join(text for text, _ in parts[:first])), token.at)
        if first == len(parts):
            return Test(column, Operator.EQ, (prefix,))
        starts = Test(column, Operator.STARTS_WITH, (prefix,))
        if all(wild == "%" for _, wild in parts[first:]):
            return starts
        pattern = StringLiteral("".join(wild or re.sub(r"([%_\\])", r"\\\1", text) for text, wild in parts))
        like = Test(column, Operator.LIKE, (Value(pattern, token.at),))
        return Joined(True, (starts, like)) if first else like

    def _operand(self) -> _Operand:
        token = self._peek
        if token.kind is _Kind.TEXT:
            return Value(StringLiteral(_unquoted(self._take().text)), token.at)
        if token.kind is _Kind.NUMBER:
            return Value(self._number(""), token.at)
        if token.kind is _Kind.SIGN and token.text in "+-" and self._tokens[self._next + 1].kind is _Kind.NUMBER:
            self._take()
            return Value(self._number(token.text), token.at)
        if token.word in ("true", "false"):
            return Value(BooleanLiteral(self._take().word == "true"), token.at)
        if token.kind is _Kind.WORD or token.kind is _Kind.QUOTED:
            return self._name(token.at)
        raise self._unreadable("a column or a literal is expected")

    def _number(self, sign: str) -> Literal[Any]:
        token = self._peek
        if len(token.text) > _DIGITS_MAX:
            raise self._refusal(token, f"the number is too long: at most {_DIGITS_MAX} digits are read")
        text = self._take().text
        return LongLiteral(int(sign + text)) if text.isdigit() else DecimalLiteral(Decimal(sign + text))

    def _name(self, at: int) -> Name:
        parts = [self._part()]
        while self._took("."):
            parts.append(self._part())
        last = self._tokens[self._next - 1]
        return Name(tuple(parts), at, last.at + len(last.text))

    def _part(self) -> str:
        token = self._peek
        if token.kind is _Kind.WORD:
            return self._take().text
        if token.kind is _Kind.QUOTED and len(token.text) > 2:
            return self._take().text[1:-1].replace('""', '"')
        raise self._unreadable("a column's name is expected")


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")
