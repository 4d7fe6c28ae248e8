//! Owns how a process begins its program anew: the same process executes the file that is at its path then, with the same arguments. So it
//! needs no service manager, and a new version at the path takes over. Never knows why.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The program as this process was started with it.
pub struct Program {
    /// Asked for at the start: the kernel names the file that runs, which may be gone later.
    path: io::Result<PathBuf>,
    args: Vec<OsString>,
}

impl Program {
    pub fn of_this_process() -> Program {
        Program { path: std::env::current_exe(), args: std::env::args_os().collect() }
    }

    /// Returns only if that is not possible, and why. Everything that this process has open is closed by then, or is closed by the kernel:
    /// Rust opens all files so.
    pub fn begin_anew(self) -> io::Error {
        let path = match self.path {
            Ok(path) => path,
            Err(error) => return error,
        };
        let mut args = self.args.into_iter();
        let mut command = Command::new(path);
        if let Some(name) = args.next() {
            command.arg0(name);
        }
        command.args(args).exec()
    }
}
