//! `oribi` goes on as the program that a release has beside it for newer processors, if it is of the same build and can be run.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used)] // a test that cannot go on panics
#![allow(clippy::disallowed_methods)]

mod process;

use process::ORIBI;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const BUILD: &str = match option_env!("ORIBI_BUILD") {
    Some(build) => build,
    None => env!("CARGO_PKG_VERSION"),
};

/// A folder with `oribi`, and with the folder beside it.
struct Release {
    folder: TempDir,
}

impl Release {
    fn of(build: &str) -> Release {
        let folder = tempfile::tempdir_in(Path::new(ORIBI).parent().unwrap()).unwrap();
        std::fs::hard_link(ORIBI, folder.path().join("oribi")).unwrap();
        std::fs::create_dir(folder.path().join(format!("x86-64-v3.{build}"))).unwrap();
        Release { folder }
    }

    fn newer(&self) -> PathBuf {
        let mut folders = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        folders.find(|path| path.is_dir()).unwrap().join("oribi")
    }

    /// With a script for the newer program, which says what it was given.
    fn with(self, script: &str, mode: u32) -> Release {
        std::fs::write(self.newer(), script).unwrap();
        std::fs::set_permissions(self.newer(), std::fs::Permissions::from_mode(mode)).unwrap();
        self
    }

    /// By a link, as of a folder that is on the path.
    fn command(&self) -> Command {
        let link = self.folder.path().join("link");
        symlink("oribi", &link).unwrap();
        Command::new(link)
    }

    /// It is the first that runs, as if there were no other.
    #[track_caller]
    fn check_goes_on_itself(&self, complains: bool) {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = self.command();
        let output = command.arg("config").env_remove("ORIBI_CONFIG").stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // A reader that has left does not end it by a signal.
        assert_eq!(output.status.code(), Some(141), "{said}");
        assert_eq!(said.ends_with("goes on without code for this processor\n"), complains, "{said}");
        assert_eq!(said.lines().count(), usize::from(complains), "{said}");
    }
}

const SAYS_WHAT_IT_WAS_GIVEN: &str = "#!/bin/sh
printf '<%s>' \"$(cat /proc/$$/comm)\" $$ \"$VARIABLE\" \"$(cat)\" \"$@\"
exit 7
";

fn goes_on() -> bool {
    !cfg!(target_feature = "avx2")
        && std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("bmi2")
        && std::is_x86_feature_detected!("f16c")
        && std::is_x86_feature_detected!("fma")
        && std::is_x86_feature_detected!("lzcnt")
        && std::is_x86_feature_detected!("movbe")
}

#[test]
fn the_program_beside_it_goes_on_as_the_same_process() {
    let release = Release::of(BUILD).with(SAYS_WHAT_IT_WAS_GIVEN, 0o755);
    if !goes_on() {
        return release.check_goes_on_itself(false);
    }
    let mut command = release.command();
    command
        .args(["two words", "", "--help"])
        .env("VARIABLE", "value")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let pid = child.id();
    child.stdin.take().unwrap().write_all(b"input").unwrap();
    let Output { stdout, status, .. } = child.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(stdout).unwrap(),
        format!("<oribi><{pid}><value><input><two words><><--help>")
    );
    assert_eq!(status.code(), Some(7));
}

#[test]
fn one_of_another_build_is_left_alone() {
    Release::of("0.0.7").with(SAYS_WHAT_IT_WAS_GIVEN, 0o755).check_goes_on_itself(false);
}

#[test]
fn without_one_nothing_is_said() {
    Release::of(BUILD).check_goes_on_itself(false);
}

#[test]
fn one_that_cannot_be_run_is_complained_of() {
    Release::of(BUILD).with(SAYS_WHAT_IT_WAS_GIVEN, 0o644).check_goes_on_itself(goes_on());
    // Half copied: no program, and no script either.
    Release::of(BUILD).with("", 0o755).check_goes_on_itself(goes_on());
    Release::of(BUILD).with("\x7fEL", 0o755).check_goes_on_itself(goes_on());
}

#[test]
fn a_link_back_is_not_followed_for_ever() {
    let release = Release::of(BUILD);
    symlink("../oribi", release.newer()).unwrap();
    release.check_goes_on_itself(false);
}
