//! Owns where log lines go and which are written. Never knows what they say.

use crate::config::{Config, LogLevel};
use std::fs::OpenOptions;
use std::io;
use std::sync::Mutex;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::{Registry, fmt};

/// Changes the level while the server runs.
pub struct Log(Option<reload::Handle<LevelFilter, Registry>>);

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::TRACE,
        LogLevel::Verbose => LevelFilter::DEBUG,
        LogLevel::Notice => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Nothing => LevelFilter::OFF,
    }
}

/// Starts logging. In a process that logs already (tests, embedding) that log is kept.
pub fn start(config: &Config) -> io::Result<Log> {
    let (level, handle) = reload::Layer::new(filter(config.loglevel));
    let plain = fmt::layer().with_target(false).with_ansi(false);
    let set = match &config.logfile {
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot open the log file {}: {error}", path.display()))
            })?;
            let lines = plain.with_writer(Mutex::new(file));
            tracing::subscriber::set_global_default(Registry::default().with(level).with(lines))
        }
        None => tracing::subscriber::set_global_default(Registry::default().with(level).with(plain)),
    };
    Ok(Log(set.is_ok().then_some(handle)))
}

impl Log {
    pub fn set_level(&self, level: LogLevel) {
        if let Some(handle) = &self.0 {
            // Fails only if the subscriber is gone, and then there is nothing to set.
            let _ = handle.modify(|filter_now| *filter_now = filter(level));
        }
    }
}
