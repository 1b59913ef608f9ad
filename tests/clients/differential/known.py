"""Differences that are known: patterns over `[group] statement`. `scripts/compare-postgres --all` counts them too."""

# JSON is kept as it was written, for jsonb too; parts are read of texts and bytes as well, which need not be JSON.
JSON = [r"^\[(cast jsonb to (text|json)|cast text to jsonb|operator (->|->>|\?))\]", r"jsonb"]

# Not mended yet, by what they are about: the lists are to become empty.
# Roundings of the C library that PostgreSQL was built with; here the nearest double.
NUMBERS = [r"^\[(function cbrt|operator \|\|/ x|numbers: cbrt\(\{0\}\))\]"]
MOMENTS = [
    r"^\[function (date_part|date_trunc|make_date|to_char|to_date|to_timestamp|min|max|count|coalesce|greatest|least)\]",
    r"^\[(cast|operator) .*(date|time|interval)",
    r"::(date|timestamp|timestamptz|time|interval)\b",
]
ARRAYS = [r"^\[arrays\] SELECT ARRAY\[\]$"]

QUERIES = [r"^\[queries\] SELECT 'a' == 'a'", r"^\[queries\] SELECT a.id, s.m FROM numbers a, LATERAL"]

KNOWN = [*JSON, *NUMBERS, *MOMENTS, *ARRAYS, *QUERIES]
