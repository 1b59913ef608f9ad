//! Which code runs: `oribi` itself runs on every x86-64, and a release (`scripts/release`) has beside it a folder with the same program for
//! newer processors, which `oribi` goes on as where the processor has all that the other needs. Without that folder nothing changes.

/// What `oribi --version` says: which of the two answers, too.
pub const VERSION: &str = if IS_FOR_NEWER {
    concat!(env!("CARGO_PKG_VERSION"), " for x86-64-v3")
} else {
    env!("CARGO_PKG_VERSION")
};

const IS_FOR_NEWER: bool = cfg!(target_feature = "avx2");

pub use choice::run_best;

#[cfg(not(target_arch = "x86_64"))]
mod choice {
    pub fn run_best() {}
}

#[cfg(target_arch = "x86_64")]
mod choice {
    use crate::stdout::complain;
    use std::ffi::CString;
    use std::io;
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;
    use std::ptr;

    /// What both were built of, so that an `oribi` that was put in place without its folder does not go on as another's.
    /// The version alone names tests' and developers' builds, which have no such folder.
    const BUILD: &str = match option_env!("ORIBI_BUILD") {
        Some(build) => build,
        None => env!("CARGO_PKG_VERSION"),
    };

    macro_rules! newer_level {
        ($($feature:tt)*) => {
            /// What `-C target-cpu=x86-64-v3` lets the compiler use, but for LAHF and SAHF, for which nothing asks: whatever has AVX2 has them.
            #[cfg(test)]
            const FEATURES: &[&str] = &[$($feature),*];

            fn processor_is_newer() -> bool {
                $(std::is_x86_feature_detected!($feature))&&*
            }
        };
    }
    newer_level!("avx" "avx2" "bmi1" "bmi2" "cmpxchg16b" "f16c" "fma" "fxsr" "lzcnt" "movbe" "popcnt" "sse" "sse2" "sse3" "sse4.1" "sse4.2" "ssse3" "xsave");

    /// Replaces this program by the one for newer processors; returns if there is none that can be run here.
    /// The process stays the same: its id, name, arguments, environment and open streams. To be called before a thread is started.
    pub fn run_best() {
        if super::IS_FOR_NEWER || !processor_is_newer() {
            return;
        }
        let Ok(this) = std::env::current_exe() else { return };
        // A folder, so that the process keeps the name that `pkill` knows.
        let newer = this.with_file_name(format!("x86-64-v3.{BUILD}")).join("oribi");
        let error = match newer.canonicalize() {
            Ok(newer) if newer == this => return, // a link back, by which it would go on for ever
            Ok(newer) => go_on_as(newer),
            Err(error) => error,
        };
        if error.kind() != io::ErrorKind::NotFound {
            complain(format_args!(
                "oribi: {}: {error}; goes on without code for this processor",
                newer.display()
            ));
        }
    }

    /// Not by `Command::exec`: where that fails it leaves signals changed (SIGPIPE would end a server whose client hangs up), and it has
    /// a damaged program read by the shell.
    fn go_on_as(program: PathBuf) -> io::Error {
        let text = |text: std::ffi::OsString| {
            CString::new(text.into_vec()).expect("paths and arguments have no NUL")
        };
        let (program, arguments) = (text(program.into()), std::env::args_os().map(text).collect::<Vec<_>>());
        let ends =
            arguments.iter().map(|argument| argument.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>();
        // SAFETY: `program` and what `ends` points to are texts that end with NUL, `ends` ends with null, and all live until it returns.
        #[allow(unsafe_code)]
        unsafe {
            libc::execv(program.as_ptr(), ends.as_ptr());
        }
        io::Error::last_os_error()
    }

    #[cfg(test)]
    mod tests {
        /// Else an older processor could be given code that it does not have.
        #[test]
        fn what_the_compiler_may_use_is_asked_for() {
            let mut rustc = std::process::Command::new("rustc");
            let cfg = rustc.args(["--print=cfg", "-Ctarget-cpu=x86-64-v3"]).output().unwrap();
            let cfg = String::from_utf8(cfg.stdout).unwrap();
            let features =
                cfg.lines().filter_map(|line| line.strip_prefix("target_feature=\"")?.strip_suffix('"'));
            assert_eq!(features.collect::<Vec<_>>(), super::FEATURES);
        }
    }
}
