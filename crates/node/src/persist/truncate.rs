//! Owns giving up the end of a dataset's stream that its new primary does not have: the manifest goes back to the newest checkpoint at or
//! before the place where the two streams part, and says that the journal counts only up to there. The next opening of the dataset brings
//! back exactly that. Never knows a connection, and never changes the dataset in RAM.
//!
//! One write of the manifest is all that changes. A crash before it leaves the whole dataset, a crash behind it the truncated one. Before
//! it, the copy has become another incarnation, and the journal is closed and durable: so its end, from where it goes on, cannot move back.

use super::older;
use crate::database::Database;
use crate::files::writes_in;
use crate::progress::DurableState;
use journal::View;
use journal::manifest::{self, Manifest, TRUNCATIONS_MAX, Truncation};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const BUSY_STEP: Duration = Duration::from_millis(20);
/// A thread of the journal may make a spare file while the journal is read.
const LOOKS: u32 = 3;

impl Database {
    /// The dataset on its files is not the one that is open here: the database is to be closed and opened again.
    pub fn must_reopen(&self) -> bool {
        self.files.journal.must_reopen.load(Relaxed)
    }

    /// Gives up everything behind this offset of the stream, where the new primary's stream parts from it. `renew` is called before anything
    /// changes. Afterwards, the database must be opened again. An error: it is as it was, or its journal is closed. A checkpoint that is being
    /// written is waited for, until `is_over`.
    ///
    /// Nothing is added to the stream meanwhile.
    pub(crate) fn truncate(
        &self,
        shared: u64,
        renew: &dyn Fn() -> Result<(), String>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Truncation, String> {
        let _busy = loop {
            if let Some(busy) = self.files.busy.try_lock_for(BUSY_STEP) {
                break busy;
            }
            if is_over() {
                return Err("it has another role meanwhile".to_owned());
            }
        };
        let journal = &self.files.journal;
        let kept = journal.kept.lock().clone().ok_or("it has no journal")?;
        let position = kept.log.position();
        kept.log.make_durable(position)?;
        let manifest = self.plan_truncation(&kept, shared, position)?;
        renew()?;
        self.journaling().detach();
        kept.log.close().map_err(|error| format!("its journal cannot be closed: {error}"))?;
        {
            let _naming = journal.naming.lock();
            manifest::write(&kept.folder, Some(&manifest))?;
            // From now on nobody writes a manifest.
            *journal.kept.lock() = None;
        }
        journal.must_reopen.store(true, Relaxed);
        // It does not count any more.
        if let Err(why) = older::remove(&kept.folder) {
            tracing::warn!("{why}");
        }
        Ok(*manifest.truncations.last().expect("the plan has added one"))
    }

    /// The manifest of the truncated dataset.
    fn plan_truncation(&self, kept: &DurableState, shared: u64, position: u64) -> Result<Manifest, String> {
        if self.archives(kept.manifest.log_id) {
            return Err("its journal is archived for backups".to_owned());
        }
        let mark = self.journaling().stream.mark().ok_or("it has no stream")?;
        let is_before = |manifest: &&Manifest| manifest.stream.is_some_and(|mark| mark.offset <= shared);
        let base = [&kept.manifest].into_iter().chain(&kept.older).find(is_before);
        let base = base.ok_or("it has no checkpoint that is so old")?;
        let from = base.stream.expect("it was found by it");
        if base.truncations.len() == TRUNCATIONS_MAX {
            return Err("too much was given up since its last checkpoint".to_owned());
        }
        let (mut offset, mut is_border, mut writes) = (from.offset, from.offset == shared, Some(0));
        self.look_at(kept, base)?
            .records(&mut |_, record| {
                if offset >= shared {
                    writes = writes.zip(writes_in(record.resp)).map(|(sum, more)| sum + more);
                }
                offset += record.resp.len() as u64;
                is_border |= offset == shared;
                ControlFlow::Continue(())
            })
            .map_err(|error| error.to_string())?;
        if offset != mark.offset {
            return Err(format!(
                "its journal leads to byte {offset} of the stream, which ends at byte {}",
                mark.offset
            ));
        }
        if !is_border {
            return Err("no record of its journal ends there".to_owned());
        }
        let writes = writes.ok_or("a record of its journal is not a valid command")?;
        let truncation = Truncation { offset: shared, position, bytes: mark.offset - shared, writes };
        let second = mark.second.map(|(id, to)| (id, to.min(shared)));
        let mut manifest = base.clone();
        // The stream may have got another id since the checkpoint: both ids name its place.
        manifest.stream = Some(journal::Mark { id: mark.id, second, ..from });
        manifest.truncations.push(truncation);
        Ok(manifest)
    }

    fn look_at(&self, kept: &DurableState, base: &Manifest) -> Result<View, String> {
        let mut why = String::new();
        for _ in 0..LOOKS {
            match View::of(&kept.folder, base) {
                Ok(view) => return Ok(view),
                Err(error) => why = error.to_string(),
            }
        }
        Err(why)
    }
}
