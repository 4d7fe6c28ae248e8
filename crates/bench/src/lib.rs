//! Owns the load generator: which requests are sent, at which rate, and the statistics of the replies. Never knows the
//! server's code: everything it learns comes over a socket.
//!
//! Plain data in, plain data out: a [`Config`] describes a run, [`run`] carries it out while an [`Observer`] watches,
//! and a [`RunStats`] holds the result.
//!
//! ```no_run
//! let config = bench::Config {
//!     target: bench::Target::tcp("localhost", 6379),
//!     length: bench::Length::Time(std::time::Duration::from_secs(10)),
//!     ..bench::Config::default()
//! };
//! let stats = bench::run(&config, &())?;
//! println!("{:.0} ops/s, p99 {:.3} ms", stats.totals.ops_per_s(stats.duration), stats.totals.quantile_ms(0.99));
//! # anyhow::Ok(())
//! ```
//!
//! The path of one request: `mix` chooses the next command, `keys` and `data` fill it in, `template` writes it into the
//! send buffer, `replies` counts the replies, `engine` moves the bytes, and `stats` adds up.

pub mod cli;
pub mod config;
pub mod output;
pub mod report;
pub mod scenario;
pub mod stats;
pub mod tls;

mod data;
mod engine;
mod keys;
mod mix;
mod monitor;
mod replies;
mod rng;
mod template;
mod zipf;

pub use config::{
    Auth, CommandSpec, Commands, Config, DataSpec, Family, Fill, KeyPattern, KeySpace, Length, Monitor, Pace, Protocol,
    Ramp, Reconnect, ScanFollow, Seeding, SetGet, SizePattern, SizeSpec, Target, Wait, Work,
};
pub use engine::{Observer, Progress, WorkloadProgress, run, run_all};
pub use keys::Keys;
pub use monitor::read_capture;
pub use rng::Rng;
pub use stats::{ClientStats, Row, RunStats, Second};
