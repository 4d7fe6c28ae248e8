//! Owns where log lines go and which lines are written. Never knows what they say.

use crate::log_throttle::LogThrottle;
use base::clock::wall_nanos;
use config::{Config, LogFormat, LogLevel};
use serde_json::{Map, Value};
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::sync::{LazyLock, Mutex};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Registry, fmt, reload};

/// Changes the log level while the server runs.
pub struct Log(Option<reload::Handle<LevelFilter, Registry>>);

/// The log is the process's, and so is what it leaves out.
static REPEATED: LazyLock<LogThrottle> = LazyLock::new(LogThrottle::default);

/// Call this once a second: counts the lines that were left out.
pub fn report_repeated() {
    for line in REPEATED.summaries() {
        tracing::error!("{line}");
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::TRACE,
        LogLevel::Verbose => LevelFilter::DEBUG,
        LogLevel::Notice => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Nothing => LevelFilter::OFF,
    }
}

/// Starts logging. If the process already has a log (tests, embedding), that log is kept.
pub fn start(config: &Config) -> io::Result<Log> {
    let (level, handle) = reload::Layer::new(filter(config.loglevel));
    let file = config.logfile.as_ref().map(|path| {
        OpenOptions::new().create(true).append(true).open(path).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot open the log file {}: {error}", path.display()))
        })
    });
    let output = Output(Mutex::new(file.transpose()?));
    let layer = fmt::layer().with_target(false).with_ansi(false).with_writer(output);
    let registry = Registry::default().with(level).with(&*REPEATED);
    let set = match config.log_format {
        LogFormat::Text => tracing::subscriber::set_global_default(registry.with(layer)),
        LogFormat::Json => tracing::subscriber::set_global_default(registry.with(layer.event_format(OpenTelemetry))),
    };
    Ok(Log(set.is_ok().then_some(handle)))
}

/// The log file, or standard output.
struct Output(Mutex<Option<File>>);

impl<'a> fmt::MakeWriter<'a> for Output {
    type Writer = &'a Output;

    fn make_writer(&'a self) -> &'a Output {
        self
    }
}

impl io::Write for &Output {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut file = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match file.as_mut() {
            Some(file) => file.write(line),
            None => io::stdout().write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line as an OpenTelemetry log record in JSON: nanoseconds since 1970, severity, body, attributes.
struct OpenTelemetry;

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N>
    for OpenTelemetry
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> std::fmt::Result {
        let nanos = wall_nanos();
        let (text, number) = match *event.metadata().level() {
            Level::ERROR => ("ERROR", 17),
            Level::WARN => ("WARN", 13),
            Level::INFO => ("INFO", 9),
            Level::DEBUG => ("DEBUG", 5),
            Level::TRACE => ("TRACE", 1),
        };
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let body = fields.0.remove("message").unwrap_or_default();
        let line = serde_json::json!({
            "timeUnixNano": nanos.to_string(),
            "severityText": text,
            "severityNumber": number,
            "body": body,
            "attributes": fields.0,
            "resource": { "service.name": "flintkv", "service.version": env!("CARGO_PKG_VERSION") },
        });
        writeln!(to, "{line}")
    }
}

struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Log {
    pub fn set_level(&self, level: LogLevel) {
        if let Some(handle) = &self.0 {
            // Fails only if the subscriber is gone; then there is no level to set.
            let _ = handle.modify(|filter_now| *filter_now = filter(level));
        }
    }
}
