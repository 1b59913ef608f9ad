"""Differences that are known: patterns over `[group] statement`. `scripts/compare-postgres --all` counts them too."""

# A column that is created as `jsonb` is of type json here, so json is taken where PostgreSQL takes jsonb alone.
JSON = [
    r"^\[operator \?\] SELECT ('[^']*'|NULL)::json \? ('|NULL$)",
    r"^\[function jsonb_array_length\] SELECT jsonb_array_length\(('[^']*'|NULL)::json\)$",
]

# Roundings of the C library that PostgreSQL was built with; here the nearest double.
NUMBERS = [
    r"^\[(function cbrt|operator \|\|/ x|numbers: cbrt\(\{0\}\))\]",
    r"^\[operator \^\] SELECT '1.5'::real \^ 100::numeric",
]

# The columns of a table are not known to depend on its primary key.
GROUPS = [r"^\[aggregates\] SELECT (id, )?g FROM numbers GROUP BY id( ORDER BY id)?$"]

# A value beside a numeric has the zeros of its type, as text too.
ZEROS = [r"^\[choice coalesce\(\{0\}, \{1\}\) \|\| 'x'\] .*::numeric\(12,4\)"]

# `-0` is `0` where rows are told apart.
SIGNS = [r"^\[choice SELECT \{0\} (UNION|EXCEPT|INTERSECT) SELECT \{1\}\] .*'-0'::double precision"]

# Of two errors in one list of values, the other comes first.
ERRORS = [r"^\[choice VALUES \(CASE WHEN true THEN \{0\} ELSE \{1\} END\), [^]]*\] .* ELSE '([^']|'')*' END"]

KNOWN = [*JSON, *NUMBERS, *ZEROS, *SIGNS, *ERRORS, *GROUPS]

# Types of results, by their oids, that are of another type here: a varchar is a text.
TYPES = {1043: 25}
