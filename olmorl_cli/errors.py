"""What can go wrong, as values: the error tree with its exit codes, and problems found in data."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """What the process tells its caller."""

    OK = 0
    BAD_DATA = 1
    FAILED = 2
    INTERRUPTED = 130


class OlmorlError(Exception):
    """Something a user can cause and mend; its text is one sentence of what, where, and what to do."""

    exit_code = ExitCode.FAILED

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is, whatever it was made of: another process may have met it."""
        return _bare, (type(self), *self.args), vars(self)

    @property
    def lines(self) -> list[str]:
        """One line for each thing that is wrong."""
        return [str(self)]


def _bare(kind: type[OlmorlError], *args: Any) -> OlmorlError:
    return kind.__new__(kind, *args)


class UsageError(OlmorlError):
    """An option or argument that cannot be taken."""


class InputError(OlmorlError):
    """A file that is missing, cannot be read, or lacks a column of the right type."""


class OutputError(OlmorlError):
    """A result that could not be written."""


class ReaderGone(Exception):  # noqa: N818 - not an error: `| head` has what it wanted
    """Whoever reads the output has closed the pipe."""


class DataError(OlmorlError):
    """The data are not acceptable; carries all problems found."""

    exit_code = ExitCode.BAD_DATA

    def __init__(self, problems: "Problems") -> None:
        self.problems = problems
        super().__init__("; ".join(problems.lines()))

    @property
    def lines(self) -> list[str]:
        return self.problems.lines()


MOST_PLACES = 5
"""Places of one kind of problem that are named; the others are counted."""


@dataclass(frozen=True)
class Place:
    """Where a problem lies, and what stands there as text; rows and tokens are 0-based, rows within their file."""

    file_number: int
    row: int
    token: int | None = None
    detail: str = ""
    value: str | None = None

    @property
    def order(self) -> tuple[int, int, int]:
        """What places are sorted by."""
        return self.file_number, self.row, -1 if self.token is None else self.token

    def __str__(self) -> str:
        token = "" if self.token is None else f" token {self.token}"
        return f"{self.row}{token}{self.detail}"


@dataclass
class Kind:
    """All problems of one kind in one file; `column` is the one that they lie in, where it is one."""

    code: str
    severity: str
    file: str
    message: str
    action: str
    column: str | None = None
    count: int = 0
    places: list[Place] = field(default_factory=list)

    def line(self) -> str:
        """`file: message, rows ... (n in all). What to do.`"""
        where = ""
        if self.places:
            plain = all(place.token is None and not place.detail for place in self.places)
            listed = (", " if plain else "; row ").join(map(str, self.places))
            where = f", {'rows' if plain and len(self.places) > 1 else 'row'} {listed}"
        total = f" ({self.count} in all)" if self.places else ""
        return f"{self.file}: {self.message}{where}{total}. {self.action}"

    def records(self) -> Iterator[dict[str, object]]:
        """A record for each named place, one without a place where none is named; `count` is that of the whole kind."""
        whole = {"code": self.code, "severity": self.severity, "count": self.count, "file": self.file}
        said = {"message": self.message, "action": self.action}
        for place in self.places:
            there = {"row": place.row, "token": place.token, "column": self.column, "value": place.value}
            yield {**whole, **there, **said}
        if not self.places:
            yield {**whole, "row": None, "token": None, "column": self.column, "value": None, **said}


class Problems:
    """Problems found in the data, by kind and file: counts of all, places of the first few.

    Collections made by different workers are merged in any order; what is kept does not depend on it.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, int], Kind] = {}

    def add(
        self,
        code: str,
        message: str,
        action: str,
        *,
        file: str,
        places: list[Place],
        count: int,
        severity: str = "error",
        column: str | None = None,
    ) -> None:
        """Add `count` problems of one kind, of which `places` names the first."""
        number = places[0].file_number if places else 0
        kind = self._kinds.setdefault((code, message, number), Kind(code, severity, file, message, action, column))
        if places and kind.places and places[0].order < kind.places[0].order:
            kind.action = action  # what to do may differ, if only by how rows are read together: the first place decides
        kind.count += count
        kind.places = sorted([*kind.places, *places], key=lambda place: place.order)[:MOST_PLACES]

    def merge(self, other: "Problems") -> None:
        """Take over what `other` holds."""
        for kind in other._kinds.values():
            self.add(
                kind.code,
                kind.message,
                kind.action,
                file=kind.file,
                places=kind.places,
                count=kind.count,
                severity=kind.severity,
                column=kind.column,
            )

    def kinds(self, severity: str | None = None) -> list[Kind]:
        """Every kind in every file, files in input order."""
        ordered = sorted(
            self._kinds.items(), key=lambda item: (item[0][2], [place.order for place in item[1].places[:1]], item[0])
        )
        return [kind for _, kind in ordered if severity is None or kind.severity == severity]

    def __bool__(self) -> bool:
        return bool(self._kinds)

    @property
    def errors(self) -> bool:
        """Whether any of them makes the data unacceptable."""
        return any(kind.severity == "error" for kind in self._kinds.values())

    def lines(self) -> list[str]:
        """One line for each kind in each file that has a named place, and one for what is only counted."""
        named: dict[str, int] = {}
        lines: list[str] = []
        silent: dict[str, tuple[int, int]] = {}
        for kind in self.kinds("error"):
            if named.get(kind.message, 0) >= MOST_PLACES:
                files, count = silent.get(kind.message, (0, 0))
                silent[kind.message] = (files + 1, count + kind.count)
                continue
            room = MOST_PLACES - named.get(kind.message, 0)
            lines.append(Kind(**{**vars(kind), "places": kind.places[:room]}).line())
            named[kind.message] = named.get(kind.message, 0) + len(kind.places)
        lines += [f"{files} more files: {message} ({count} in all)." for message, (files, count) in silent.items()]
        return lines


def text_of(value: object) -> str:
    """A value of the data as problems show it."""
    return "null" if value is None else "NaN" if value != value else str(value)


def visible(text: str) -> str:
    """Text without control, format or private characters, line breaks included: these are written as escapes."""
    import unicodedata

    return "".join(c if (c.isascii() and c.isprintable()) or _shows(unicodedata.category(c)) else _escape(c) for c in text)


def _shows(category: str) -> bool:
    return category[0] != "C" and category not in ("Zl", "Zp")


def _escape(character: str) -> str:
    code = ord(character)
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{1,31})://(\S*)")
"""Of a longer scheme, its end: a long text without one is looked through once, not once for each of its letters."""
_MOST_NESTED = 50
"""URIs inside one another that are looked into; of a URI that holds more, nothing but its scheme is shown."""
_PASSWORD = re.compile(r"(?!\[)[^/@]*:(?!\d*(?:[/?#:,]|$)).*@", re.DOTALL)
"""A user's name and password before a host; the password may have slashes, but where it looks like a port."""


def without_secrets(text: str) -> str:
    """Text whose URIs have no user, password, query or fragment any more."""

    def shown(match: re.Match[str]) -> str:
        return shown_uri(match[0]) if match[2].count("://") < _MOST_NESTED else f"{match[1]}://…"

    return _URI.sub(shown, text)


def shown_uri(uri: str) -> str:
    """A URI as it may be shown: without user, password, query and fragment. Other text is left as it is."""
    scheme, mark, rest = uri.partition("://")
    if not mark:
        return uri
    if password := _PASSWORD.match(rest):
        rest = rest[password.end() :]
    elif scheme.lower() != "hf":  # there, an @ stands before a revision
        host, slash, path = rest.partition("/")
        rest = f"{host.rpartition('@')[2]}{slash}{path}"
    query = r"[?#].*" if scheme.lower() in ("http", "https") else r"\?[\w.~%-]+=.*"  # elsewhere, ? may stand for a character
    return f"{scheme}://{without_secrets(re.sub(query, '', rest, count=1, flags=re.DOTALL))}"
