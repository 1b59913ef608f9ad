"""Differences that are known: patterns over `[group] statement`. `scripts/compare-postgres --all` counts them too."""

# JSON is kept as it was written, for jsonb too; parts are read of texts and bytes as well, which need not be JSON.
JSON = [r"^\[(cast jsonb to (text|json)|cast text to jsonb|operator (->|->>|\?))\]", r"jsonb"]

# Not mended yet, by what they are about: the lists are to become empty.
NUMBERS = [
    r"^\[function (abs|a?(cos|sin|tan)h?|atan2|avg|bit_\w+|cbrt|ceil\w*|corr|cot|covar_\w+|degrees|exp|factorial|floor|gcd|lcm|ln|log|log10|percentile_cont"
    r"|pow|power|radians|regr_\w+|round|sqrt|stddev\w*|sum|trunc|var\w*)\]",
    r"^\[operator (\+|-|\*|/|%|=|<>|<|<=|>|>=|\+ x|- x)\]",
    r"^\[cast (smallint|integer|bigint|real|double precision|numeric\S*|text) to (smallint|integer|bigint|real|double precision|numeric\S*)\]",
    r"'-0'::double precision",
]
MOMENTS = [
    r"^\[function (date_part|date_trunc|make_date|to_char|to_date|to_timestamp|min|max|count|coalesce|greatest|least)\]",
    r"^\[(cast|operator) .*(date|time|interval)",
    r"::(date|timestamp|timestamptz|time|interval)\b",
]
ARRAYS = [r"^\[arrays\] SELECT ARRAY\[\]$"]

QUERIES = [r"^\[queries\] SELECT 'a' == 'a'", r"^\[queries\] SELECT a.id, s.m FROM numbers a, LATERAL"]

KNOWN = [*JSON, *NUMBERS, *MOMENTS, *ARRAYS, *QUERIES]
