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

KNOWN = [*JSON, *NUMBERS]
