"""JSON: operators and functions that PostgreSQL has too. Oribi's own json_* functions have tests of their own."""

from ..values import NULL, Some, quoted

DOCUMENTS = Some(
    "json",
    quoted('{"a":1,"b":[true,null,{"c":"x y"}],"c":"text","d":null,"e":1.50}', "[1,2,3]", '"text"', "null", "{}", "[]", "1", '{"a":{"b":{"c":2}}}')
    + (NULL,),
)
KEYS = Some("text", quoted("a", "b", "c", "d", "e", "zz", "") + (NULL,))
WRITTEN = quoted(
    '{"a":1}', "[1,2 , 3]", '"text"', "null", "true", "{}", "[]", " [ ] ", '{"b":1,"aa":2,"a":3,"a":{"x":1e2,"y":-0.0,"z":1.50e1}}', "1.50", "1e3", "-0",
    "1E-3", "0.000", "12345678901234567890.10", '"\\u00e9\\u0001\\n\\/\\"\\\\"', '"\\u0000"', '"\\ud83e\\udd8c"', '"\\ud800"', "1e400000", "1e-20000", '{"a,}]":"[{"}',
    '{"ä":1,"z":2,"":3}', "[1", "", "nul", '{"a" : [ {"c":1,"b":[ ]} ] }',
)
EDGES = quoted(
    "[[1,2],3]", '{"0":1}', '{"0":{"1":5}}', '{"a":1,"a":[2, 3]}', '"text"', "5", "null", "[null]", '["a\\u00e9", "\\"]"]', '{"\\u0061":" x "}', " [ ] ", '{"a" : { } }',
)
STEPS = Some("text", quoted("0", "-1", "1", "a", "x", "text", "") + (NULL,))
INDEXES = Some("integer", ("0", "1", "2", "(-1)", "(-5)", "99", NULL))

CASES = [
    ("{0} -> {1}", DOCUMENTS, KEYS),
    ("{0} ->> {1}", DOCUMENTS, KEYS),
    ("{0} -> {1}", DOCUMENTS, INDEXES),
    ("{0} ->> {1}", DOCUMENTS, INDEXES),
    ("{0} -> 'b' -> 2 ->> 'c'", DOCUMENTS),
    ("{0} #> '{{a,b}}'", DOCUMENTS),
    ("{0} #>> '{{a,b}}'", DOCUMENTS),
    *[
        (f"{{0}}::{t} {op} {{1}}", Some("text", EDGES), STEPS)
        for t in ["json", "jsonb"]
        for op in ["->", "->>"]
    ],
    *[
        (f"{{0}}::{t} {op} '{path}'", Some("text", EDGES))
        for t in ["json", "jsonb"]
        for op in ["#>", "#>>"]
        for path in ["{{}}", "{{0}}", "{{-1}}", "{{a}}", "{{0,1}}", "{{a,1}}", "{{+1}}", "{{01}}", "{{x}}"]
    ],
    *[(f"{{0}}::{t} {op} {{1}}", Some("text", EDGES), INDEXES) for t in ["json", "jsonb"] for op in ["->", "->>"]],
    ("{0} #>> '{{b,0}}'", DOCUMENTS),
    ("{0} #> '{{}}'", DOCUMENTS),
    ("{0} || {1}", "jsonb", "jsonb"),
    ("{0} || {1}", "json", "json"),
    ("{0} - {1}", "jsonb", KEYS),
    ("{0} @> {1}", "jsonb", "jsonb"),
    ("{0} ? {1}", "jsonb", KEYS),
    ("json_array_length({0})", DOCUMENTS),
    ("jsonb_array_length({0})", "jsonb"),
    ("json_typeof({0})", DOCUMENTS),
    ("jsonb_typeof({0})", "jsonb"),
    ("{0}::text", "json"),
    ("{0}::jsonb", Some("text", WRITTEN)),
    ("{0}::jsonb::text", Some("text", WRITTEN)),
    ("{0}::json::jsonb::text", Some("text", WRITTEN)),
    ("{0}::jsonb::json::text", Some("text", WRITTEN)),
    ("{0}::jsonb -> 'a'", Some("text", WRITTEN)),
    ("({0}::jsonb -> 'a')::text", Some("text", WRITTEN)),
    ("{0}::jsonb ->> 'a'", Some("text", WRITTEN)),
    ("{0}::jsonb #> '{{a,0}}'", Some("text", WRITTEN)),
    ("{0}::jsonb ? {1}", Some("text", WRITTEN), KEYS),
    ("coalesce({0}, '{{\"a\":1}}')", "jsonb"),
    ("CASE WHEN true THEN {0} ELSE '[1,2]' END", "jsonb"),
    ("coalesce({0}, {1})", "json", "jsonb"),
    ("{0} -> 'a'", "text"),
    ("{0} -> 'a'", "bytea"),
    ("{0} -> {1}", "json", "bigint"),
    ("{0} -> {1}", "json", "smallint"),
    ("{0} = {1}", "jsonb", "jsonb"),
    ("{0} = 'a'", "json"),
    ("nullif({0}, 'a')", "json"),
    ("{0} IN ('1')", "json"),
    ("{0} BETWEEN '1' AND '2'", "json"),
    ("array_agg({0})", "jsonb"),
    ("{0}::json", Some("text", quoted('{"a":1}', "[1", "", " 1 ", "nul"))),
    ("to_json({0})", "integer"),
    ("to_jsonb({0})", "text"),
    ("json_build_object('a', {0})", "integer"),
    ("json_build_array({0})", "integer"),
    ("json_extract_path_text({0}, 'a')", DOCUMENTS),
    ("length({0})", "json"),
    ("lower({0})", "json"),
    ("upper({0} ->> 'c')", DOCUMENTS),
    ("({0} ->> 'a')::text = '1'", DOCUMENTS),
]

STATEMENTS = [
    "SELECT DISTINCT x FROM (VALUES ('1'::json)) v(x)",
    "SELECT x FROM (VALUES ('1'::json)) v(x) ORDER BY x",
    "SELECT x, count(*) FROM (VALUES ('1'::json)) v(x) GROUP BY x",
    "SELECT count(DISTINCT x) FROM (VALUES ('1'::json)) v(x)",
    "SELECT DISTINCT x FROM (VALUES ('1'::jsonb), ('1.0')) v(x)",
    "SELECT x FROM (VALUES ('1'::jsonb), ('[]')) v(x) ORDER BY x",
    "SELECT '1'::jsonb UNION SELECT '1.0'::jsonb",
    "SELECT '1'::json UNION SELECT '1.0'::json",
    "SELECT '1'::json UNION ALL SELECT '1.0'::json ORDER BY 1",
    "SELECT '{\"a\" : 1}'::jsonb UNION ALL SELECT '{\"a\" : 1}'::jsonb",
    "SELECT '1'::json UNION ALL SELECT '1.0'::jsonb",
    "SELECT '{\"a\":1}' -> 'a'",
    "SELECT NULL -> 'a'",
    "SELECT NULL ? 'a', '{\"a\":1}' ? 'a'",
    "SELECT '[1]'::json -> NULL",
    "SELECT coalesce(NULL::json, '{\"a\":1}') -> 'a', coalesce('{\"a\":[1 ,2]}'::jsonb, '{}') -> 'a'",
    "SELECT (CASE WHEN true THEN '{\"a\":1}'::jsonb END) ->> 'a', nullif(NULL::jsonb, '1')",
    "SELECT '[1]'::json -> 0.5",
    "SELECT x -> 'a' FROM (SELECT '{\"a\" :[1,2]}'::jsonb AS x) s",
    "SELECT (x -> 'a')::text, x::text FROM (SELECT '{\"b\":0,\"a\" :[1,2]}'::jsonb AS x) s",
]
