"""Aggregates and windows over text, booleans and arrays, and their clauses; those of numbers are in `numbers`."""

CASES = []

WHOLE = [
    "count(*)", "count(a)", "count(DISTINCT a)", "min(a)", "max(a)", "string_agg(a, ',')", "string_agg(a, ',' ORDER BY id)",
    "string_agg(a, ',' ORDER BY id DESC)", "string_agg(a, '' ORDER BY a)", "string_agg(DISTINCT a, ',' ORDER BY a)",
    "string_agg(a, NULL ORDER BY id)", "string_agg(a, ',' ORDER BY id) FILTER (WHERE id > 3)", "array_agg(a ORDER BY id)",
    "array_agg(a ORDER BY a DESC, id)", "array_agg(DISTINCT a ORDER BY a)", "array_agg(id ORDER BY id) FILTER (WHERE id < 0)",
    "array_agg(id)", "bool_and(id > 0)", "bool_or(a IS NULL)", "every(id >= 0)", "count(*) FILTER (WHERE a IS NULL)",
    "string_agg(id::text, '-' ORDER BY id)", "array_agg(length(a) ORDER BY id)", "any_value(a)", "first_value(a)",
    "last_value(a)", "nth_value(a, 1)", "median(id)", "approx_distinct(a)", "approx_median(id)", "sum(a)", "avg(a)",
    "min(a = 'a')", "bool_and(id)", "string_agg(id, ',')", "array_agg(a)", "mode() WITHIN GROUP (ORDER BY a)",
    "string_agg(a)", "count()", "count(a, id)", "count(DISTINCT a, id)", "min(*)", "json_agg(a)", "bit_and(id)", "bit_or(id)", "bit_xor(id)",
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY a)", "grouping(a)", "var_pop(id)", "approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY id)",
]

WINDOWS = [
    "row_number() OVER (ORDER BY id)", "row_number() OVER (PARTITION BY g ORDER BY id DESC)", "rank() OVER (ORDER BY g)",
    "dense_rank() OVER (ORDER BY g)", "percent_rank() OVER (ORDER BY g)", "cume_dist() OVER (ORDER BY g)",
    "ntile(3) OVER (ORDER BY id)", "ntile(0) OVER (ORDER BY id)", "ntile(-1) OVER (ORDER BY id)", "ntile(NULL) OVER (ORDER BY id)",
    "ntile(100) OVER (ORDER BY id)",
    "lag(n) OVER (ORDER BY id)", "lag(n, 2) OVER (ORDER BY id)", "lag(n, 2, 0) OVER (ORDER BY id)", "lag(n, 0) OVER (ORDER BY id)",
    "lag(n, -1) OVER (ORDER BY id)", "lead(n) OVER (ORDER BY id)", "lead(n, 1, -9) OVER (ORDER BY id)", "lead(n, 100, 7) OVER (ORDER BY id)",
    "lag(n, NULL) OVER (ORDER BY id)", "lag(n, 1, 'x') OVER (ORDER BY id)", "lag(n) IGNORE NULLS OVER (ORDER BY id)", "lead(n, id) OVER (ORDER BY id)",
    "first_value(n) OVER (ORDER BY id)", "first_value(n) OVER (PARTITION BY g ORDER BY id)", "last_value(n) OVER (ORDER BY id)",
    "last_value(n) OVER (ORDER BY g)", "last_value(n) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    "nth_value(n, 2) OVER (ORDER BY id)", "nth_value(n, 0) OVER (ORDER BY id)", "nth_value(n, -1) OVER (ORDER BY id)", "nth_value(n, NULL) OVER (ORDER BY id)",
    "nth_value(n, 2) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "count(*) OVER ()", "count(n) OVER (ORDER BY g)", "count(*) OVER (PARTITION BY g)", "min(n) OVER (ORDER BY id ROWS 1 PRECEDING)",
    "max(n) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)", "max(n) OVER (ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING)",
    "count(*) OVER (ORDER BY g RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)", "count(*) OVER (ORDER BY g GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW)",
    "count(*) OVER (ORDER BY n RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING)", "count(*) OVER (ORDER BY n DESC RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "count(*) OVER (ORDER BY g ROWS UNBOUNDED PRECEDING)", "count(*) OVER (ROWS BETWEEN CURRENT ROW AND 1 PRECEDING)",
    "count(*) OVER (ORDER BY id ROWS BETWEEN -1 PRECEDING AND CURRENT ROW)",
    "count(*) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW)",
    "count(*) FILTER (WHERE n > 1) OVER (ORDER BY id)", "string_agg(n::text, ',') OVER (ORDER BY id)", "array_agg(n) OVER (ORDER BY id)",
    "bool_and(n > 0) OVER (ORDER BY id)", "sum(count(*)) OVER ()", "row_number() OVER ()", "count(DISTINCT n) OVER ()",
    "rank() OVER (ORDER BY n NULLS FIRST)", "rank() OVER (ORDER BY n DESC)", "lag(n::text, 1, 'none') OVER (ORDER BY id)",
    "row_number()", "lag(n)", "rank(1) OVER (ORDER BY id)", "ntile() OVER (ORDER BY id)", "first_value(n)", "abs(n) OVER ()",
    "first_value(n) IGNORE NULLS OVER (ORDER BY id)", "last_value(n) RESPECT NULLS OVER (ORDER BY id)",
]

STATEMENTS = [
    *[f"SELECT {aggregate} FROM texts" for aggregate in WHOLE],
    *[f"SELECT {aggregate} FROM texts WHERE false" for aggregate in WHOLE],
    *[f"SELECT length(a) AS l, {aggregate} FROM texts GROUP BY 1 ORDER BY 1 NULLS FIRST" for aggregate in WHOLE if "ORDER" in aggregate or "count" in aggregate],
    *[f"SELECT id, {window} FROM numbers ORDER BY id" for window in WINDOWS],
    "SELECT g, count(*) FROM numbers GROUP BY g HAVING count(*) > 1 ORDER BY g",
    "SELECT g, n, count(*), grouping(g, n) FROM numbers GROUP BY ROLLUP (g, n) ORDER BY 1 NULLS LAST, 2 NULLS LAST, 4",
    "SELECT g, n, count(*) FROM numbers GROUP BY GROUPING SETS ((g), (n), ()) ORDER BY 1 NULLS LAST, 2 NULLS LAST, 3",
    "SELECT g, n, count(*) FROM numbers GROUP BY CUBE (g, n) ORDER BY 1 NULLS LAST, 2 NULLS LAST, 3",
    "SELECT id, sum(n) OVER w, avg(n) OVER w FROM numbers WINDOW w AS (PARTITION BY g ORDER BY id) ORDER BY id",
    "SELECT g FROM numbers GROUP BY id",
    "SELECT id, g FROM numbers GROUP BY id ORDER BY id",
    "SELECT count(*) FROM numbers WHERE count(*) > 1",
    "SELECT sum(sum(n)) FROM numbers",
]
