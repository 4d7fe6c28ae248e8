//! Owns the output of findings and changes, as text and as JSON. Never measures or inspects anything.

use serde_json::{Value, json};

use super::Found;
use super::advice::{Advice, conf, knee};
use super::device::Device;
use super::format::Formatted;
use super::measure::{Measured, ReadPoint};
use super::storage::{Disk, StorageInfo};
use crate::size::{count, micros};
use crate::table::{Align, pairs, table};
use base::size::human;

pub fn device_line(device: &Device) -> String {
    let holds = if device.holds.is_empty() { "nothing recognised".to_owned() } else { device.holds.join(", ") };
    format!("{}  {}  holds: {holds}", device.path.display(), disk_text(&device.disk))
}

fn disk_text(disk: &Disk) -> String {
    let kind = if disk.rotational { "rotating" } else { "not rotating" };
    let model = if disk.model.is_empty() { disk.name.clone() } else { format!("{}, {}", disk.name, disk.model) };
    format!("{} ({model}, {kind})", human(disk.bytes))
}

/// The output of `--check`.
pub fn checked(devices: &[Device], places: &[StorageInfo]) -> String {
    let mut text = String::new();
    for device in devices {
        text.push_str(&device_line(device));
        text.push('\n');
        if device.in_use.is_empty() {
            text.push_str("  can be formatted\n");
        }
        for why in &device.in_use {
            text.push_str(&format!("  cannot be formatted: {why}\n"));
        }
    }
    for place in places {
        text.push_str(&format!("{}\n{}", place.dir.display(), indented(&pairs(&[("file system", place_text(place))]))));
    }
    text
}

pub fn checked_json(devices: &[Device], places: &[StorageInfo]) -> Value {
    json!({
        "devices": devices.iter().map(device_json).collect::<Vec<_>>(),
        "directories": places.iter().map(place_json).collect::<Vec<_>>(),
    })
}

pub fn text(found: &Found) -> String {
    let mut text = String::new();
    for formatted in &found.formatted {
        text.push_str(&format!(
            "{} is {} now, mounted at {}; for /etc/fstab:\n  {}\n",
            formatted.device.display(),
            formatted.filesystem,
            formatted.mount_point.display(),
            formatted.fstab_line
        ));
    }
    if let Some((fstab, backup)) = &found.fstab {
        text.push_str(&format!("written to {}; the old version is {}\n", fstab.display(), backup.display()));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    for (place, measured) in &found.measured {
        text.push_str(&format!("{}\n{}\n", place.dir.display(), indented(&measured_text(place, measured))));
    }
    text.push_str("Recommended for flintkv.conf:\n\n");
    text.push_str(&conf(&found.advice));
    if !found.advice.warnings.is_empty() {
        text.push_str("\nWarnings:\n");
        found.advice.warnings.iter().for_each(|warning| text.push_str(&format!("- {warning}\n")));
    }
    text
}

fn place_text(place: &StorageInfo) -> String {
    let disk = place.disk.as_ref().map(|disk| format!(", {}", disk_text(disk))).unwrap_or_default();
    format!("{} on {}{disk}, {} free", place.filesystem, place.source.display(), human(place.free_bytes))
}

fn measured_text(place: &StorageInfo, measured: &Measured) -> String {
    let yes = |is: bool| if is { "yes" } else { "no" };
    let uring = match &measured.uring_refused {
        None => "yes".to_owned(),
        Some(why) => format!("no ({why})"),
    };
    let discard = match &place.disk {
        Some(disk) => format!(", device takes discards: {}", yes(disk.discard)),
        None => String::new(),
    };
    let abilities = format!(
        "O_DIRECT {}, io_uring {uring}, punches holes {}{discard}, reserves space {}",
        yes(measured.o_direct),
        yes(measured.punches_holes),
        yes(measured.preallocated)
    );
    let mut text = pairs(&[
        ("file system", place_text(place)),
        ("abilities", abilities),
        (
            "writes",
            format!("{}/s, sequential, 256 KB each, 4 at a time", human(measured.write_bytes_per_second as u64)),
        ),
        ("reads", format!("4 KB each, at random out of {}", human(measured.bytes))),
    ]);
    let row = |point: &ReadPoint, driver: &str| {
        vec![
            point.depth.to_string(),
            driver.to_owned(),
            count(point.reads_per_second),
            micros(point.latency_us),
            micros(point.latency_p50_us),
            micros(point.latency_p99_us),
            micros(point.cpu_us_per_read),
        ]
    };
    let driver = if measured.uring_refused.is_none() { "io_uring" } else { "threads" };
    let mut rows: Vec<Vec<String>> = measured.reads.iter().map(|point| row(point, driver)).collect();
    rows.extend(measured.threads.iter().map(|point| row(point, "threads")));
    let right = ["READS/S", "MEAN", "P50", "P99", "CPU/READ"].map(|title| (title, Align::Right));
    let head: Vec<(&str, Align)> =
        [("AT A TIME", Align::Right), ("BY", Align::Left)].into_iter().chain(right).collect();
    text.push_str(&indented(&table(&head, &rows)));
    if let Some(point) = knee(&measured.reads) {
        text.push_str(&format!("enough at a time: {}\n", point.depth));
    }
    text
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

pub fn json(found: &Found) -> Value {
    let formatted = |done: &Formatted| {
        json!({
            "device": done.device, "filesystem": done.filesystem, "uuid": done.uuid,
            "mount_point": done.mount_point, "fstab_line": done.fstab_line,
        })
    };
    let measured = |(place, measured): &(StorageInfo, Measured)| {
        let mut directory = place_json(place);
        directory["o_direct"] = json!(measured.o_direct);
        directory["io_uring"] = json!(measured.uring_refused.is_none());
        directory["io_uring_refused"] = json!(measured.uring_refused);
        directory["punches_holes"] = json!(measured.punches_holes);
        directory["reserves_space"] = json!(measured.preallocated);
        directory["measured_bytes"] = json!(measured.bytes);
        directory["write_bytes_per_second"] = json!(measured.write_bytes_per_second.round());
        directory["reads"] = measured.reads.iter().map(point_json).collect();
        directory["threads"] = json!(measured.threads.as_ref().map(point_json));
        directory
    };
    json!({
        "formatted": found.formatted.iter().map(formatted).collect::<Vec<_>>(),
        "fstab": found.fstab.as_ref().map(|(file, backup)| json!({ "file": file, "backup": backup })),
        "directories": found.measured.iter().map(measured).collect::<Vec<_>>(),
        "recommended": advice_json(&found.advice),
        "warnings": found.advice.warnings,
        "conf": conf(&found.advice),
    })
}

fn advice_json(advice: &Advice) -> Vec<Value> {
    let setting =
        |setting: &super::advice::Setting| json!({ "name": setting.name, "value": setting.value, "why": setting.why });
    advice.settings.iter().map(setting).collect()
}

fn point_json(point: &ReadPoint) -> Value {
    let tenth = |value: f64| (value * 10.0).round() / 10.0;
    json!({
        "depth": point.depth,
        "reads_per_second": point.reads_per_second.round(),
        "latency_us": tenth(point.latency_us),
        "latency_p50_us": tenth(point.latency_p50_us),
        "latency_p99_us": tenth(point.latency_p99_us),
        "cpu_us_per_read": tenth(point.cpu_us_per_read),
    })
}

fn disk_json(disk: &Disk) -> Value {
    json!({
        "name": disk.name, "model": disk.model, "bytes": disk.bytes,
        "rotational": disk.rotational, "discard": disk.discard,
    })
}

fn device_json(device: &Device) -> Value {
    json!({
        "device": device.path, "disk": disk_json(&device.disk), "holds": device.holds, "in_use": device.in_use,
    })
}

fn place_json(place: &StorageInfo) -> Value {
    json!({
        "directory": place.dir, "filesystem": place.filesystem, "source": place.source,
        "disk": place.disk.as_ref().map(disk_json), "free_bytes": place.free_bytes,
    })
}
