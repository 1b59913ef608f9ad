"""Edge values of each type, as literals; and the tables that hold them.

A value has two spellings: as a client writes it in a statement (`constants`), and as a column of a table (`columns`):
the planner computes with the first itself, the executor with the second.
"""

import dataclasses
import itertools

NULL = "NULL"


@dataclasses.dataclass(frozen=True)
class Type:
    name: str
    values: tuple
    # How a value is written where no type is said; by default as text with a cast.
    bare: bool = False
    # Whether Oribi has columns of the type.
    column: bool = True

    def typed(self, value):
        if value == NULL:
            return f"NULL::{self.name}"
        return f"{value}::{self.name}"

    def constant(self, value):
        return value if self.bare else self.typed(value)


def quoted(*texts):
    return tuple("'" + t.replace("'", "''") + "'" for t in texts)


TYPES = {
    t.name: t
    for t in [
        Type("boolean", ("true", "false", NULL), bare=True),
        Type("smallint", ("0", "1", "(-1)", "32767", "(-32768)", "7", NULL)),
        Type("integer", ("0", "1", "(-1)", "2", "3", "(-7)", "2147483647", "(-2147483648)", "65", NULL), bare=True),
        Type("bigint", ("0", "1", "(-1)", "42", "9223372036854775807", "(-9223372036854775807)", NULL)),
        Type("real", quoted("0", "1.5", "-2.25", "1e20", "1e-10", "NaN", "Infinity", "-Infinity") + (NULL,)),
        Type(
            "double precision",
            quoted("0", "-0", "1.5", "-2.5", "0.1", "1e300", "1e-300", "NaN", "Infinity", "-Infinity", "123456789.123")
            + (NULL,),
        ),
        Type("numeric(12,4)", ("0", "1.5", "(-2.5)", "0.0001", "12345678.9999", "100", NULL)),
        Type(
            "text",
            quoted("", "a", "abc", "ABC def", "  two  ", "äöü", "日本語", "a%b_c", "x\\y", "1", "-5.5", "it's", "xyxxy", "🦌e\u0301")
            + (NULL,),
            bare=True,
        ),
        Type("bytea", quoted("\\x", "\\x00", "\\x616263", "\\xff00ff") + (NULL,)),
        Type("date", quoted("2000-01-01", "1970-01-01", "2024-02-29", "1999-12-31", "0001-01-01") + (NULL,)),
        Type(
            "timestamp",
            quoted("2000-01-01 00:00:00", "2024-02-29 23:59:59.999999", "1970-01-01 00:00:00", "1969-12-31 12:34:56.789")
            + (NULL,),
        ),
        Type("timestamptz", quoted("2000-01-01 00:00:00+00", "2024-02-29 23:59:59.5+02") + (NULL,), column=False),
        Type("time", quoted("00:00:00", "23:59:59.5") + (NULL,), column=False),
        Type("interval", quoted("1 day", "-1 month 02:03:04.5", "0", "1 year") + (NULL,), column=False),
        Type("uuid", quoted("00000000-0000-0000-0000-000000000000", "9f2c7a4e-1111-4222-8333-123456789abc") + (NULL,)),
        Type(
            "json",
            quoted('{"a":1,"b":[true,null]}', "[1,2,3]", '"text"', "null", "{}", "1.50") + (NULL,),
        ),
        Type("jsonb", quoted('{"a":1}', "[1,2,3]", '"text"', "null") + (NULL,), column=False),
        Type("integer[]", quoted("{}", "{1}", "{1,2,3}", "{3,NULL,1}") + (NULL,), column=False),
        Type("text[]", quoted("{}", "{a}", "{a,b,NULL}", '{"x y",""}') + (NULL,), column=False),
    ]
}


def few(type_name, count, chance):
    """Some values of a type, at random, in their order; the null and the first ones are the likeliest."""
    values = TYPES[type_name].values
    if len(values) <= count:
        return values
    picked = sorted(chance.sample(range(len(values)), count))
    return tuple(values[i] for i in picked)


def combinations(type_names, most, chance, values=None):
    """Tuples of values of the types: all if there are at most `most`, else some of them."""
    values = values or [TYPES[t].values for t in type_names]
    every = 1
    for options in values:
        every *= len(options)
    if every <= most:
        return list(itertools.product(*values))
    return sorted({tuple(chance.choice(options) for options in values) for _ in range(most)})


def create_table(servers, name, type_names, rows):
    """A table with the columns a, b, c … of the types, and the rows, on all servers."""
    letters = "abcdefgh"
    columns = ", ".join(f"{letters[i]} {t}" for i, t in enumerate(type_names))
    lines = []
    for n, row in enumerate(rows):
        written = ", ".join(TYPES[t].typed(value) if t in TYPES else value for t, value in zip(type_names, row))
        lines.append(f"({n}, {written})")
    for server in servers:
        server.do(f"DROP TABLE IF EXISTS {name}")
        server.do(f"CREATE TABLE {name} (id integer PRIMARY KEY, {columns})")
        for start in range(0, len(lines), 500):
            server.do(f"INSERT INTO {name} VALUES " + ", ".join(lines[start : start + 500]))


@dataclasses.dataclass(frozen=True)
class Some:
    """An argument of a type with values of its own."""

    type: str
    values: tuple


def argument(spec):
    """Type and values of an argument as `CASES` name it."""
    return (spec.type, spec.values) if isinstance(spec, Some) else (spec, TYPES[spec].values)


# Lengths, positions and counts: their extremes would only ask for much memory.
COUNTS = Some("integer", ("0", "1", "2", "3", "5", "(-1)", "(-2)", "20", NULL))
