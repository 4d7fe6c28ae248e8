//! Owns reading a whole RDB file as a sample. Never holds more than a piece of the file.

use std::fs::File;
use std::path::Path;

use rdb::{Item, Reader};

use crate::{Error, Sample};

/// How many items are read between two reports of the progress.
const ITEMS_PER_REPORT: u64 = 4096;

/// Reads all keys of a Redis dump. `report` gets the part of the file that is read, 0 to 1.
pub fn read_dump(path: &Path, report: &dyn Fn(f64)) -> Result<Sample, Error> {
    let about = |error: &dyn std::fmt::Display| {
        Error::new(format!("{}: {error}", path.display()))
            .hint("a complete dump.rdb is needed, as BGSAVE or redis-cli --rdb FILE writes it")
    };
    let file = File::open(path).map_err(|error| about(&error))?;
    let size = file.metadata().map_err(|error| about(&error))?.len().max(1);
    let mut reader = Reader::new(file, true).map_err(|error| about(&error))?;
    let mut sample = Sample::default();
    for number in 0u64.. {
        if number % ITEMS_PER_REPORT == 0 {
            report(reader.offset() as f64 / size as f64);
        }
        match reader.next_item().map_err(|error| about(&error))? {
            Item::Aux(name, value) if name == b"redis-ver" => {
                sample.version = String::from_utf8_lossy(&value).into_owned();
            }
            Item::Key(key) => sample.begin(&key.name),
            Item::Piece(piece) => sample.piece(&piece),
            Item::EndOfKey => sample.end(),
            Item::Aux(..) | Item::Function(_) | Item::Skipped { .. } => {}
            Item::Pages(_) | Item::Dictionary(_) => unreachable!("only a replica asks for them"),
            Item::End => break,
        }
    }
    sample.finish();
    Ok(sample)
}
