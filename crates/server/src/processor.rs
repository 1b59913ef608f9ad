//! Which code runs: `oribi` itself runs on every x86-64, and a release (`scripts/release`) has beside it a folder with the same program for
//! newer processors, which `oribi` replaces itself by where the processor has all that the other needs. Without that folder nothing changes.

#[cfg(target_arch = "x86_64")]
use crate::stdout::complain;

/// What both were built of; an `oribi` that was replaced alone does not find another's.
const BUILD: &str = match option_env!("ORIBI_BUILD") {
    Some(build) => build,
    None => env!("CARGO_PKG_VERSION"),
};

/// What this program is compiled for.
pub const LEVEL: &str = if cfg!(target_feature = "avx2") { "x86-64-v3" } else { "baseline" };

#[cfg(target_arch = "x86_64")]
macro_rules! newer_level {
    ($($feature:tt)*) => {
        /// What `-C target-cpu=x86-64-v3` lets the compiler use.
        #[cfg(test)]
        const FEATURES: &[&str] = &[$($feature),*];

        fn is_newer() -> bool {
            $(std::is_x86_feature_detected!($feature))&&*
        }
    };
}
#[cfg(target_arch = "x86_64")]
newer_level!("avx" "avx2" "bmi1" "bmi2" "cmpxchg16b" "f16c" "fma" "fxsr" "lzcnt" "movbe" "popcnt" "sse" "sse2" "sse3" "sse4.1" "sse4.2" "ssse3" "xsave");

/// Returns if this is the program to go on with. Before anything else is done: no thread runs and no file is open.
/// The process stays the same: its arguments, environment, name and open streams go on.
#[cfg(target_arch = "x86_64")]
pub fn run_best() {
    use std::os::unix::process::CommandExt;

    if cfg!(target_feature = "avx2") || !is_newer() {
        return;
    }
    let Ok(this) = std::env::current_exe() else { return };
    // A folder, so that the process keeps the name that `pkill` and `systemd` know.
    let newer = this.with_file_name(format!("x86-64-v3.{BUILD}")).join("oribi");
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "oribi".into());
    let error = std::process::Command::new(&newer).arg0(name).args(arguments).exec();
    if error.kind() != std::io::ErrorKind::NotFound {
        complain(format_args!(
            "oribi: {}: {error}; goes on without code for this processor",
            newer.display()
        ));
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn run_best() {}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    /// Else an older processor could be given code that it does not have.
    #[test]
    fn what_the_compiler_may_use_is_asked_for() {
        let rustc = std::process::Command::new("rustc")
            .args(["--print=cfg", "-Ctarget-cpu=x86-64-v3"])
            .output()
            .unwrap();
        let cfg = String::from_utf8(rustc.stdout).unwrap();
        let features =
            cfg.lines().filter_map(|line| line.strip_prefix("target_feature=\"")?.strip_suffix('"'));
        assert_eq!(features.collect::<Vec<_>>(), super::FEATURES);
    }
}
