//! Measures every published scenario at a small scale: the highest fill of RAM, and the size of gemini-rta's data on
//! flash. Never knows the server's code.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::figure::{Figure, Target};
use super::lab::{Lab, Subject};
use bench::report::bytes;
use bench::scenario::spec::{Spec, spec};
use bench::scenario::steps::{self, Settings};
use bench::scenario::watch::Watch;
use bench::scenario::{Name, Scale, program};

pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    for (name, full, quick) in [(Name::Rof, 150, 300), (Name::RofReplicated, 150, 300), (Name::KeydbFlash, 400, 800)] {
        run(lab, name, Scale::new(1, lab.scaled(full, quick)), None)?;
    }
    let scale = Scale::new(1, lab.scaled(2000, 4000));
    let own = run(lab, Name::GeminiRta, scale, None);
    let half = run(lab, Name::GeminiRta, scale, Some(0.5));
    // A figure that could not be measured counts as missed; the other figures are still measured.
    let figure = |name: &str, target, outcome: Result<(f64, String)>| {
        let (ratio, detail) = outcome.unwrap_or_else(|error| (f64::NAN, format!("{error:#}")));
        Figure::new(name, "÷ its raw size, every value on flash", ratio, target, detail)
    };
    Ok(vec![
        figure("gemini-rta's data on flash", Target::AtMost(0.138), own),
        figure("gemini-rta's data on flash, compressibility 0.5", Target::None, half),
    ])
}

/// Runs one scenario, then moves all values to flash. Returns their size on flash as a share of the raw size.
fn run(lab: &mut Lab, name: Name, scale: Scale, compressibility: Option<f64>) -> Result<(f64, String)> {
    let spec = spec(name, scale);
    let settings = Settings {
        test_time: lab.shot,
        dry_run_max: Some(Duration::from_secs(8)),
        compressibility,
        ..Settings::default()
    };
    let mut node = program(lab.flintkv(), &spec, &[])?.start(lab.base())?;
    let outcome = steps::run(&spec, &settings, &mut node, None)?;
    lab.note_fill(spec.name, outcome.sizes.fill_max);
    for measured in &outcome.measured {
        let ops = bench::report::grouped(measured.ops_per_s);
        eprintln!("   {}, {}: {ops} ops/s, {:.3} ms", spec.name, measured.name, measured.latency_ms_avg);
    }
    if name != Name::GeminiRta {
        return Ok((f64::NAN, String::new()));
    }
    let watch = Watch::start(&node);
    on_flash(&spec, Subject { name: spec.name.to_owned(), node, watch })
}

fn on_flash(spec: &Spec, mut subject: Subject) -> Result<(f64, String)> {
    subject.force_demote()?;
    let tiering = subject.snapshot()?.tiering.context("no flash")?;
    let all = tiering.values_in_flash + tiering.values_in_ram;
    ensure!(all == spec.keys, "{}: of {} keys only {all} could be written", spec.name, spec.keys);
    let raw = spec.raw_bytes as f64 * tiering.values_in_flash as f64 / all as f64;
    let ratio = tiering.flash_live as f64 / raw;
    let detail = format!(
        "{} of pages for {} ({} values), in segments of {}",
        bytes(tiering.flash_live),
        bytes(raw as u64),
        tiering.values_in_flash,
        bytes(tiering.flash_used),
    );
    Ok((ratio, detail))
}
