"""Functions and operators of text and bytes, patterns, hashes, encodings."""

from ..values import COUNTS, NULL, Some, quoted

PATTERNS = Some("text", quoted("", "%", "_", "a%", "%c", "a_c", "%b%", "a\\%b%", "ä__", "x\\\\y", "\\a%", "A%", "%\\") + (NULL,))
REGEXES = Some(
    "text",
    quoted("", "a", "^a", "c$", "a.c", "[a-c]+", "(a|b)c", "b*", "\\d", "\\w+", "\\s", "[[:alpha:]]+", "ä", "x{1,2}", "(", "^$", "a|abc", "[^a]")
    + (NULL,),
)
SUBJECTS = Some("text", quoted("", "a", "abc", "ABC", "a1b2", "äöü", "x y", "aaa", "foo.bar", "two\nlines") + (NULL,))
SETS = Some("text", quoted("", "a", "abc", " ", "xy", "ä", "cba") + (NULL,))
CODES = Some("integer", ("65", "228", "8364", "129420", "0", "(-1)", "1114112", "55296", NULL))
HEX = Some("bigint", ("0", "1", "255", "(-1)", "9223372036854775807", "(-9223372036854775807)", NULL))
ENCODED = Some("text", quoted("", "616263", "YWJj", "YQ==", "6", "zz", "a b", "\\141", "YW\nJj", "61 62") + (NULL,))
FORMATS = Some("text", quoted("hex", "base64", "escape", "HEX", "utf8") + (NULL,))
ESCAPES = Some("text", quoted("!", "", "ab", "\\"))

CASES = [
    *[
        (f"{name}({{0}})", "text")
        for name in [
            "ascii", "bit_length", "btrim", "char_length", "character_length", "initcap", "length", "lower", "ltrim",
            "md5", "octet_length", "quote_ident", "quote_literal", "quote_nullable", "reverse", "rtrim", "upper",
            "trim", "to_hex", "concat", "hashtext", "parse_ident", "unistr", "casefold",
        ]
    ],
    *[
        (f"{name}({{0}})", "bytea")
        for name in ["bit_length", "length", "md5", "octet_length", "sha224", "sha256", "sha384", "sha512", "reverse", "btrim", "ascii"]
    ],
    *[(f"{name}({{0}}, {{1}})", "text", SETS) for name in ["btrim", "ltrim", "rtrim", "strpos", "starts_with", "concat", "contains", "ends_with"]],
    ("trim({0})", "text"),
    ("trim(both {1} from {0})", "text", SETS),
    ("trim(leading {1} from {0})", "text", SETS),
    ("trim(trailing {1} from {0})", "text", SETS),
    ("trim(both from {0})", "text"),
    ("trim({0}, {1})", "text", SETS),
    ("chr({0})", CODES),
    ("concat({0}, {1}, {2})", "text", "integer", "boolean"),
    ("concat_ws({0}, {1}, {2})", SETS, "text", "integer"),
    ("concat_ws({0}, {1}, {2}, {1})", SETS, "text", "text"),
    ("left({0}, {1})", "text", COUNTS),
    ("right({0}, {1})", "text", COUNTS),
    ("lpad({0}, {1})", "text", COUNTS),
    ("rpad({0}, {1})", "text", COUNTS),
    ("lpad({0}, {1}, {2})", "text", COUNTS, SETS),
    ("rpad({0}, {1}, {2})", "text", COUNTS, SETS),
    ("repeat({0}, {1})", "text", COUNTS),
    ("replace({0}, {1}, {2})", "text", SETS, SETS),
    ("translate({0}, {1}, {2})", "text", SETS, SETS),
    ("split_part({0}, {1}, {2})", Some("text", quoted("a,b,c", "", "abc", ",", "a,,b", "ä,ö") + (NULL,)), Some("text", quoted(",", "", "b", ",,") + (NULL,)), COUNTS),
    ("position({1} in {0})", "text", SETS),
    ("substr({0}, {1})", "text", COUNTS),
    ("substr({0}, {1}, {2})", "text", COUNTS, COUNTS),
    ("substring({0} from {1})", "text", COUNTS),
    ("substring({0} from {1} for {2})", "text", COUNTS, COUNTS),
    ("substring({0} for {1})", "text", COUNTS),
    ("substring({0}, {1}, {2})", "text", COUNTS, COUNTS),
    ("substring({0} from {1})", SUBJECTS, REGEXES),
    ("substring({0}, {1})", SUBJECTS, REGEXES),
    ("overlay({0} placing {1} from {2})", "text", SETS, COUNTS),
    ("overlay({0} placing {1} from {2} for {3})", "text", SETS, COUNTS, COUNTS),
    ("overlay({0}, {1}, {2})", "text", SETS, COUNTS),
    ("to_hex({0})", HEX),
    ("to_hex({0})", "integer"),
    ("encode({0}, {1})", "bytea", FORMATS),
    ("decode({0}, {1})", ENCODED, FORMATS),
    ("format({0}, {1})", Some("text", quoted("%s", "%I", "%L", "%%", "a", "%1$s", "%s %s")), "text"),
    ("starts_with({0}, {1})", "text", SETS),
    ("{0} ^@ {1}", "text", SETS),
    ("{0} || {1}", "text", "text"),
    ("{0} || {1}", "text", "integer"),
    ("{0} || {1}", "boolean", "text"),
    ("{0} || {1}", "text", "numeric(12,4)"),
    ("{0} || {1}", "double precision", "text"),
    ("{0} || {1}", "text", "date"),
    ("{0} || {1}", "bytea", "bytea"),
    ("{0} || {1}", "integer", "integer"),
    *[(f"{{0}} {op} {{1}}", "text", PATTERNS) for op in ["LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE", "~~", "!~~", "~~*", "!~~*"]],
    ("{0} LIKE {1} ESCAPE {2}", "text", Some("text", quoted("a!%b%", "a\\%", "%", "!", "ab") + (NULL,)), ESCAPES),
    ("{0} ILIKE {1} ESCAPE {2}", "text", Some("text", quoted("A!%b%", "a\\%", "%")), ESCAPES),
    ("{0} SIMILAR TO {1}", SUBJECTS, Some("text", quoted("abc", "a%", "%(b|d)%", "(a|b)c", "a_c", "[a-c]+", "", "a*") + (NULL,))),
    ("{0} NOT SIMILAR TO {1}", SUBJECTS, Some("text", quoted("abc", "a%", "%(b|d)%"))),
    *[(f"{{0}} {op} {{1}}", SUBJECTS, REGEXES) for op in ["~", "~*", "!~", "!~*"]],
    *[(f"{name}({{0}}, {{1}})", SUBJECTS, REGEXES) for name in ["regexp_like", "regexp_count", "regexp_instr", "regexp_match", "regexp_substr", "regexp_split_to_array"]],
    *[
        (f"{name}({{0}}, {{1}}, {{2}})", SUBJECTS, REGEXES, Some("text", quoted("", "i", "g", "n", "x", "s", "z", "ig") + (NULL,)))
        for name in ["regexp_like", "regexp_match"]
    ],
    ("regexp_count({0}, {1}, {2})", SUBJECTS, REGEXES, COUNTS),
    ("regexp_instr({0}, {1}, {2})", SUBJECTS, REGEXES, COUNTS),
    ("regexp_replace({0}, {1}, {2})", SUBJECTS, REGEXES, Some("text", quoted("", "X", "\\1", "[\\&]", "$1", "\\\\", "\\2") + (NULL,))),
    (
        "regexp_replace({0}, {1}, {2}, {3})",
        SUBJECTS,
        REGEXES,
        Some("text", quoted("", "X", "\\1", "<\\&>", "$0")),
        Some("text", quoted("g", "i", "gi", "", "n", "q") + (NULL,)),
    ),
    ("md5({0})", "bytea"),
    ("sha256({0})", "text"),
    ("digest({0}, 'sha256')", "text"),
    ("{0} COLLATE \"C\" < {1}", "text", "text"),
    ("string_to_array({0}, {1})", Some("text", quoted("a,b,c", "", "abc", ",", "a,,b") + (NULL,)), Some("text", quoted(",", "", "b") + (NULL,))),
    ("string_to_array({0}, {1}, {2})", Some("text", quoted("a,b,c", "", ",", "a,,b")), Some("text", quoted(",", "")), SETS),
    ("char_length({0}::varchar(2))", "text"),
    ("{0}::varchar(2)", "text"),
    ("{0}::char(3)", "text"),
    ("{0}::char(3) || 'x'", "text"),
    ("cast({0} as varchar(2))", "text"),
    *[(name, "integer") for name in ["find_in_set('a', 'a,b')", "levenshtein('a', 'b')", "substr_index('a', 'b', {0})", "instr('abc', 'b')"]],
    ("uuid()", "integer"),
    ("length(gen_random_uuid()::text)", "integer"),
    ("normalize({0})", "text"),
    ("get_byte({0}, 0)", "bytea"),
    ("convert_from({0}, 'UTF8')", "bytea"),
    ("convert_to({0}, 'UTF8')", "text"),
]

STATEMENTS = [
    "SELECT a FROM texts ORDER BY a",
    "SELECT a FROM texts ORDER BY a DESC NULLS LAST",
    "SELECT a FROM texts ORDER BY lower(a), a",
    "SELECT DISTINCT lower(a) FROM texts ORDER BY 1",
    "SELECT min(a), max(a) FROM texts",
    "SELECT count(*) FROM texts WHERE a LIKE '%b%'",
    "SELECT a FROM texts WHERE a > 'B' ORDER BY id",
    "SELECT a FROM texts WHERE a ~ '^[a-z]' ORDER BY id",
    "SELECT a FROM texts WHERE a SIMILAR TO 'a%' ORDER BY id",
    "SELECT a FROM texts WHERE a NOT SIMILAR TO '(a|b)%' ORDER BY id",
    "SELECT 'a' 'b'",
    "SELECT E'a\\nb', E'\\x41', U&'\\00e4', $$it's$$",
    "SELECT 'a\\nb'",
]
