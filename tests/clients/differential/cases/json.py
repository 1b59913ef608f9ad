"""JSON: operators and functions that PostgreSQL has too. Oribi's own json_* functions have tests of their own."""

from ..values import NULL, Some, quoted

DOCUMENTS = Some(
    "json",
    quoted('{"a":1,"b":[true,null,{"c":"x y"}],"c":"text","d":null,"e":1.50}', "[1,2,3]", '"text"', "null", "{}", "[]", "1", '{"a":{"b":{"c":2}}}')
    + (NULL,),
)
KEYS = Some("text", quoted("a", "b", "c", "d", "e", "zz", "") + (NULL,))
INDEXES = Some("integer", ("0", "1", "2", "(-1)", "(-5)", "99", NULL))

CASES = [
    ("{0} -> {1}", DOCUMENTS, KEYS),
    ("{0} ->> {1}", DOCUMENTS, KEYS),
    ("{0} -> {1}", DOCUMENTS, INDEXES),
    ("{0} ->> {1}", DOCUMENTS, INDEXES),
    ("{0} -> 'b' -> 2 ->> 'c'", DOCUMENTS),
    ("{0} #> '{{a,b}}'", DOCUMENTS),
    ("{0} #>> '{{a,b}}'", DOCUMENTS),
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

STATEMENTS = []
