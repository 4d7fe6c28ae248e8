//! Owns what a store holds, as text: every key with its value, whatever its encoding and its tier. Never changes the store, not
//! even its tiers.

use super::Harness;
use std::collections::BTreeMap;
use std::io::Cursor as Bytes;
use store::digest::{DatasetDigest, Digester};
use store::{DumpError, Dumper, Kind, PartReader, ReadError, Value, Visited};
use value::walk::{Cursor, walk_inline};

/// Every key of a snapshot with its value and expiry, as text.
#[derive(Default)]
pub struct Text(pub BTreeMap<String, String>);

impl Dumper for Text {
    fn key(&mut self, key: &Visited<'_>, value: Value<'_>, parts: &mut PartReader<'_>) -> Result<(), DumpError> {
        let mut elements = Vec::new();
        match value {
            Value::Inline(kind, bytes) => {
                walk_inline(kind, bytes, &mut |element| elements.push(format!("{element:?}")))
            }
            Value::Boxed(value) => {
                let mut cursor = Cursor::default();
                while let Some(stretch) = value.stretch(cursor) {
                    let bytes = stretch.absent.map(|part| parts.read(value, part)).transpose()?;
                    let walked = value.walk(cursor, bytes.as_deref(), &mut |element| {
                        elements.push(format!("{element:?}"));
                    });
                    walked.map_err(|_| ReadError::Missing)?;
                    cursor = stretch.next;
                }
            }
        }
        if matches!(key.kind, Kind::Hash | Kind::Set) {
            elements.sort();
        }
        let name = format!("{} {}", key.db, key.name.escape_ascii());
        let before = self.0.insert(name.clone(), format!("{:?} {:?} {elements:?}", key.kind, key.expiry));
        assert_eq!(before, None, "{name} comes twice");
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Harness {
    /// Also what has expired and was not yet removed.
    pub fn text(&self) -> Text {
        self.walked(Text::default())
    }

    /// What has expired by `now_ms` does not count.
    pub fn digest(&self, now_ms: u64) -> DatasetDigest {
        self.walked(Digester::new(now_ms)).finish()
    }

    fn walked<D: Dumper>(&self, dumper: D) -> D {
        let snapshot = self.store.cut(0, || Ok(dumper)).expect("no other snapshot").expect("it begins");
        snapshot.run(&mut Bytes::new(Vec::new()), &mut || Ok(())).expect("it is complete")
    }
}
