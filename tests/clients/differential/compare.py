"""Sends an expression to both servers and judges the two answers."""

import collections
import dataclasses
import decimal
import re

import psycopg
from psycopg.pq import DiagnosticField, ExecStatus

from .known import TYPES

# What says "not here" by name: not supported, no such function or operator, no such cast, no such type.
REFUSALS = {"0A000", "42883", "42846", "42704"}

# What DataFusion, Arrow and Rust say of themselves: a client must not be told so.
RAW = re.compile(
    r"DataFusion|\bArrow\b|\barrow\b|Utf8|Int64|Int32|Float64|Boolean\b|LargeList|List\(|Struct|UInt|Internal error|internal error"
    r"|panicked|Signature|signature|coerc|Coerc|ScalarValue|Decimal128|\bnullable\b|not yet implemented|not implemented"
    r"|Unsupported|candidate"
)

AGREE, REFUSED, DIFFER = "agree", "refused", "differ"


@dataclasses.dataclass(frozen=True)
class Answer:
    """Rows of text, or a SQLSTATE with its message."""

    rows: tuple = None
    sqlstate: str = None
    message: str = ""
    types: tuple = ()

    def __str__(self):
        if self.sqlstate:
            return f"{self.sqlstate} {self.message}"
        if len(self.rows) == 1 and len(self.rows[0]) == 1:
            return shown(self.rows[0][0])
        return "; ".join(", ".join(shown(value) for value in row) for row in self.rows)


def shown(value):
    return "NULL" if value is None else repr(value)[:200]


class Server:
    """One connection, by the simple protocol: values come as text."""

    def __init__(self, connection):
        self.connection = connection
        self.connection.add_notice_handler(lambda _: None)

    def ask(self, sql):
        result = self.connection.pgconn.exec_(sql.encode())
        if result.status == ExecStatus.TUPLES_OK:
            columns = range(result.nfields)
            rows = (tuple(text(result.get_value(r, c)) for c in columns) for r in range(result.ntuples))
            return Answer(rows=tuple(rows), types=tuple(result.ftype(c) for c in columns))
        if result.status == ExecStatus.COMMAND_OK:
            return Answer(rows=())
        state = result.error_field(DiagnosticField.SQLSTATE)
        if state is None:
            raise ConnectionError(f"{sql}: {result.error_message.decode()}")
        message = result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b""
        return Answer(sqlstate=state.decode(), message=message.decode(errors="replace"))

    def do(self, sql):
        """Runs a statement that must work."""
        answer = self.ask(sql)
        assert answer.sqlstate is None, f"{sql}: {answer}"


def text(value):
    return None if value is None else value.decode()


NUMERIC = 1700
NUMERIC_ARRAY = 1231

# PostgreSQL's quotients never have fewer significant digits, nor Oribi's behind the point.
QUOTIENT_DIGITS = 16


def same(reference, ours):
    """Whether the rows are the same texts. A numeric may have more zeros at its end, since all values of a column have
    the scale of its type here."""
    if reference.rows == ours.rows:
        return True
    if len(reference.rows) != len(ours.rows):
        return False
    pairs = zip(reference.rows, ours.rows)
    return all(len(one) == len(other) and all(map(same_value, one, other, reference.types)) for one, other in pairs)


def same_number(one, other):
    """Quotients have another number of digits here, by their type. Those that both have are the same; they are many."""
    if one == other:
        return True
    coarse = max(one, other, key=lambda number: number.as_tuple().exponent)
    digits, exponent = coarse.as_tuple().digits, coarse.as_tuple().exponent
    unit = decimal.Decimal(1).scaleb(exponent)
    return max(len(digits), -exponent) >= QUOTIENT_DIGITS and abs(one - other) <= unit / 2


def same_value(one, other, oid):
    if one == other or None in (one, other):
        return one == other
    if oid == NUMERIC_ARRAY:
        pairs = list(zip(one.strip("{}").split(","), other.strip("{}").split(",")))
        return one.count(",") == other.count(",") and all(same_value(*pair, NUMERIC) for pair in pairs)
    try:
        return oid == NUMERIC and same_number(decimal.Decimal(one), decimal.Decimal(other))
    except decimal.InvalidOperation:
        return False


def named(oids):
    """Names of types, as far as psycopg knows them."""
    return ", ".join(f"{name_of(oid)} ({oid})" for oid in oids)


def name_of(oid):
    known = psycopg.adapters.types.get(oid)
    if known is None:
        return "another type"
    return known.name if known.oid == oid else f"{known.name}[]"


def refuses(answer):
    """Whether an error says that there is no such thing here; a numeric has at most 38 digits."""
    return answer.sqlstate in REFUSALS or "38 digits" in answer.message


def judge(reference, ours):
    """What the pair of answers is: agree, refused or differ; and what the difference is."""
    if ours.sqlstate and (ours.sqlstate == "XX000" or RAW.search(ours.message)):
        return DIFFER, "an internal message"
    if reference.sqlstate is None and ours.sqlstate is None:
        if tuple(TYPES.get(oid, oid) for oid in reference.types) != ours.types:
            return DIFFER, f"of types {named(ours.types)} in place of {named(reference.types)}"
        return (AGREE, "") if same(reference, ours) else (DIFFER, "another value")
    if reference.sqlstate is None:
        return (REFUSED, "") if refuses(ours) else (DIFFER, "an error that is no refusal")
    if ours.sqlstate is None:
        return DIFFER, "a value in place of an error"
    if refuses(ours) or ours.sqlstate[:2] == reference.sqlstate[:2]:
        return AGREE, ""
    return DIFFER, "an error of another class"


@dataclasses.dataclass
class Difference:
    group: str
    sql: str
    why: str
    reference: Answer
    ours: Answer

    def __str__(self):
        return f"[{self.group}] {self.sql}\n    {self.why}: PostgreSQL {self.reference}\n    Oribi      {self.ours}"


class Comparison:
    """Counts, and the differences, by group."""

    def __init__(self, reference, ours, known=()):
        self.reference = reference
        self.ours = ours
        self.known = [re.compile(pattern) for pattern in known]
        self.counts = collections.defaultdict(collections.Counter)
        self.refused = collections.defaultdict(list)
        self.differences = []
        self.known_seen = 0

    def total(self, verdict):
        return sum(counts[verdict] for counts in self.counts.values())

    def note(self, group, sql, reference, ours):
        verdict, why = judge(reference, ours)
        if verdict == DIFFER and any(pattern.search(f"[{group}] {sql}") for pattern in self.known):
            self.known_seen += 1
            return
        self.counts[group][verdict] += 1
        if verdict == DIFFER:
            self.differences.append(Difference(group, sql, why, reference, ours))
        elif verdict == REFUSED:
            self.refused[group].append((sql, ours))

    def statement(self, group, sql, ordered=True):
        answers = [server.ask(sql) for server in (self.reference, self.ours)]
        if not ordered:
            answers = [dataclasses.replace(a, rows=a.rows and tuple(sorted(a.rows, key=repr))) for a in answers]
        self.note(group, sql, *answers)

    def expressions(self, group, expressions, suffix=""):
        """Compares `SELECT` of each expression. They are sent many at a time and, where one fails, by themselves."""
        for start in range(0, len(expressions), 40):
            self.batch(group, expressions[start : start + 40], suffix)

    def batch(self, group, expressions, suffix):
        if not expressions:
            return
        sql = "SELECT " + ", ".join(f"{e} AS c{i}" for i, e in enumerate(expressions)) + suffix
        reference, ours = self.reference.ask(sql), self.ours.ask(sql)
        alone = len(expressions) == 1
        if alone:
            return self.note(group, f"SELECT {expressions[0]}{suffix}", reference, ours)
        if reference.sqlstate or ours.sqlstate or len(reference.rows) != 1 or len(ours.rows) != 1:
            middle = len(expressions) // 2 if len(expressions) > 8 else 1
            for start in range(0, len(expressions), middle):
                self.batch(group, expressions[start : start + middle], suffix)
            return
        for i, expression in enumerate(expressions):
            one = [Answer(rows=((answer.rows[0][i],),), types=(answer.types[i],)) for answer in (reference, ours)]
            self.note(group, f"SELECT {expression}{suffix}", *one)
