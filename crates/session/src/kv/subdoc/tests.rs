//! What each operation does, case by case.

use super::*;
use MutateOp::*;

const MKDIR_P: u8 = 0x01;

pub fn opcode(op: MutateOp) -> u8 {
    (0..=u8::MAX)
        .find(|opcode| MutateOp::from_opcode(*opcode) == Some(op))
        .expect("every operation has an opcode")
}

fn look(document: &[u8], opcode: u8, flags: u8, path: &str) -> Result<String, Status> {
    let value =
        Reader::new(document, DocumentMeta::default()).look(&Lookup::new(opcode, flags, path.as_bytes())?)?;
    Ok(String::from_utf8(value.into_owned()).expect("text was asked for"))
}

/// One mutation of a document. The marks of `path` and `value` are those of a request.
pub fn change(op: MutateOp, flags: u8, document: &str, path: &str, value: &str) -> Result<String, Status> {
    let mutation = Mutation::new(opcode(op), flags, path.as_bytes(), value.as_bytes())?;
    let mutated = mutate(Some(document.as_bytes()), &[mutation]).map_err(|failure| failure.status)?;
    Ok(String::from_utf8(mutated.document.expect("not removed")).expect("text"))
}

type Case<'c> = (&'c str, &'c str, &'c str, Result<&'c str, Status>);

fn check(op: MutateOp, flags: u8, cases: &[Case<'_>]) {
    for (document, path, value, expected) in cases {
        let made = change(op, flags, document, path, value);
        assert_eq!(made.as_deref(), expected.as_deref(), "{op:?} {path} {value} on {document}");
    }
}

#[test]
fn get_answers_with_the_text_as_it_stands() {
    let document = r#"{ "int": 1.50 , "s" : "x\u0041", "a":[ 0, [1, {"k": [ ]}], 2 ],
        "\u006bey": null, "":{"e":1}, "int":2}"#;
    for (path, expected) in [
        ("int", Ok("1.50")),
        ("s", Ok(r#""x\u0041""#)),
        ("a", Ok(r#"[ 0, [1, {"k": [ ]}], 2 ]"#)),
        ("a[1]", Ok(r#"[1, {"k": [ ]}]"#)),
        ("a[1][1].k", Ok("[ ]")),
        ("a[1].[-1].k", Ok("[ ]")),
        ("a[-1]", Ok("2")),
        ("key", Ok("null")),
        ("`int`", Ok("1.50")),
        ("nothing", Err(Status::PathNotFound)),
        ("a[3]", Err(Status::PathNotFound)),
        ("a[1][1].k[-1]", Err(Status::PathNotFound)),
        ("a[1][1].k[0].further", Err(Status::PathNotFound)),
        ("a.b", Err(Status::PathMismatch)),
        ("[0]", Err(Status::PathMismatch)),
        ("[-1]", Err(Status::PathMismatch)),
        ("s[0]", Err(Status::PathMismatch)),
        ("int.x", Err(Status::PathMismatch)),
        ("a[-2]", Err(Status::PathInvalid)),
        ("a..b", Err(Status::PathInvalid)),
        ("", Err(Status::Invalid)),
    ] {
        assert_eq!(look(document.as_bytes(), 0xc5, 0, path).as_deref(), expected.as_deref(), "get {path}");
        let exists = look(document.as_bytes(), 0xc6, 0, path);
        assert_eq!(exists.as_deref(), expected.map(|_| "").as_deref(), "exists {path}");
    }
}

#[test]
fn get_borrows_from_the_document() {
    let document = br#"{"a":[10,20]}"#;
    let reader = Reader::new(document, DocumentMeta::default());
    for (opcode, path) in [(0xc5, &b"a[1]"[..]), (0x00, b"")] {
        let value = reader.look(&Lookup::new(opcode, 0, path).unwrap()).unwrap();
        assert!(
            matches!(value, std::borrow::Cow::Borrowed(slice) if document.as_ptr_range().contains(&slice.as_ptr()))
        );
    }
}

#[test]
fn count_is_of_members_or_elements() {
    let document = r#"{"a":[1,[2,3],{}],"o":{"x":1,"y":[7]},"e":[ ]}"#;
    for (path, expected) in [
        ("", Ok("3")),
        ("a", Ok("3")),
        ("a[1]", Ok("2")),
        ("a[-1]", Ok("0")),
        ("o", Ok("2")),
        ("e", Ok("0")),
        ("a[0]", Err(Status::PathMismatch)),
        ("z", Err(Status::PathNotFound)),
    ] {
        assert_eq!(look(document.as_bytes(), 0xd2, 0, path).as_deref(), expected.as_deref(), "{path}");
    }
    assert_eq!(look(b"17", 0xd2, 0, ""), Err(Status::PathMismatch));
}

#[test]
fn the_whole_document_need_not_be_json() {
    assert_eq!(look(b"not json", 0x00, 0, "").as_deref(), Ok("not json"));
    assert_eq!(look(b"", 0x00, 0, ""), Err(Status::PathNotFound));
    assert_eq!(look(b"{}", 0x00, 0, "a"), Err(Status::Invalid));
    for (document, status) in [
        (&b""[..], Status::DocumentNotJson),
        (b"not json", Status::DocumentNotJson),
        (b"{\"a\":1}}", Status::DocumentNotJson),
        (b"{\"a\":1,\"b\":\"\xff\"}", Status::DocumentNotJson),
        (b"\"a\"", Status::PathMismatch),
        (b"12", Status::PathMismatch),
    ] {
        assert_eq!(look(document, 0xc5, 0, "a"), Err(status));
    }
}

#[test]
fn insert_adds_what_is_not_there() {
    check(
        DictAdd,
        0,
        &[
            ("{}", "a", "1", Ok(r#"{"a":1}"#)),
            ("{ }", "a", "1", Ok(r#"{ "a":1}"#)),
            (r#"{"x" : 1.0 }"#, "a", r#"{"b":[]}"#, Ok(r#"{"x" : 1.0 ,"a":{"b":[]}}"#)),
            (r#"[{"b":{}}]"#, "[0].b.c", "null", Ok(r#"[{"b":{"c":null}}]"#)),
            (r#"[{"b":{}}]"#, "[-1].b.c", "null", Ok(r#"[{"b":{"c":null}}]"#)),
            ("{}", "`a.b``c`", "1", Ok(r#"{"a.b`c":1}"#)),
            ("{}", r#"\"q"#, "1", Ok(r#"{"\"q":1}"#)),
            (r#"{"a":1}"#, "a", "2", Err(Status::PathExists)),
            (r#"{"\u0061":1}"#, "a", "2", Err(Status::PathExists)),
            ("{}", "a.b", "1", Err(Status::PathNotFound)),
            ("[]", "a", "1", Err(Status::PathMismatch)),
            ("[1]", "[1]", "1", Err(Status::PathInvalid)),
            ("{}", "a", "nul", Err(Status::ValueCannotInsert)),
            ("{}", "a", "1,2", Err(Status::ValueCannotInsert)),
            ("{}", "a", r#"1,"k2":2"#, Err(Status::ValueCannotInsert)),
            ("{}", "a", "1}", Err(Status::ValueCannotInsert)),
            ("{}", "a", " ", Err(Status::ValueCannotInsert)),
            ("{}", "a", "2.0e+", Err(Status::ValueCannotInsert)),
            ("{}", "a", "", Err(Status::Invalid)),
            ("nope", "a", "1", Err(Status::DocumentNotJson)),
        ],
    );
    check(
        DictAdd,
        MKDIR_P,
        &[
            ("{}", "a.b.c", "[1,2]", Ok(r#"{"a":{"b":{"c":[1,2]}}}"#)),
            (r#"{"a":{"x":0}}"#, "a.b.c", "1", Ok(r#"{"a":{"x":0,"b":{"c":1}}}"#)),
            ("{}", "a.b[0]", "1", Err(Status::PathInvalid)),
            ("{}", "a[0].b", "1", Err(Status::PathNotFound)),
            ("[]", "[0].a", "1", Err(Status::PathNotFound)),
            ("[]", "[-1].a", "1", Err(Status::PathNotFound)),
            (r#"{"a":1}"#, "a.b", "1", Err(Status::PathMismatch)),
            (r#"{"a":[]}"#, "a.b.c", "1", Err(Status::PathMismatch)),
        ],
    );
}

#[test]
fn upsert_adds_or_replaces() {
    check(
        DictUpsert,
        0,
        &[
            (r#"{"a": 1, "b":2}"#, "a", "[3]", Ok(r#"{"a": [3], "b":2}"#)),
            (r#"{"a":1}"#, "b", "2", Ok(r#"{"a":1,"b":2}"#)),
            (r#"{"a":1,"a":2}"#, "a", "3", Ok(r#"{"a":3,"a":2}"#)),
            ("{}", "a.b", "1", Err(Status::PathNotFound)),
            (r#"{"a":[null]}"#, "a[0]", "1", Err(Status::PathInvalid)),
            (r#"{"a":[null]}"#, "a[-1]", "1", Err(Status::PathInvalid)),
            ("[]", "k", "blah", Err(Status::ValueCannotInsert)),
        ],
    );
    check(DictUpsert, MKDIR_P, &[("{}", "a.b", "1", Ok(r#"{"a":{"b":1}}"#))]);
}

#[test]
fn replace_needs_something_to_replace() {
    check(
        Replace,
        0,
        &[
            (r#"{"a":1 ,"b":{}}"#, "a", r#""x""#, Ok(r#"{"a":"x" ,"b":{}}"#)),
            ("[1,[2],3]", "[1][0]", "9", Ok("[1,[9],3]")),
            ("[1,[2],3]", "[-1]", "[]", Ok("[1,[2],[]]")),
            ("{}", "a", "1", Err(Status::PathNotFound)),
            ("[1]", "[1]", "1", Err(Status::PathNotFound)),
            ("[1]", "[0]", "1,2", Err(Status::ValueCannotInsert)),
            ("[1]", "", "1", Err(Status::Invalid)),
        ],
    );
    assert_eq!(change(Replace, MKDIR_P, "{}", "a", "1"), Err(Status::Invalid));
}

#[test]
fn delete_takes_one_comma_along() {
    check(
        Delete,
        0,
        &[
            ("[1]", "[0]", "", Ok("[]")),
            ("[1,2]", "[0]", "", Ok("[2]")),
            ("[1,2]", "[1]", "", Ok("[1]")),
            ("[1,2]", "[-1]", "", Ok("[1]")),
            ("[ 1 , 2 , 3 ]", "[1]", "", Ok("[ 1 ,  3 ]")),
            ("[ 1 , 2 , 3 ]", "[2]", "", Ok("[ 1 , 2  ]")),
            (r#"{"0": 1,"1": 2.0}"#, "0", "", Ok(r#"{"1": 2.0}"#)),
            (r#"{"a" : "x,}", "b":{"c":[]}}"#, "a", "", Ok(r#"{ "b":{"c":[]}}"#)),
            (r#"{"a,":1,"b":{"c":[]}}"#, "b", "", Ok(r#"{"a,":1}"#)),
            (r#"[0,[1,[2]],{"k":"v"}]"#, "[1][1][0]", "", Ok(r#"[0,[1,[]],{"k":"v"}]"#)),
            ("{}", "a", "", Err(Status::PathNotFound)),
            ("[]", "[-1]", "", Err(Status::PathNotFound)),
            ("[]", "", "", Err(Status::Invalid)),
            ("[]", "[0]", "1", Err(Status::Invalid)),
        ],
    );
}

#[test]
fn arrays_grow_at_both_ends() {
    check(
        ArrayPushLast,
        0,
        &[
            ("[]", "", "1", Ok("[1]")),
            (" [ 1 ] ", "", "2,3", Ok(" [ 1 ,2,3] ")),
            (r#"{"a":[[]]}"#, "a[0]", r#"{"x":1}"#, Ok(r#"{"a":[[{"x":1}]]}"#)),
            ("[[1],[2]]", "[-1]", "3", Ok("[[1],[2,3]]")),
            ("{}", "", "1", Err(Status::PathMismatch)),
            ("17", "", "1", Err(Status::PathMismatch)),
            (r#"{"a":{}}"#, "a", "1", Err(Status::PathMismatch)),
            ("{}", "a", "1", Err(Status::PathNotFound)),
            ("[]", "", "", Err(Status::Invalid)),
            ("[]", "", " ", Err(Status::ValueCannotInsert)),
            ("[]", "", "1,", Err(Status::ValueCannotInsert)),
            ("[]", "", "1],[2", Err(Status::ValueCannotInsert)),
            ("nonjson", "", "1", Err(Status::DocumentNotJson)),
            ("{]", "", "1", Err(Status::DocumentNotJson)),
        ],
    );
    check(
        ArrayPushFirst,
        0,
        &[
            ("[]", "", "1", Ok("[1]")),
            ("[ 1 ]", "", "2,3", Ok("[2,3, 1 ]")),
            (r#"{"a":[4]}"#, "a", "[]", Ok(r#"{"a":[[],4]}"#)),
            ("{}", "a", "1", Err(Status::PathNotFound)),
            (r#"{"a":"["}"#, "a", "1", Err(Status::PathMismatch)),
        ],
    );
    for op in [ArrayPushFirst, ArrayPushLast, ArrayAddUnique] {
        check(
            op,
            MKDIR_P,
            &[
                ("{}", "a", "1", Ok(r#"{"a":[1]}"#)),
                (r#"{"x":0}"#, "a.b", "1", Ok(r#"{"x":0,"a":{"b":[1]}}"#)),
                ("{}", "a[0]", "1", Err(Status::PathNotFound)),
                ("[null]", "[1]", "1", Err(Status::PathNotFound)),
                ("[null]", "a.b", "1", Err(Status::PathMismatch)),
            ],
        );
    }
}

#[test]
fn array_insert_goes_before_the_index() {
    check(
        ArrayInsert,
        0,
        &[
            ("[1,2,4]", "[2]", "3", Ok("[1,2,3,4]")),
            ("[1, 2]", "[0]", "0", Ok("[0,1, 2]")),
            ("[1, 2]", "[1]", "8,9", Ok("[1, 8,9,2]")),
            ("[1, 2 ]", "[2]", "3", Ok("[1, 2 ,3]")),
            ("[]", "[0]", "3", Ok("[3]")),
            (r#"{"a":[[5]]}"#, "a[-1][1]", "6", Ok(r#"{"a":[[5,6]]}"#)),
            ("[1]", "[2]", "3", Err(Status::PathNotFound)),
            ("[1]", "[-1]", "3", Err(Status::PathInvalid)),
            ("[1]", "[0].a", "3", Err(Status::PathInvalid)),
            ("{}", "a[0]", "3", Err(Status::PathNotFound)),
            ("{}", "[0]", "3", Err(Status::PathMismatch)),
            ("[]", "[0]", "blah", Err(Status::ValueCannotInsert)),
            ("[]", "", "1", Err(Status::Invalid)),
        ],
    );
    assert_eq!(change(ArrayInsert, MKDIR_P, "[]", "[0]", "1"), Err(Status::Invalid));
}

#[test]
fn add_unique_is_for_scalars() {
    check(
        ArrayAddUnique,
        0,
        &[
            ("[]", "", "1", Ok("[1]")),
            (r#"{"a":["x"]}"#, "a", r#""y""#, Ok(r#"{"a":["x","y"]}"#)),
            ("[1]", "", r#""1""#, Ok(r#"[1,"1"]"#)),
            ("[1]", "", "1.0", Ok("[1,1.0]")),
            ("[1, 2 ]", "", " 2", Err(Status::PathExists)),
            (r#"["\u0078"]"#, "", r#""x""#, Err(Status::PathExists)),
            ("[null]", "", "null", Err(Status::PathExists)),
            ("[1,[]]", "", "1", Err(Status::PathExists)),
            ("[1,[]]", "", "2", Err(Status::PathMismatch)),
            ("[{}]", "", "2", Err(Status::PathMismatch)),
            ("{}", "", "2", Err(Status::PathMismatch)),
            ("[]", "", "[]", Err(Status::ValueCannotInsert)),
            ("[]", "", "1,2", Err(Status::ValueCannotInsert)),
        ],
    );
}

#[test]
fn counters_are_integers_of_64_bits() {
    check(
        Counter,
        0,
        &[
            (r#"{"n": 1 }"#, "n", "41", Ok(r#"{"n": 42 }"#)),
            ("[-20]", "[0]", "-1", Ok("[-21]")),
            ("{}", "n", "5", Ok(r#"{"n":5}"#)),
            (r#"{"n":0}"#, "n", "-9223372036854775808", Ok(r#"{"n":-9223372036854775808}"#)),
            (r#"{"n":9223372036854775806}"#, "n", "1", Ok(r#"{"n":9223372036854775807}"#)),
            (r#"{"n":9223372036854775806}"#, "n", "2", Err(Status::ValueCannotInsert)),
            (r#"{"n":-9223372036854775808}"#, "n", "-1", Err(Status::ValueCannotInsert)),
            (r#"{"n":9223372036854775808}"#, "n", "1", Err(Status::NumberRange)),
            (r#"{"n":3.14}"#, "n", "1", Err(Status::PathMismatch)),
            (r#"{"n":1e3}"#, "n", "1", Err(Status::PathMismatch)),
            (r#"{"n":"1"}"#, "n", "1", Err(Status::PathMismatch)),
            (r#"{"n":null}"#, "n", "1", Err(Status::PathMismatch)),
            (r#"{"n":[1]}"#, "n", "1", Err(Status::PathMismatch)),
            ("[]", "[0]", "1", Err(Status::PathNotFound)),
            ("{}", "a.n", "1", Err(Status::PathNotFound)),
            ("{}", "", "1", Err(Status::Invalid)),
        ],
    );
    for delta in ["bad", "3.14", "-", "43f", "0", "-0", "01", "+1", " 1", "9223372036854775808"] {
        assert_eq!(change(Counter, 0, "{}", "n", delta), Err(Status::DeltaInvalid), "{delta}");
    }
    check(
        Counter,
        MKDIR_P,
        &[("{}", "a.n", "1", Ok(r#"{"a":{"n":1}}"#)), ("[]", "[0]", "1", Err(Status::PathNotFound))],
    );
}

/// Nesting is counted in levels: the document is the first, a scalar in it the second.
#[test]
fn documents_are_looked_at_to_32_levels() {
    let nested =
        |levels: usize, inner: &str| format!("{}{inner}{}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    let path = |components: usize| "[0]".repeat(components);

    assert_eq!(look(nested(32, "1").as_bytes(), 0xc5, 0, &path(31)).as_deref(), Ok("1"));
    assert_eq!(look(nested(33, "1").as_bytes(), 0xc5, 0, &path(31)), Err(Status::DocumentTooDeep));
    assert_eq!(look(nested(33, "1").as_bytes(), 0xc5, 0, &path(32)), Err(Status::PathTooBig));
    // What comes before counts, what comes after does not.
    let deep = nested(100_000, "1");
    let document = format!(r#"{{"a":1,"deep":{deep},"z":1}}"#);
    assert_eq!(look(document.as_bytes(), 0xc5, 0, "a").as_deref(), Ok("1"));
    assert_eq!(look(document.as_bytes(), 0xc5, 0, "z"), Err(Status::DocumentTooDeep));
    assert_eq!(change(Replace, 0, &document, "a", "2"), Ok(document.replacen('1', "2", 1)));

    assert_eq!(change(Replace, 0, &nested(32, "1"), &path(30), "[3,4]"), Ok(nested(31, "[3,4]")));
    assert_eq!(change(Replace, 0, &nested(32, "1"), &path(30), "[[5]]"), Err(Status::ValueTooDeep));
    assert_eq!(change(DictUpsert, 0, "{}", "a", &deep), Err(Status::ValueTooDeep));
    assert_eq!(change(ArrayPushLast, 0, "[]", "", &nested(31, "1")), Ok(nested(32, "1")));
    assert_eq!(change(ArrayPushLast, 0, "[]", "", &nested(32, "1")), Err(Status::ValueTooDeep));
    assert_eq!(change(ArrayPushLast, 0, "[]", &path(31), "1"), Err(Status::ValueTooDeep));
    assert_eq!(
        change(DictAdd, MKDIR_P, "{}", &["a"; 31].join("."), "1").map(|made| made.len()),
        Ok(31 * 6 + 1)
    );
}

#[test]
fn mutations_are_all_done_or_none() {
    let mutation = |op, path: &'static str, value: &'static str| {
        Mutation::new(opcode(op), 0, path.as_bytes(), value.as_bytes()).unwrap()
    };
    let document = br#"{"n":1,"a":[]}"#;
    let mutations = [
        mutation(Counter, "n", "2"),
        mutation(ArrayPushLast, "a", "7"),
        mutation(Counter, "a[0]", "-10"),
        mutation(DictUpsert, "b", "\"x\""),
    ];
    let mutated = mutate(Some(document), &mutations).unwrap();
    assert_eq!(mutated.document.as_deref(), Some(&br#"{"n":3,"a":[-3],"b":"x"}"#[..]));
    assert_eq!((mutated.counters, mutated.is_json), (vec![(0, 3), (2, -3)], true));

    let failing = [mutation(Counter, "n", "2"), mutation(Delete, "z", ""), mutation(Counter, "a", "1")];
    assert_eq!(mutate(Some(document), &failing), Err(Failure { index: 1, status: Status::PathNotFound }));
}

#[test]
fn a_document_is_set_removed_or_begun() {
    let mutation = |op, flags, path: &'static str, value: &'static str| {
        Mutation::new(opcode(op), flags, path.as_bytes(), value.as_bytes()).unwrap()
    };
    let made = |document: Option<&[u8]>, mutations: &[Mutation<'_>]| {
        let mutated = mutate(document, mutations).unwrap();
        (mutated.document.map(|document| String::from_utf8(document).unwrap()), mutated.is_json)
    };
    let set = mutation(SetDocument, 0, "", "[1]");
    assert_eq!(made(Some(b"not json"), &[set]), (Some("[1]".into()), true));
    let push = mutation(ArrayPushLast, 0, "", "2");
    assert_eq!(made(None, &[set, push]), (Some("[1,2]".into()), true));
    assert_eq!(
        made(Some(b"{}"), &[mutation(SetDocument, 0, "", "not json")]),
        (Some("not json".into()), false)
    );
    assert_eq!(made(Some(b"{}"), &[mutation(DeleteDocument, 0, "", "")]), (None, false));

    assert_eq!(made(None, &[push]), (Some("[2]".into()), true));
    assert_eq!(made(None, &[mutation(ArrayInsert, 0, "[0]", "1")]), (Some("[1]".into()), true));
    let mut upsert = mutation(DictUpsert, 0, "a.b", "1");
    upsert.create_path = true;
    assert_eq!(made(None, &[upsert]), (Some(r#"{"a":{"b":1}}"#.into()), true));
}
