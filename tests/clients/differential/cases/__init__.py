"""The expressions that are compared, as data: a file for each kind.

Each file has `CASES`, expressions over arguments of types (a tuple of a template, in which {0}, {1} … are the arguments,
and for each argument the name of a type or a `Some`), and `STATEMENTS`, whole queries over the tables of `tables.py`.
A string in `STATEMENTS` is compared with its rows in the order in which they come.
"""

from . import aggregates, arrays, conditions, json, moments, numbers, queries, strings

MODULES = {
    "aggregates": aggregates,
    "arrays": arrays,
    "conditions": conditions,
    "json": json,
    "moments": moments,
    "numbers": numbers,
    "queries": queries,
    "strings": strings,
}
