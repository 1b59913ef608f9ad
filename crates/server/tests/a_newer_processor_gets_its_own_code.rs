//! `oribi` goes on as the program that a release has beside it for newer processors, if it is of the same build.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used)] // a test that cannot go on panics
#![allow(clippy::disallowed_methods)]

mod process;

use process::ORIBI;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// What `oribi two words` says where a folder of that name has a program with that mode.
fn beside(folder: &str, mode: u32) -> Output {
    let release = tempfile::tempdir_in(Path::new(ORIBI).parent().unwrap()).unwrap();
    let oribi = release.path().join("oribi");
    std::fs::hard_link(ORIBI, &oribi).unwrap();
    let newer = release.path().join(folder).join("oribi");
    std::fs::create_dir(newer.parent().unwrap()).unwrap();
    std::fs::write(&newer, "#!/bin/sh\necho newer \"$(cat /proc/$$/comm)\" \"$@\"\nexit 7\n").unwrap();
    std::fs::set_permissions(&newer, std::fs::Permissions::from_mode(mode)).unwrap();
    // A link, as of a folder that is on the path.
    let link = release.path().join("link");
    std::os::unix::fs::symlink(oribi, &link).unwrap();
    Command::new(link).args(["two words", "--help"]).output().unwrap()
}

fn is_newer() -> bool {
    std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("bmi2")
        && std::is_x86_feature_detected!("fma")
}

const BUILD: &str = match option_env!("ORIBI_BUILD") {
    Some(build) => build,
    None => env!("CARGO_PKG_VERSION"),
};

#[track_caller]
fn check_goes_on_itself(output: &Output, complaint: bool) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("unrecognized subcommand 'two words'"), "{said}");
    assert_eq!(said.contains("goes on without code for this processor"), complaint, "{said}");
}

#[test]
fn the_program_beside_it_goes_on() {
    let output = beside(&format!("x86-64-v3.{BUILD}"), 0o755);
    if !is_newer() {
        return check_goes_on_itself(&output, false);
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout), "newer oribi two words --help\n");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn one_of_another_build_is_left_alone() {
    check_goes_on_itself(&beside("x86-64-v3.0.0.7", 0o755), false);
}

#[test]
fn one_that_cannot_be_run_is_complained_of() {
    check_goes_on_itself(&beside(&format!("x86-64-v3.{BUILD}"), 0o644), is_newer());
}
