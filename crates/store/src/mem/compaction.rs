//! Owns the state of the rounds that move the leaves of the index together, and when a round begins. `lane/compact` does the work, and the
//! allocator knows which leaves must move ([`leaf_memory`](super::leaf_memory)).

/// A round begins when the allocator's pages have so much more free places than after the last round.
const GAPS_BYTES: u64 = 8 << 20;
/// Another round follows at once if more than one leaf in so many has moved.
const MOVED_PART: u64 = 16;

/// The state of the rounds over all leaves.
#[derive(Debug, Default)]
pub struct Compaction {
    /// Where the round is. `None`: no round is running.
    pub at: Option<Place>,
    /// In this round, the leaves that were visited, and those that were moved.
    pub visited: u64,
    pub moved: u64,
    /// The free places after the last round, or fewer since.
    gaps: u64,
    /// What the free places were when they were last told.
    gaps_now: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Place {
    pub stripe: usize,
    pub table_id: u32,
    pub high: u64,
}

impl Compaction {
    pub fn tell(&mut self, gaps: u64) {
        self.gaps_now = gaps;
        self.gaps = self.gaps.min(gaps);
        if self.at.is_none() && gaps >= self.gaps + GAPS_BYTES {
            self.begin();
        }
    }

    fn begin(&mut self) {
        (self.at, self.visited, self.moved) = (Some(Place::default()), 0, 0);
    }

    pub fn round_ends(&mut self) {
        self.gaps = self.gaps_now;
        match self.moved * MOVED_PART > self.visited {
            true => self.begin(),
            false => self.at = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn a_round_begins_when_gaps_have_grown_and_goes_on_while_it_gains() {
        let mut compaction = Compaction::default();
        compaction.tell(7 * MB);
        assert!(compaction.at.is_none());
        compaction.tell(8 * MB);
        assert!(compaction.at.is_some());
        compaction.tell(5 * MB);
        (compaction.visited, compaction.moved) = (1_600, 101);
        compaction.round_ends();
        assert!(compaction.at.is_some());
        (compaction.visited, compaction.moved) = (1_600, 100);
        compaction.round_ends();
        assert!(compaction.at.is_none());
        // From here on they must grow again.
        compaction.tell(12 * MB);
        assert!(compaction.at.is_none());
        compaction.tell(2 * MB);
        compaction.tell(10 * MB);
        assert!(compaction.at.is_some());
    }
}
