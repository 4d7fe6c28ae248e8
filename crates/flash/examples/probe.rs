//! Prints what the device under DIR can do: `cargo run --release --example probe -- DIR [MIB] [auto|uring|threads]`

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flash::probe::{random_read_rate, sequential_write_rate};
use flash::{FlashFiles, FlashIo};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("usage: probe DIR [MIB] [auto|uring|threads]")?);
    let bytes = args.next().map_or(Ok(4096), |mib| mib.parse::<u64>())? << 20;
    let which = args.next().map_or(Some(FlashIo::Auto), |which| FlashIo::from_word(&which));
    let which = which.ok_or("the driver is auto, uring or threads")?;

    let files = Arc::new(FlashFiles::open(&[dir], "flintkv-probe.log", bytes)?);
    files.describe().for_each(|info| println!("{info}; driver {}", which.as_str()));
    // The first round writes to pages that were never written, the second one over them.
    for round in ["first write", "overwrite"] {
        for write_kib in [256, 1024, 4096, 16384] {
            let rate = sequential_write_rate(&files, which, bytes, write_kib << 10, 4)?;
            println!(
                "{round:>11}, {write_kib:>5} KiB at depth 4: {:>6.0} MB/s, {:>5.0} µs processor time per MiB",
                rate.bytes_per_second / 1e6,
                rate.cpu_micros_per_mib,
            );
        }
    }
    for depth in [1, 8, 32, 128, 256] {
        let rate = random_read_rate(&files, which, bytes, depth, Duration::from_secs(3))?;
        println!(
            "random 4 KiB reads at depth {depth:>3}: {:>7.0} reads/s, {:>6.0} µs each, {:>5.2} µs processor time each",
            rate.reads_per_second, rate.latency_micros_mean, rate.cpu_micros_per_read,
        );
    }
    let path = files.describe().next().expect("one path").file.clone();
    drop(files);
    std::fs::remove_file(path)?;
    Ok(())
}
