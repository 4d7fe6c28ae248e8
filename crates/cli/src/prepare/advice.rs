//! Owns the conclusions from a measurement: directives and warnings, each with its reason. Pure functions. Never
//! measures.

use super::measure::{Measured, ReadPoint};
use super::storage::StorageInfo;
use crate::size;
use base::size::human;
use base::sizing;

/// The share of a file system's free space for FlintKV: a completely full device slows down and wears out.
const FLASH_SHARE: f64 = 0.9;
/// The share of the machine's RAM for FlintKV.
const RAM_SHARE: f64 = 0.6;
/// The RAM that a key takes in the index while its value is on flash.
const INDEX_BYTES_PER_KEY: u64 = 19;
/// What a database needs on flash besides its RAM.
const FLASH_BYTES_MIN: u64 = 4 << 20;
/// A lower rate means that the device is not flash, or that something slow is in front of it.
const READS_PER_SECOND_MIN: f64 = 5_000.0;
const WRITE_BYTES_PER_SECOND_MIN: f64 = 100e6;
/// A rate this close counts as the highest rate.
const NEAR: f64 = 0.9;

#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// What this process may use: a container's limit if there is one.
    pub ram_bytes: u64,
    pub cores: usize,
}

/// A line of flintkv.conf and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub name: &'static str,
    pub value: String,
    pub why: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advice {
    pub settings: Vec<Setting>,
    pub warnings: Vec<String>,
}

/// The smallest queue depth that reaches nearly the highest rate.
pub fn knee(reads: &[ReadPoint]) -> Option<&ReadPoint> {
    let best = reads.iter().map(|point| point.reads_per_second).fold(0.0, f64::max);
    reads.iter().find(|point| point.reads_per_second >= best * NEAR)
}

pub fn advise(machine: Machine, measured: &[(StorageInfo, Measured)]) -> Advice {
    let mut advice = Advice::default();
    let mut set = |name, value: String, why: String| advice.settings.push(Setting { name, value, why });
    for (place, figures) in measured {
        let rate = knee(&figures.reads).map_or(0.0, |point| point.reads_per_second);
        let why = format!("{} reads/s, {}/s written", size::count(rate), human(figures.write_bytes_per_second as u64));
        set("flash-path", quoted(&place.dir.display().to_string()), why);
    }
    // Segments are spread evenly, so the smallest path limits each of them.
    let smallest = measured.iter().map(|(place, _)| share_bytes(place, measured)).min().unwrap_or(0);
    let flash_bytes = (smallest as f64 * FLASH_SHARE) as u64 * measured.len() as u64;
    let (memory_bytes, ram_bytes) = limits(machine, flash_bytes);
    let ram = size::directive(ram_bytes);
    set(
        "memory-limit",
        size::directive(memory_bytes),
        format!("its files take {} with the journal and the checkpoints: 90 % of the free space", human(flash_bytes)),
    );
    let keys = ram_bytes / 2 / INDEX_BYTES_PER_KEY;
    set(
        "ram-limit",
        ram,
        format!("of the machine's {}; half of it indexes {} keys", human(machine.ram_bytes), size::count(keys as f64)),
    );
    let (value, why) = driver(measured);
    set("flash-io", value.to_owned(), why);
    let cpu_us = measured.iter().filter_map(|(_, figures)| knee(&figures.reads)).map(|point| point.cpu_us_per_read);
    let cpu_us = cpu_us.fold(0.0, f64::max);
    set(
        "io-threads",
        "auto".to_owned(),
        format!("one worker for each of {} cores; a read takes {} of a core", machine.cores, size::micros(cpu_us)),
    );
    advice.warnings = measured.iter().flat_map(|(place, figures)| warnings(place, figures)).collect();
    let largest = measured.iter().map(|(place, _)| share_bytes(place, measured)).max().unwrap_or(0);
    if largest as f64 * FLASH_SHARE > smallest as f64 {
        advice.warnings.push(format!(
            "the paths differ in size: of each, only as much as the smallest has ({}) is used",
            human(smallest)
        ));
    }
    for (at, (place, _)) in measured.iter().enumerate() {
        if let Some((other, _)) = measured[..at].iter().find(|(other, _)| same_filesystem(place, other)) {
            let (one, other) = (other.dir.display(), place.dir.display());
            advice
                .warnings
                .push(format!("{one} and {other} are on the same file system, so a second path brings nothing"));
        }
    }
    advice
}

/// The largest memory limit whose files fit, and its RAM limit.
fn limits(machine: Machine, files_bytes: u64) -> (u64, u64) {
    // The RAM that the node itself needs, with journal and console.
    let ram_min = (36 + 2 * machine.cores as u64) << 20;
    // 30 % of the memory limit is FlintKV's default. More RAM is left to the rest of the system.
    let ram_max = ((machine.ram_bytes as f64 * RAM_SHARE) as u64).max(ram_min);
    let ram_of = |memory: u64| (memory / 10 * 3).clamp(ram_min, ram_max);
    // In whole megabytes, so that a directive can state the value exactly.
    let (mut fits, mut too_large) = ((ram_min + FLASH_BYTES_MIN) >> 20, files_bytes >> 20);
    while fits + 1 < too_large {
        let middle = fits.midpoint(too_large);
        let memory = middle << 20;
        match sizing::files_bytes(memory, ram_of(memory), true) <= files_bytes {
            true => fits = middle,
            false => too_large = middle,
        }
    }
    (fits << 20, ram_of(fits << 20))
}

fn same_filesystem(one: &StorageInfo, other: &StorageInfo) -> bool {
    one.source == other.source && one.filesystem == other.filesystem
}

/// The share of a file system's free space that a place can use.
fn share_bytes(place: &StorageInfo, measured: &[(StorageInfo, Measured)]) -> u64 {
    let sharers = measured.iter().filter(|(other, _)| same_filesystem(place, other)).count().max(1);
    place.free_bytes / sharers as u64
}

fn driver(measured: &[(StorageInfo, Measured)]) -> (&'static str, String) {
    if measured.iter().any(|(_, figures)| figures.uring_refused.is_some()) {
        return ("threads", "io_uring is refused here".to_owned());
    }
    let rate =
        |pick: &dyn Fn(&Measured) -> Option<f64>| measured.iter().filter_map(|(_, figures)| pick(figures)).sum::<f64>();
    let threads = rate(&|figures| figures.threads.map(|point| point.reads_per_second));
    let uring = rate(&|figures| {
        let depth = figures.threads?.depth;
        figures.reads.iter().find(|point| point.depth == depth).map(|point| point.reads_per_second)
    });
    let compared = format!("io_uring {} reads/s, threads {}", size::count(uring), size::count(threads));
    if threads * NEAR > uring { ("threads", compared) } else { ("auto", compared) }
}

fn warnings(place: &StorageInfo, figures: &Measured) -> Vec<String> {
    let dir = place.dir.display();
    let mut warnings = Vec::new();
    match place.filesystem.as_str() {
        "tmpfs" | "ramfs" => warnings.push(format!("{dir} is {}: RAM, not flash", place.filesystem)),
        "nfs" | "nfs4" | "cifs" | "smb3" | "fuse.sshfs" | "ceph" | "9p" => {
            warnings.push(format!("{dir} is {}: every cold read crosses the network", place.filesystem));
        }
        "btrfs" | "zfs" | "overlay" => warnings.push(format!(
            "{dir} is {}, which copies on every write: xfs or ext4 is faster and steadier",
            place.filesystem
        )),
        _ => {}
    }
    if place.disk.as_ref().is_some_and(|disk| disk.rotational) {
        warnings.push(format!("{dir}: the kernel says that the disk rotates; random reads will be slow if it does"));
    }
    if !figures.o_direct {
        warnings.push(format!(
            "{dir}: O_DIRECT is refused, so the figures are those of the page cache, which takes RAM outside of ram-limit"
        ));
    }
    if !figures.preallocated {
        warnings.push(format!("{dir}: space cannot be reserved; writes fail if others take it first"));
    }
    if let Some(why) = &figures.uring_refused {
        warnings.push(format!(
            "{dir}: io_uring is refused ({why}); containers and kernel.io_uring_disabled can be the reason. Threads are used instead, which take more processor time for each read"
        ));
    }
    let best = figures.reads.iter().map(|point| point.reads_per_second).fold(0.0, f64::max);
    if best < READS_PER_SECOND_MIN {
        warnings.push(format!("{dir}: {} reads/s is little for flash", size::count(best)));
    }
    if figures.write_bytes_per_second < WRITE_BYTES_PER_SECOND_MIN {
        let rate = human(figures.write_bytes_per_second as u64);
        warnings.push(format!("{dir}: {rate}/s is little for flash; writers will be slowed when RAM is full"));
    }
    warnings
}

/// The lines for flintkv.conf.
pub fn conf(advice: &Advice) -> String {
    let lines: Vec<String> =
        advice.settings.iter().map(|setting| format!("{} {}", setting.name, setting.value)).collect();
    // flintkv.conf allows no comment after a value.
    let comment = |setting: &Setting| format!("# {}: {}\n", setting.name, setting.why);
    advice.settings.iter().zip(lines).map(|(setting, line)| comment(setting) + &line + "\n").collect()
}

fn quoted(path: &str) -> String {
    let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+:@,".contains(c));
    if plain { path.to_owned() } else { format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"")) }
}

#[cfg(test)]
mod tests {
    use super::super::storage::Disk;
    use super::*;

    const GB: u64 = 1 << 30;
    const MACHINE: Machine = Machine { ram_bytes: 64 * GB, cores: 16 };

    fn point(depth: usize, reads_per_second: f64) -> ReadPoint {
        let latency_us = depth as f64 / reads_per_second * 1e6;
        ReadPoint {
            depth,
            reads_per_second,
            latency_us,
            latency_p50_us: latency_us,
            latency_p99_us: latency_us,
            cpu_us_per_read: 5.0,
        }
    }

    fn flash(dir: &str, free_bytes: u64) -> (StorageInfo, Measured) {
        let disk =
            Disk { name: "nvme0n1".into(), model: "Fast".into(), bytes: free_bytes, rotational: false, discard: true };
        let place = StorageInfo {
            dir: dir.into(),
            filesystem: "xfs".into(),
            source: format!("/dev{dir}").into(),
            disk: Some(disk),
            free_bytes,
        };
        let measured = Measured {
            o_direct: true,
            preallocated: true,
            punches_holes: true,
            uring_refused: None,
            bytes: GB,
            write_bytes_per_second: 2e9,
            reads: [(1, 12e3), (4, 46e3), (16, 150e3), (64, 310e3), (128, 330e3)].map(|(d, r)| point(d, r)).to_vec(),
            threads: Some(point(64, 90e3)),
        };
        (place, measured)
    }

    fn settings(measured: &[(StorageInfo, Measured)]) -> Vec<String> {
        let advice = advise(MACHINE, measured);
        advice.settings.iter().map(|setting| format!("{} {}", setting.name, setting.value)).collect()
    }

    #[test]
    fn good_flash_gets_its_space_and_no_warning() {
        let measured = [flash("/mnt/a", 1000 * GB), flash("/mnt/b c", 1000 * GB)];
        assert_eq!(
            settings(&measured),
            [
                "flash-path /mnt/a",
                "flash-path \"/mnt/b c\"",
                "memory-limit 1504gb",
                "ram-limit 38gb",
                "flash-io auto",
                "io-threads auto"
            ]
        );
        assert_eq!(advise(MACHINE, &measured).warnings, Vec::<String>::new());
        assert_eq!(knee(&measured[0].1.reads).map(|point| point.depth), Some(64));
    }

    #[test]
    fn small_flash_does_not_get_more_ram_than_it_needs() {
        assert!(settings(&[flash("/mnt/a", 10 * GB)]).contains(&"ram-limit 1843mb".to_owned()));
        let tiny = settings(&[flash("/mnt/a", 100 << 20)]);
        assert!(tiny.contains(&"ram-limit 68mb".to_owned()), "{tiny:?}: the least that a node of 16 workers takes");
    }

    #[test]
    fn the_server_accepts_what_is_recommended() {
        let dir = tempfile::tempdir().unwrap();
        let conf = conf(&advise(MACHINE, &[flash(dir.path().to_str().unwrap(), 1000 * GB)]));
        let file = dir.path().join("flintkv.conf");
        std::fs::write(&file, &conf).unwrap();
        let store = config::ConfigStore::from_args(&[file.to_str().unwrap().to_owned()]).expect(&conf);
        let config = store.snapshot();
        assert_eq!((config.memory_limit_bytes, config.ram_limit_bytes), (700 * GB, 38 * GB));
        // Persistence is the default, so the files include the journal and the checkpoints.
        let most = 900 * GB;
        assert!((most / 100 * 98..=most).contains(&config.flash_limit_bytes), "{}", config.flash_limit_bytes);
    }

    #[test]
    fn problems_are_reported() {
        let (mut place, mut measured) = flash("/mnt/a", 500 * GB);
        place.filesystem = "tmpfs".into();
        place.disk.as_mut().unwrap().rotational = true;
        measured.o_direct = false;
        measured.preallocated = false;
        measured.uring_refused = Some("Operation not permitted".into());
        measured.threads = None;
        measured.reads = vec![point(1, 80.0)];
        measured.write_bytes_per_second = 90e6;
        let advice = advise(MACHINE, &[(place, measured), flash("/mnt/b", 1000 * GB)]);
        for word in [
            "tmpfs",
            "rotates",
            "O_DIRECT",
            "reserved",
            "Operation not permitted",
            "reads/s is little",
            "/s is little",
            "smallest",
        ] {
            let said = advice.warnings.iter().any(|warning| warning.contains(word));
            assert!(said, "{word} is missing in {:#?}", advice.warnings);
        }
        assert!(advice.settings.iter().any(|setting| setting.name == "flash-io" && setting.value == "threads"));
        let alone = settings(&[flash("/mnt/a", 100 * GB)]);
        assert_eq!(
            settings(&[flash("/mnt/a", 100 * GB), flash("/mnt/a", 100 * GB)])[2],
            alone[1],
            "the space is there once"
        );
        let twice = advise(MACHINE, &[flash("/mnt/a", GB), flash("/mnt/a", GB)]);
        assert!(twice.warnings.iter().any(|warning| warning.contains("same file system")), "{:?}", twice.warnings);
    }
}
