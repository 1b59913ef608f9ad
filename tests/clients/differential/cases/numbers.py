"""Numbers: arithmetic, functions, aggregates, literals, casts.

A `numeric` has a static scale here, so quotients and averages are compared rounded, and values of more than 38 digits are left
out: `docs/protocols/sql.md` says what differs.
"""

INTEGERS = ["smallint", "integer", "bigint"]
FLOATS = ["real", "double precision"]
NUMERIC = "numeric(12,4)"
NUMBERS = [*INTEGERS, *FLOATS, NUMERIC]

CASES = [
    *[(f"{{0}} {op} {{1}}", a, b) for op in ["+", "-", "*"] for a in NUMBERS for b in NUMBERS],
    *[(f"{{0}} {op} {{1}}", a, b) for op in ["/", "%"] for a in INTEGERS for b in INTEGERS],
    *[("{0} / {1}", a, b) for a in FLOATS for b in NUMBERS],
    *[("round({0} / {1}, 6)", a, NUMERIC) for a in [NUMERIC, "integer"]],
    *[("{0} % {1}", a, NUMERIC) for a in [NUMERIC, "integer"]],
    *[(f"{{0}} {op} {{1}}", a, b) for op in ["=", "<", ">="] for a in NUMBERS for b in NUMBERS],
    *[(f"{{0}} {op} {{1}}", a, b) for op in ["&", "|", "#"] for a in INTEGERS for b in INTEGERS],
    *[(f"{{0}} {op} {{1}}", a, "integer") for op in ["<<", ">>"] for a in INTEGERS],
    *[(f"{f}({{0}})", a) for f in ["abs", "ceil", "floor", "round", "trunc", "sign", "-", "+", "@"] for a in NUMBERS],
    *[("~ {0}", a) for a in INTEGERS],
    *[(f"round({{0}}, {n})", a) for n in [0, 1, 2, 4, 6, -1, -3] for a in [NUMERIC, "integer"]],
    *[(f"trunc({{0}}, {n})", a) for n in [0, 2, 6, -2] for a in [NUMERIC, "bigint"]],
    *[(f"{f}({{0}})", "double precision") for f in ["sqrt", "exp", "ln", "log", "log10", "cbrt", "sin", "cos", "atan", "degrees", "radians"]],
    *[(f"{f}({{0}}, {{1}})", a, b) for f in ["gcd", "lcm", "mod"] for a in INTEGERS for b in INTEGERS],
    ("mod({0}, {1})", NUMERIC, NUMERIC),
    ("div({0}, {1})", NUMERIC, NUMERIC),
    ("power({0}, {1})", "double precision", "double precision"),
    ("{0} ^ {1}", "integer", "integer"),
    *[(f"{{0}}::{target}", source) for source in NUMBERS for target in NUMBERS],
    *[("{0}::text", source) for source in NUMBERS],
    *[("coalesce({0}, 1) + 1", source) for source in NUMBERS],
    *[("'5' + {0}", source) for source in NUMBERS],
    *[("{0} > -1", source) for source in NUMBERS],
]

STATEMENTS = [
    *[
        f"SELECT {literal}"
        for literal in [
            "1", "-1", "2147483647 + 1", "2147483648 + 1", "-2147483648", "- 2147483648 - 1", "9223372036854775807 + 1", "1.50", ".5", "5.", "1e5",
            "1e-5", "1.5e3", "0x1f", "1_000", "1a", "1 >-1", "1>=-1", "1<>-1", "2*-1", "4/-2", "1 !=-1", "'5' + 1", "'x' + 1", "'5' + '1'",
            "1::float8 < 1e300", "1 / 0", "1.0 / 0", "1::float8 / 0", "1e308::float8 * 10", "null + 1", "0.1 + 0.2", "1 + 1.5::real",
            "pg_typeof(1)", "pg_typeof(2147483648)", "pg_typeof(9223372036854775808)", "pg_typeof(1 + 1::bigint)", "pg_typeof(1.5)",
        ]
    ],
    *[
        f"SELECT {aggregate} FROM numbers"
        for aggregate in [
            "sum(n)", "sum(n::bigint)", "sum(n::numeric(10,2))", "sum(n::real)", "sum(n::float8)", "avg(n::float8)", "sum(DISTINCT n)",
            "round(avg(n), 10)", "round(avg(n::bigint), 10)", "sum(n) FILTER (WHERE n > 7)", "min(n::float8)", "max(n::numeric(10,2))",
            "bit_and(n)", "bit_or(n)", "bit_xor(n)", "sum(9223372036854775807)", "sum(1e308::float8)", "sum(n + 2147483647)", "sum(null)", "sum('1')",
            "stddev(n)", "count(n + 2147483647)", "sum(sum(n)) OVER ()",
        ]
    ],
    *[f"SELECT id FROM numbers ORDER BY id {limit}" for limit in [
        "LIMIT 2", "LIMIT 1 + 1", "LIMIT '2'", "LIMIT 1.5", "LIMIT NULL", "LIMIT ALL", "LIMIT 0", "LIMIT -1", "OFFSET -1", "OFFSET 4", "FETCH FIRST 2 ROWS ONLY",
        "FETCH NEXT ROW ONLY", "OFFSET 1 ROW FETCH FIRST ROW ONLY", "FETCH FIRST 2 ROWS WITH TIES", "LIMIT 1, 2",
    ]],
    "SELECT id, sum(n) OVER (ORDER BY id ROWS 1 PRECEDING), sum(n::float8) OVER (ORDER BY id) FROM numbers ORDER BY id",
    "SELECT n + 2147483647 FROM numbers ORDER BY id",
    "SELECT id FROM numbers ORDER BY n + 2147483640",
    "SELECT a.id FROM numbers a JOIN numbers b ON a.n + 2147483647 = b.n",
]
