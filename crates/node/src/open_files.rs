//! Owns the limit of open files. Never knows a client.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are not clients' sockets: listeners, rings, logs, polls.
const OTHER_FILES: usize = 64;

/// Raises the limit of open files to what `maxclients` needs, as far as the system allows. Returns the number of
/// clients that fit. Fewer than `maxclients` deserve a warning only if somebody asked for that number (`is_asked`).
pub fn raise_open_files(maxclients: usize, is_asked: bool) -> usize {
    let wanted = (maxclients + OTHER_FILES) as u64;
    let now = getrlimit(Resource::Nofile);
    let current = now.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return maxclients;
    }
    let maximum = now.maximum.unwrap_or(u64::MAX);
    // A privileged process may raise the hard limit too.
    let raised = [maximum.max(wanted), maximum].into_iter().find_map(|maximum| {
        let limit = Rlimit { current: Some(wanted.min(maximum)), maximum: Some(maximum) };
        setrlimit(Resource::Nofile, limit).is_ok().then_some(wanted.min(maximum))
    });
    let files = raised.unwrap_or(current);
    if files >= wanted {
        return maxclients;
    }
    let cap = (files as usize).saturating_sub(OTHER_FILES).max(1);
    if is_asked {
        tracing::warn!(
            "this process may open only {files} files, so it serves at most {cap} clients, although maxclients is {maxclients}: raise the limit of open files (ulimit -n)"
        );
    } else {
        tracing::info!("this process may open {files} files, so it serves at most {cap} clients");
    }
    cap
}
