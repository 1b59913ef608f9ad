"""One run: the tables, the listed cases in two forms, the listed statements, and the walk."""

import dataclasses
import random

from . import walk
from .cases import MODULES
from .compare import Comparison, Server
from .known import KNOWN
from .reference import Reference
from .values import TYPES, argument, combinations, create_table

TABLES = [
    "CREATE TABLE texts (id integer PRIMARY KEY, a text)",
    "INSERT INTO texts VALUES (1, 'b'), (2, 'a'), (3, 'B'), (4, NULL), (5, ''), (6, 'ä'), (7, 'Z'), (8, 'abc'), (9, 'a'), (10, '_')",
    "CREATE TABLE numbers (id integer PRIMARY KEY, g integer, n integer)",
    "INSERT INTO numbers VALUES (1, 1, 10), (2, 1, NULL), (3, 2, 30), (4, 2, 30), (5, 3, -5), (6, NULL, 7)",
]

# How many combinations of arguments are tried for one case.
SHORT, FULL = 10, 300


@dataclasses.dataclass
class Run:
    comparison: Comparison
    short: bool
    chance: random.Random
    only: object = None

    def __post_init__(self):
        self.most = SHORT if self.short else FULL
        self.tables = {}

    def all(self):
        servers = [self.comparison.reference, self.comparison.ours]
        for server in servers:
            for statement in TABLES:
                server.do(statement)
        for name, module in MODULES.items():
            self.statements(name, module.STATEMENTS)
            for case in module.CASES:
                self.case(name, case)
        walk.walk_functions(self.comparison, self.most, self.chance, self.only)
        walk.walk_operators(self.comparison, self.most, self.chance, self.only)
        walk.walk_choices(self.comparison, self.most, self.chance, self.only)
        walk.walk_casts(self.comparison, self.most, self.chance, self.only)
        return self.comparison

    def statements(self, name, statements):
        if self.only and not self.only.search(name):
            return
        for statement in statements:
            self.comparison.statement(name, statement)

    def case(self, name, case):
        template, *specs = case
        group = f"{name}: {template}"
        if self.only and not self.only.search(group):
            return
        types, values = zip(*(argument(spec) for spec in specs))
        rows = combinations(types, self.most, self.chance, values)
        self.constants(group, template, types, rows)
        self.columns(group, template, types, rows)

    def constants(self, group, template, types, rows):
        expressions = [template.format(*(TYPES[t].constant(v) for t, v in zip(types, row))) for row in rows]
        self.comparison.expressions(group, expressions)

    def columns(self, group, template, types, rows):
        """The same over the rows of a table: all at once and, if that fails, row by row."""
        source = self.source(types, rows)
        expression = template.format(*"abcdefgh"[: len(types)])
        sql = f"SELECT id, {expression} AS answer FROM {source}"
        reference = self.comparison.reference.ask(f"{sql} ORDER BY id")
        ours = self.comparison.ours.ask(f"{sql} ORDER BY id")
        if reference.rows is not None and ours.rows is not None:
            pairs = zip(reference.rows, ours.rows)
            for one, other in pairs:
                answers = [dataclasses.replace(a, rows=((row[1],),), types=a.types[1:]) for a, row in ((reference, one), (ours, other))]
                self.comparison.note(group, f"{sql} WHERE id = {one[0]} -- {rows[int(one[0])]}", *answers)
            return
        for n, row in enumerate(rows[: 5 if self.short else 60]):
            self.comparison.statement(group, f"SELECT {expression} AS answer FROM {source} WHERE id = {n} -- {row}")

    def source(self, types, rows):
        """A table of the rows, or a list of them where Oribi has no columns of the types."""
        if all(TYPES[t].column for t in types):
            key = (types, tuple(rows))
            if key not in self.tables:
                self.tables[key] = f"arguments_{len(self.tables)}"
                create_table([self.comparison.reference, self.comparison.ours], self.tables[key], types, rows)
            return self.tables[key]
        lines = [", ".join([str(n), *(TYPES[t].typed(v) for t, v in zip(types, row))]) for n, row in enumerate(rows)]
        names = ", ".join(["id", *"abcdefgh"[: len(types)]])
        return f"(VALUES {', '.join(f'({line})' for line in lines)}) AS arguments({names})"


def compare(ours, short, seed, only=None, known=KNOWN):
    """Compares the server behind the psycopg connection `ours` with a PostgreSQL of its own."""
    with Reference() as reference, reference.connect() as theirs:
        comparison = Comparison(Server(theirs), Server(ours), known)
        return Run(comparison, short, random.Random(seed), only).all()
