//! Owns `flintkv prepare-flash`: from targets to measurements, and from devices to file systems. The order matters:
//! look at everything, refuse what must not be touched, ask, format, measure, recommend. Never formats by itself:
//! `format` does.

mod advice;
mod device;
mod format;
mod measure;
mod report;
mod storage;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::PrepareFlash;
use crate::failure::Failure;
use crate::progress;
use advice::{Advice, Machine, advise};
use device::Device;
use format::Formatted;
use measure::{MeasureError, Measured, Plan, ReadPoint, measure};
use storage::StorageInfo;

/// The duration of a measurement for `flintkv plan`: the default of `flintkv prepare-flash`.
const PLANNED_SECONDS: f64 = 10.0;
const PLANNED_BYTES: u64 = 1 << 30;

/// Everything that the report contains.
pub struct Found {
    formatted: Vec<Formatted>,
    /// The file that was written, and the copy of the old one.
    fstab: Option<(PathBuf, PathBuf)>,
    measured: Vec<(StorageInfo, Measured)>,
    advice: Advice,
}

pub fn run(args: &PrepareFlash) -> Result<String, Failure> {
    let (devices, dirs) = sort(args)?;
    let devices = devices.iter().map(|path| inspect(path)).collect::<Result<Vec<_>, _>>()?;
    if args.check {
        let places = places(&dirs)?;
        return Ok(match args.json {
            true => pretty(&report::checked_json(&devices, &places)),
            false => report::checked(&devices, &places),
        });
    }
    let stop = stop_on_signals()?;
    let (formatted, fstab) = if devices.is_empty() { (vec![], None) } else { prepare_devices(args, &devices, &stop)? };
    // The mount points are in the order of the targets.
    let mut mount_points = formatted.iter().map(|done| done.mount_point.clone());
    let is_device = |target: &PathBuf| devices.iter().any(|device| &device.path == target);
    let of_target = |target: &PathBuf| if is_device(target) { mount_points.next() } else { Some(target.clone()) };
    let dirs: Vec<PathBuf> = args.targets.iter().filter_map(of_target).collect();
    let plan = Plan { seconds: f64::from(args.seconds), bytes: args.size };
    let mut measured = Vec::new();
    for place in places(&dirs)? {
        let figures = measure_place(&place, plan, &stop)?;
        measured.push((place, figures));
    }
    let advice = advise(machine(), &measured);
    let found = Found { formatted, fstab, measured, advice };
    Ok(if args.json { pretty(&report::json(&found)) } else { report::text(&found) })
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

/// The devices and the directories, each in the given order.
fn sort(args: &PrepareFlash) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Failure> {
    let mut seen = BTreeSet::new();
    for target in &args.targets {
        let real = target.canonicalize().map_err(|error| Failure::refused(format!("{}: {error}", target.display())))?;
        if !seen.insert(real) {
            return Err(Failure::refused(format!("{} is given twice", target.display())));
        }
        if !target.is_dir() && !device::is_block_device(target) {
            return Err(Failure::refused(format!("{} is neither a directory nor a block device", target.display())));
        }
    }
    let (devices, dirs): (Vec<PathBuf>, Vec<PathBuf>) =
        args.targets.iter().cloned().partition(|target| device::is_block_device(target));
    let for_devices = !args.yes.is_empty()
        || !args.mount.is_empty()
        || args.filesystem.is_some()
        || args.owner.is_some()
        || args.fstab.is_some();
    if devices.is_empty() && for_devices {
        return Err(Failure::refused(
            "--yes, --mount, --filesystem, --owner and --fstab are for devices, but no device was given",
        ));
    }
    if let Some(other) = args.yes.iter().find(|path| !devices.contains(path)) {
        return Err(Failure::refused(format!("--yes {} is not one of the devices to prepare", other.display())));
    }
    Ok((devices, dirs))
}

fn inspect(path: &Path) -> Result<Device, Failure> {
    device::inspect(path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}

fn places(dirs: &[PathBuf]) -> Result<Vec<StorageInfo>, Failure> {
    let mounts = storage::mounts().map_err(|error| Failure::failed(format!("/proc/self/mountinfo: {error}")))?;
    let place = |dir: &PathBuf| {
        let failed = |error| Failure::failed(format!("{}: {error}", dir.display()));
        storage::place(dir, &mounts, Path::new("/sys")).map_err(failed)
    };
    dirs.iter().map(place).collect()
}

/// The figures of a directory, for `flintkv plan`.
pub fn measure_directory(dir: &Path) -> Result<base::device::Device, Failure> {
    let stop = stop_on_signals()?;
    let place = places(&[dir.to_owned()])?.remove(0);
    let measured = measure_place(&place, Plan { seconds: PLANNED_SECONDS, bytes: PLANNED_BYTES }, &stop)?;
    let point = |point: &ReadPoint| base::device::ReadPoint {
        reads_per_second: point.reads_per_second,
        latency_us: point.latency_us,
        latency_p99_us: point.latency_p99_us,
        cpu_us_per_read: point.cpu_us_per_read,
    };
    Ok(base::device::Device {
        reads: measured.reads.iter().map(point).collect(),
        write_bytes_per_second: measured.write_bytes_per_second,
    })
}

/// The first SIGINT or SIGTERM asks the command to stop, the second one ends the process.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|error| Failure::failed(format!("signals: {error}")))?;
    }
    Ok(stop)
}

type Prepared = (Vec<Formatted>, Option<(PathBuf, PathBuf)>);

/// All changes happen here, after everything that may be refused.
fn prepare_devices(args: &PrepareFlash, devices: &[Device], stop: &AtomicBool) -> Result<Prepared, Failure> {
    refuse_what_is_in_use(devices)?;
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::refused("formatting and mounting devices needs root"));
    }
    let fstab_path = args.fstab.as_deref().unwrap_or(Path::new("/etc/fstab"));
    let fstab = fs::read_to_string(fstab_path);
    if let (Some(path), Err(error)) = (&args.fstab, &fstab) {
        return Err(Failure::refused(format!("{}: {error}", path.display())));
    }
    let mounts = storage::mounts().map_err(|error| Failure::failed(format!("/proc/self/mountinfo: {error}")))?;
    let filesystem = format::filesystem(args.filesystem.as_deref()).map_err(Failure::refused)?;
    let mount_points = format::mount_points(&args.mount, devices.len(), &mounts, &fstab.unwrap_or_default());
    let mount_points = mount_points.map_err(Failure::refused)?;
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let owner = format::owner(args.owner.as_deref(), &passwd).map_err(Failure::refused)?;

    confirm(args, devices, &filesystem, &mount_points)?;
    // The user may have taken long to answer, so look again.
    let devices = devices.iter().map(|device| inspect(&device.path)).collect::<Result<Vec<_>, _>>()?;
    refuse_what_is_in_use(&devices)?;

    let mut formatted = Vec::new();
    for (device, mount_point) in devices.iter().zip(&mount_points) {
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::interrupted(format!(
                "interrupted; {} and later devices are unchanged",
                device.path.display()
            )));
        }
        let say = |step: &str| eprintln!("{}: {step}", device.path.display());
        let done = format::format(&device.path, &filesystem, mount_point, owner.as_ref(), &say)
            .map_err(|why| Failure::failed(format!("{}: {why}", device.path.display())))?;
        // Print this now, because the measurement may still fail.
        say(&format!("done; for fstab: {}", done.fstab_line));
        formatted.push(done);
    }
    let lines: Vec<String> = formatted.iter().map(|done| done.fstab_line.clone()).collect();
    let written = args.fstab.as_ref().map(|path| {
        let backup = format::append_fstab(path, &lines);
        backup.map(|backup| (path.clone(), backup)).map_err(|error| {
            Failure::failed(format!("{}: {error}", path.display()))
                .hint(format!("the devices are formatted and mounted; the lines to add:\n{}", lines.join("\n")))
        })
    });
    Ok((formatted, written.transpose()?))
}

fn refuse_what_is_in_use(devices: &[Device]) -> Result<(), Failure> {
    let why = |device: &Device| device.in_use.iter().map(|why| format!("{}: {why}", device.path.display())).collect();
    let reasons: Vec<String> = devices.iter().flat_map(|device| -> Vec<String> { why(device) }).collect();
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Failure::refused(format!("nothing was changed, because\n  {}", reasons.join("\n  "))))
}

/// Confirmed by `--yes` for every device, or by typing the names at a terminal.
fn confirm(args: &PrepareFlash, devices: &[Device], filesystem: &str, mount_points: &[PathBuf]) -> Result<(), Failure> {
    eprintln!("To be formatted as {filesystem}; everything on it will be lost:");
    for (device, mount_point) in devices.iter().zip(mount_points) {
        eprintln!("  {}\n    then mounted at {}", report::device_line(device), mount_point.display());
    }
    let names: BTreeSet<&Path> = devices.iter().map(|device| device.path.as_path()).collect();
    let confirmed: BTreeSet<&Path> = args.yes.iter().map(PathBuf::as_path).collect();
    if confirmed == names {
        return Ok(());
    }
    let list = args.targets.iter().filter(|target| names.contains(target.as_path()));
    let list: Vec<String> = list.map(|path| path.display().to_string()).collect();
    if !io::stdin().is_terminal() || !args.yes.is_empty() {
        let flags: Vec<String> = list.iter().map(|name| format!("--yes {name}")).collect();
        return Err(
            Failure::refused("not confirmed; nothing was changed").hint(format!("to go on: {}", flags.join(" ")))
        );
    }
    eprint!("Type {} to go on: ", list.join(" "));
    let _ = io::stderr().flush();
    let mut typed = String::new();
    io::stdin().lock().read_line(&mut typed).map_err(|error| Failure::failed(format!("standard input: {error}")))?;
    if typed.split_whitespace().map(Path::new).collect::<BTreeSet<_>>() == names {
        return Ok(());
    }
    Err(Failure::refused("the names do not match; nothing was changed"))
}

fn measure_place(place: &StorageInfo, plan: Plan, stop: &AtomicBool) -> Result<Measured, Failure> {
    let bar =
        progress::bar("{prefix} [{bar:30}] {percent:>3}% {msg}", 1000).with_prefix(place.dir.display().to_string());
    let last = std::cell::Cell::new(0);
    let report = |part: f64, what: &str| {
        let now = (part * 1000.0) as u64;
        // Drawing costs more than a read, so draw seldom.
        if now >= last.get() + 10 {
            last.set(now);
            bar.set_position(now);
            bar.set_message(what.to_owned());
        }
    };
    let measured = measure(&place.dir, place.free_bytes, plan, stop, &report);
    bar.finish_and_clear();
    measured.map_err(|error| match error {
        MeasureError::Interrupted => Failure::interrupted("interrupted; the probe file is deleted"),
        error => Failure::failed(format!("{}: {error}", place.dir.display())),
    })
}

/// A container's limit counts, not that of the machine.
fn machine() -> Machine {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let cgroup = read("/sys/fs/cgroup/memory.max").trim().parse().unwrap_or(u64::MAX);
    let info = rustix::system::sysinfo();
    let ram_bytes = (info.totalram as u64 * u64::from(info.mem_unit)).min(cgroup);
    Machine { ram_bytes, cores: std::thread::available_parallelism().map_or(1, usize::from) }
}
