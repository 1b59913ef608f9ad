"""Expressions that nobody listed: every function that Oribi says it has, every operator, every cast, over all types."""

from .values import COUNTS, NULL, TYPES, combinations, few

# Functions about the server, the session or the moment: their answers are their own.
OWN = {
    "current_catalog", "current_database", "current_role", "current_schema", "current_schemas", "current_setting", "current_user",
    "getdatabaseencoding", "obj_description", "col_description", "shobj_description", "session_user", "user", "version",
    "now", "current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "statement_timestamp",
    "transaction_timestamp", "clock_timestamp", "timeofday", "random", "gen_random_uuid", "format_type", "to_regclass", "to_regtype",
    "regclass", "regtype", "regnamespace", "regrole", "regproc", "quote_ident",
    # Many rows; listed with arrays.
    "generate_series",
    "json_as_text", "json_contains", "json_length",
}
PREFIXES = ("pg_", "has_", "json_get", "inet_", "txid_")

OPERATORS = [
    "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "^", "||", "&", "|", "#", "<<", ">>", "~", "~*", "LIKE", "ILIKE",
    "SIMILAR TO", "AND", "OR", "IS DISTINCT FROM", "@>", "<@", "&&", "?", "->", "->>", "^@",
]
PREFIX_OPERATORS = ["-", "+", "~", "NOT", "@", "|/", "||/"]

# Oribi's names of the types in `pg_proc.proargtypes::regtype`.
KNOWN = {
    "boolean", "smallint", "integer", "bigint", "real", "double precision", "numeric", "text", "bytea", "date", "interval", "uuid",
    "json", "jsonb", "timestamp without time zone", "timestamp with time zone", "time without time zone", "anyarray", "anyelement",
    "anycompatible", "anycompatiblearray", "anynonarray", '"any"', "integer[]", "text[]",
}
SPELLED = {
    "numeric": "numeric(12,4)", "timestamp without time zone": "timestamp", "timestamp with time zone": "timestamptz",
    "time without time zone": "time", "anyarray": "integer[]", "anyelement": "integer", "anycompatible": "integer",
    "anycompatiblearray": "integer[]", "anynonarray": "integer", '"any"': "text",
}

# Counts rather than values where a large number asks for much memory.
LONG = {"repeat", "lpad", "rpad", "array_fill"}


def functions(comparison):
    """Names that Oribi lists, without those of its own."""
    answer = comparison.ours.ask("SELECT DISTINCT routine_name FROM information_schema.routines ORDER BY 1")
    assert answer.sqlstate is None, answer
    names = [row[0] for row in answer.rows]
    return [name for name in names if name not in OWN and not name.startswith(PREFIXES)]


def signatures(comparison, name):
    """PostgreSQL's functions of a name: kind, and types of arguments that there are here."""
    answer = comparison.reference.ask(
        "SELECT prokind::text, provariadic <> 0, array_to_string(ARRAY(SELECT format_type(t, NULL) "
        "FROM unnest(proargtypes) WITH ORDINALITY AS u(t, n) ORDER BY n), '|') "
        f"FROM pg_proc WHERE proname = '{name}' AND pronamespace = 'pg_catalog'::regnamespace ORDER BY 3"
    )
    for kind, variadic, types in answer.rows:
        types = [t for t in types.split("|") if t]
        if all(t in KNOWN for t in types):
            yield kind, variadic == "t", [SPELLED.get(t, t) for t in types]


def values_of(name, type_name):
    if name in LONG and type_name in ("integer", "bigint", "smallint"):
        return COUNTS.values
    return TYPES[type_name].values


def constants(comparison, group, template, types, most, chance, values=None):
    rows = combinations(types, most, chance, values)
    spelled = [tuple(TYPES[t].constant(v) for t, v in zip(types, row)) for row in rows]
    comparison.expressions(group, [template.format(*row) for row in spelled])


def walk_functions(comparison, most, chance, only):
    types = list(TYPES)
    for name in functions(comparison):
        group = f"function {name}"
        if only and not only.search(group):
            continue
        known = list(signatures(comparison, name))
        over = ""
        for kind, variadic, arguments in known:
            if kind == "w":
                over = " OVER ()"
            if variadic:
                arguments = [*arguments[:-1], *["text", "integer"]]
            template = f"{name}({', '.join('{%d}' % i for i in range(len(arguments)))}){over}"
            values = [values_of(name, t) for t in arguments]
            constants(comparison, group, template, arguments, most, chance, values)
        # What PostgreSQL takes by implicit casts, or refuses.
        one = [f"{name}({TYPES[t].constant(few(t, 1, chance)[0])}){over}" for t in types]
        comparison.expressions(group, [f"{name}(){over}", *one])
        pairs = [(a, b) for a in types for b in types]
        picked = pairs if most > 50 else chance.sample(pairs, 6)
        two = [
            f"{name}({TYPES[a].constant(values_of(name, a)[1])}, {TYPES[b].constant(values_of(name, b)[1])}){over}" for a, b in picked
        ]
        comparison.expressions(group, two)


def walk_operators(comparison, most, chance, only):
    types = list(TYPES)
    for operator in OPERATORS:
        group = f"operator {operator}"
        if only and not only.search(group):
            continue
        pairs = [(a, b) for a in types for b in types]
        for a, b in pairs if most > 50 else chance.sample(pairs, 12):
            constants(comparison, group, f"{{0}} {operator} {{1}}", [a, b], 12 if most > 50 else 2, chance)
    for operator in PREFIX_OPERATORS:
        group = f"operator {operator} x"
        if only and not only.search(group):
            continue
        for t in types:
            constants(comparison, group, f"{operator} {{0}}", [t], most if most > 50 else 2, chance)


# What takes values of two types and answers with one.
CHOICES = [
    "CASE WHEN true THEN {0} ELSE {1} END", "CASE WHEN false THEN {0} ELSE {1} END", "CASE WHEN true THEN NULL WHEN true THEN {0} ELSE {1} END",
    "coalesce({0}, {1})", "nullif({0}, {1})", "greatest({0}, {1})", "least({0}, {1})", "(CASE WHEN true THEN {0} ELSE {1} END) / 2",
    "coalesce({0}, {1}) || 'x'", "{0} IN (NULL, {1})", "ARRAY[{0}, {1}]",
]

# The same of rows, which come in any order.
ROWS = [
    "SELECT {0} UNION ALL SELECT {1}", "SELECT {0} UNION SELECT {1}", "SELECT {0} INTERSECT SELECT {1}", "SELECT {0} EXCEPT SELECT {1}",
    "VALUES ({0}), ({1})", "SELECT * FROM (VALUES ({0}, 1), ({1}, 2)) v(a, b)",
    "VALUES (CASE WHEN true THEN {0} ELSE {1} END), (9223372036854775807)",
    "SELECT a / 2 FROM (SELECT {0} UNION ALL SELECT {1}) s(a)",
]

# Values to which a type is yet to come.
UNTYPED = {"untyped null": (NULL,), "untyped text": ("'1'", "''", "'2.5'")}


def walk_choices(comparison, most, chance, only):
    values = {name: tuple(type_.constant(v) for v in type_.values) for name, type_ in TYPES.items()} | UNTYPED
    pairs = [(a, b) for a in values for b in values]
    for template in CHOICES + ROWS:
        group = f"choice {template}"
        if only and not only.search(group):
            continue
        for a, b in pairs if most > 50 else chance.sample(pairs, 25):
            rows = combinations([a, b], 12 if most > 50 else 2, chance, [values[a], values[b]])
            written = [template.format(*row) for row in rows]
            if template in CHOICES:
                comparison.expressions(group, written)
            for sql in written if template in ROWS else ():
                comparison.statement(group, sql, ordered=False)


TEXTS = [
    "yes", "no", "t", "f", "true", "FALSE", "on", "of", "off", "1", "0", " 12 ", "+5", "-5", "1e3", "0x10", "1_000", "12.5", ".5", "5.", "",
    " ", "NaN", "inf", "-Infinity", "1e400", "32768", "2147483648", "9223372036854775808", "99999999999999999999", "2024-02-30",
    "2024-01-01", "20240101", "2024-1-5", "now", "infinity", "12:34", "1 day", "9F2C7A4E11114222833312345678 9ABC",
    "{9f2c7a4e-1111-4222-8333-123456789abc}", "9f2c7a4e111142228333123456789abc", "\\x6", "\\x61", "{1,2}", "{}", "null", "abc",
]


def walk_casts(comparison, most, chance, only):
    for source in TYPES:
        for target in TYPES:
            group = f"cast {source} to {target}"
            if only and not only.search(group):
                continue
            constants(comparison, group, f"({{0}})::{target}", [source], most if most > 50 else 2, chance)
    for target in TYPES:
        group = f"cast text to {target}"
        if only and not only.search(group):
            continue
        texts = TEXTS if most > 50 else chance.sample(TEXTS, 12)
        comparison.expressions(group, [f"'{t}'::{target}" for t in texts])
        comparison.expressions(group, [f"(lower('{t}'))::{target}" for t in texts])
