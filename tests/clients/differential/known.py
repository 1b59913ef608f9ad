"""Differences that are known: patterns over `[group] statement`. `scripts/compare-postgres --all` counts them too."""

# A column that is created as `jsonb` is of type json here, so json is taken where PostgreSQL takes jsonb alone.
JSON = [
    r"^\[operator \?\] SELECT ('[^']*'|NULL)::json \? ('|NULL$)",
    r"^\[function jsonb_array_length\] SELECT jsonb_array_length\(('[^']*'|NULL)::json\)$",
]

# A timestamp is in UTC, so the offset in its text is counted; PostgreSQL passes over it.
OFFSETS = [r"^\[moments\] SELECT timestamp '2024-01-01 00:00:00\+02'$"]

# Roundings of the C library that PostgreSQL was built with; here the nearest double.
NUMBERS = [r"^\[(function cbrt|operator \|\|/ x|numbers: cbrt\(\{0\}\))\]"]

KNOWN = [*JSON, *OFFSETS, *NUMBERS]
