//! Owns the file that keeps what a restart costs, as recoveries have shown. Never knows what follows from that.

use crate::estimate::Rates;
use journal::manifest;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Beside the manifest.
fn file(folder: &Path) -> PathBuf {
    folder.join(format!("{}.rates", manifest::NAME))
}

/// Without a file, or with one that is cut or damaged, what is assumed.
pub fn read(folder: &Path) -> Rates {
    fs::read_to_string(file(folder)).ok().and_then(|text| Rates::from_text(&text)).unwrap_or_default()
}

pub fn keep(folder: &Path, rates: Rates) {
    if let Err(error) = fs::write(file(folder), rates.to_text()) {
        tracing::warn!(
            "{}: {error}: the measured speed of a restart is not saved, and the next start will use a default",
            file(folder).display()
        );
    }
}

pub fn forget(folder: &Path) -> io::Result<()> {
    super::remove_if_there(&file(folder))
}
