//! `oribi sql` at a terminal: `script`, which every Debian has, is one.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics
#![allow(clippy::disallowed_methods)]

mod process;

use process::ORIBI;
use std::io::Write;
use std::process::{Command, Stdio};

/// What the terminal shows of a conversation of these lines, which must end by itself.
fn converse(lines: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let mut child = Command::new("script")
        .args([
            "--quiet",
            "--return",
            "--echo",
            "never",
            "--command",
            &format!("{ORIBI} sql --format csv"),
            "/dev/null",
        ])
        .env("HOME", home.path())
        .env("TERM", "dumb")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(lines.as_bytes()).unwrap();
    // The end of the input would end the conversation as well.
    let output = child.wait_with_output().unwrap();
    drop(input);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).replace('\r', "")
}

#[test]
fn a_semicolon_in_a_literal_ends_no_statement() {
    let said = converse("select 'a;\n\\q\nb' as x, $$;\n$$ as y;\n\\q\n");
    assert!(said.contains("\"a;\n\\q\nb\",\";\n\""), "{said}");
}

#[test]
fn a_command_ends_a_conversation_in_the_middle_of_a_statement() {
    let said = converse("select 7 as seven; select 8\n\\q\n");
    assert!(said.contains("seven\n7\n") && !said.contains("error"), "{said}");
}

#[test]
fn several_statements_of_a_line_are_run_one_by_one() {
    let said = converse("select nothing; select 9 as nine;\n\\q\n");
    assert!(said.contains("error") && said.contains("nine\n9\n"), "{said}");
}
