//! Owns which copy goes on when an operator decides, because the cluster itself may not: no copy has everything that was acknowledged, or the
//! node of the one that has it is gone for good. Never knows how the copies are asked, or what the operator was told.
//!
//! The record that is named here is safe as any other one: it takes the next epoch, it is written only in place of the record that was looked
//! at, and no copy is named that has promised more. What the copies hold besides is given up on the ordinary way, when they follow. Only
//! what the named copy does not have is lost.

use super::controller::{Choice, Report, choose};
use crate::ids::{CopyNumber, Epoch, NodeId};
use crate::records::{Member, ShardRecord, Unknown};

/// Why nobody is named, though an operator has asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undecided {
    /// The shard has never served: its primary begins by itself.
    NotBegun,
    /// The primary serves: this copy hears it.
    IsServed(CopyNumber),
    /// This copy has everything that was acknowledged: the cluster names it by itself, or it goes on by itself.
    HasEverything(CopyNumber),
    /// This copy has promised more, so there is a newer record.
    KnowsMore(CopyNumber),
    /// These copies have not said what they have, and the operator has not said to go on without them.
    Silent(Vec<CopyNumber>),
    NobodyAnswers,
}

/// How an operator's word leaves a shard.
#[derive(Clone, Debug, PartialEq)]
pub struct Survivor {
    /// The record to write, if the one that was given is still there.
    pub next: ShardRecord,
    /// It has everything that the lost primary had acknowledged to the in-sync set.
    pub is_in_sync: bool,
}

/// The record of a shard that nobody can serve: the copy that has most is its primary, as the dataset that it has now, and alone in the set.
/// `goes_without`: the operator gives up what only the copy on this node has, if it does not answer. `is_avoided`: see [`choose`].
pub fn recover(
    record: &ShardRecord,
    reports: &[Report],
    goes_without: impl Fn(NodeId) -> bool,
    is_avoided: impl Fn(CopyNumber) -> bool,
) -> Result<ShardRecord, Undecided> {
    if record.in_sync.is_empty() {
        return Err(Undecided::NotBegun);
    }
    if let Some(hears) = reports.iter().find(|report| report.hears_a_lease) {
        return Err(Undecided::IsServed(hears.copy));
    }
    if let Some(has) = reports.iter().find(|report| record.names(report.copy, report.incarnation)) {
        return Err(Undecided::HasEverything(has.copy));
    }
    most_advanced(record, reports, goes_without, is_avoided)
}

/// The record of a shard whose primary's node is lost for good: as after any failover if a copy in sync answers, else as [`recover`] has it.
pub fn survive(
    record: &ShardRecord,
    lost: NodeId,
    reports: &[Report],
    goes_without: impl Fn(NodeId) -> bool,
    is_avoided: impl Fn(CopyNumber) -> bool,
) -> Result<Survivor, Undecided> {
    let reports: Vec<Report> =
        reports.iter().filter(|report| record.node_of(report.copy) != Some(lost)).copied().collect();
    let goes_without = |node| node == lost || goes_without(node);
    let (next, is_in_sync) = match choose(record, &reports, &is_avoided) {
        Choice::Name(next) => (next, true),
        Choice::IsServed(copy) => return Err(Undecided::IsServed(copy)),
        Choice::NobodyKnown => (most_advanced(record, &reports, goes_without, is_avoided)?, false),
    };
    Ok(Survivor { next: next.without(lost), is_in_sync })
}

/// A newer stream counts more than a longer one: an old primary may have more bytes, of which the newer primary knows nothing. Of equal copies, the
/// recorded primary goes on.
fn most_advanced(
    record: &ShardRecord,
    reports: &[Report],
    goes_without: impl Fn(NodeId) -> bool,
    is_avoided: impl Fn(CopyNumber) -> bool,
) -> Result<ShardRecord, Undecided> {
    let answers = |copy| reports.iter().any(|report| report.copy == copy);
    let silent = record.assignments.iter().filter(|assigned| !answers(assigned.copy) && !goes_without(assigned.node));
    let silent: Vec<CopyNumber> = silent.map(|assigned| assigned.copy).collect();
    if !silent.is_empty() {
        return Err(Undecided::Silent(silent));
    }
    if let Some(knows) = reports.iter().find(|report| report.promised > record.epoch) {
        return Err(Undecided::KnowsMore(knows.copy));
    }
    let rank = |report: &&Report| {
        (stream_of(report, reports), report.received, !is_avoided(report.copy), report.copy == record.primary)
    };
    let best = reports.iter().max_by_key(rank).ok_or(Undecided::NobodyAnswers)?;
    let member = Member { copy: best.copy, incarnation: best.incarnation, unknown: Unknown::new() };
    let mut next = record.clone();
    next.epoch = record.epoch.next();
    next.primary = best.copy;
    next.in_sync = vec![member];
    Ok(next)
}

/// In the stream of which epoch a copy's last byte is. A copy that was far behind is given older bytes by a newer primary, and takes them for
/// this one's. Another copy knows better where that one's stream began: its members had all that was before.
fn stream_of(report: &Report, reports: &[Report]) -> Option<Epoch> {
    let known = reports.iter().filter_map(|other| other.began).filter(|began| Some(began.epoch) == report.stream);
    match known.max_by_key(|began| began.at) {
        Some(began) if report.received <= began.at => Some(began.before),
        _ => report.stream,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::Began;
    use crate::ids::Incarnation;
    use crate::records::Assignment;

    fn epoch(number: u64) -> Epoch {
        Epoch(number.try_into().unwrap())
    }

    fn node(copy: u32) -> NodeId {
        NodeId([copy as u8 + 1; 20])
    }

    fn member(copy: u32) -> Member {
        Member { copy: CopyNumber(copy), incarnation: Incarnation([copy as u8; 8]), unknown: Unknown::new() }
    }

    /// In epoch 4: copies 0 to 2, of which 0, the primary, and 1 are in sync.
    fn record() -> ShardRecord {
        let copies = (0..3).map(|copy| Assignment::new(CopyNumber(copy), node(copy)));
        let mut record = ShardRecord::new(CopyNumber(0), copies.collect());
        (record.epoch, record.in_sync) = (epoch(4), vec![member(0), member(1)]);
        record
    }

    /// Of a copy whose machine has lost power: another dataset than the recorded one.
    fn anew(copy: u32, stream: Option<u64>, received: u64) -> Report {
        Report {
            copy: CopyNumber(copy),
            incarnation: Incarnation([copy as u8 + 100; 8]),
            promised: epoch(4),
            received,
            stream: stream.map(epoch),
            began: None,
            ended: None,
            hears_a_lease: false,
        }
    }

    fn taken(reports: &[Report]) -> CopyNumber {
        let next = recover(&record(), reports, |_| false, |_| false).unwrap();
        assert_eq!((next.epoch, next.in_sync.len(), next.assignments.len()), (epoch(5), 1, 3));
        assert_eq!(next.in_sync[0].copy, next.primary);
        let now = reports.iter().find(|report| report.copy == next.primary).unwrap().incarnation;
        assert_eq!(next.in_sync[0].incarnation, now, "it is named as the dataset that it has");
        next.primary
    }

    #[test]
    fn the_copy_with_most_of_the_newest_stream_goes_on() {
        assert_eq!(taken(&[anew(0, Some(4), 90), anew(1, Some(4), 95), anew(2, Some(4), 94)]), CopyNumber(1));
        // An old primary has more, which the newer one has never had.
        assert_eq!(taken(&[anew(0, Some(4), 90), anew(1, Some(4), 80), anew(2, Some(3), 100)]), CopyNumber(0));
        // A copy to which a dataset was being sent has none of the shard's.
        assert_eq!(taken(&[anew(0, None, 0), anew(1, None, 100), anew(2, Some(1), 5)]), CopyNumber(2));
        // Copy 1 was given the whole stream by the primary of epoch 4, and not synchronised behind byte 50.
        let began = Some(Began { epoch: epoch(4), at: 80, before: epoch(3) });
        let reports =
            [Report { began, ..anew(0, Some(3), 80) }, anew(1, Some(4), 50), Report { began, ..anew(2, Some(3), 75) }];
        assert_eq!(taken(&reports), CopyNumber(0));
        // Of equal ones, the primary.
        for copy in 0..3 {
            let mut record = record();
            (record.primary, record.in_sync) = (CopyNumber(copy), vec![member(copy)]);
            let equal = [anew(0, Some(4), 90), anew(1, Some(4), 90), anew(2, Some(4), 90)];
            assert_eq!(recover(&record, &equal, |_| false, |_| false).unwrap().primary, CopyNumber(copy));
            let other = recover(&record, &equal, |_| false, |avoided| avoided == CopyNumber(copy)).unwrap().primary;
            assert_ne!(other, CopyNumber(copy), "unless it is to go");
        }
        let more = [anew(0, Some(4), 91), anew(1, Some(4), 90), anew(2, Some(4), 90)];
        assert_eq!(recover(&record(), &more, |_| false, |copy| copy == CopyNumber(0)).unwrap().primary, CopyNumber(0));
    }

    #[test]
    fn nobody_is_named_while_the_cluster_can_decide_by_itself() {
        let all = || vec![anew(0, Some(4), 90), anew(1, Some(4), 95), anew(2, Some(4), 94)];
        let asked = |record: &ShardRecord, reports: &[Report]| {
            [false, true].map(|goes_without| recover(record, reports, |_| goes_without, |_| false))
        };
        let never = ShardRecord { in_sync: Vec::new(), ..record() };
        assert_eq!(asked(&never, &all()), [(); 2].map(|()| Err(Undecided::NotBegun)));
        for copy in [0, 1] {
            let mut reports = all();
            reports[copy].incarnation = member(copy as u32).incarnation;
            assert_eq!(
                asked(&record(), &reports),
                [(); 2].map(|()| Err(Undecided::HasEverything(CopyNumber(copy as u32))))
            );
        }
        for copy in 0..3 {
            let mut reports = all();
            reports[copy].hears_a_lease = true;
            assert_eq!(asked(&record(), &reports), [(); 2].map(|()| Err(Undecided::IsServed(CopyNumber(copy as u32)))));
            let mut reports = all();
            reports[copy].promised = epoch(5);
            assert_eq!(
                asked(&record(), &reports),
                [(); 2].map(|()| Err(Undecided::KnowsMore(CopyNumber(copy as u32))))
            );
        }
    }

    #[test]
    fn copies_that_do_not_answer_are_waited_for_unless_the_operator_goes_on_without_them() {
        let some = [anew(0, Some(4), 90)];
        let silent = Undecided::Silent(vec![CopyNumber(1), CopyNumber(2)]);
        assert_eq!(recover(&record(), &some, |_| false, |_| false), Err(silent));
        let next = recover(&record(), &some, |_| true, |_| false).unwrap();
        assert_eq!((next.primary, next.in_sync.len()), (CopyNumber(0), 1));
        assert_eq!(recover(&record(), &[], |_| true, |_| false), Err(Undecided::NobodyAnswers));
    }

    #[test]
    fn without_a_lost_node_a_copy_in_sync_goes_on_or_the_most_advanced_one() {
        let survives =
            |reports: &[Report]| survive(&record(), node(0), reports, |node| node == self::node(2), |_| false);
        let mut in_sync = anew(1, Some(4), 90);
        in_sync.incarnation = member(1).incarnation;
        // Copy 2 has more, and is not known to have everything.
        let Survivor { next, is_in_sync } = survives(&[in_sync, anew(2, Some(4), 95)]).unwrap();
        assert_eq!(
            (next.primary, next.epoch, next.in_sync, is_in_sync),
            (CopyNumber(1), epoch(5), vec![member(1)], true)
        );
        assert_eq!(next.assignments.len(), 2);
        // Copy 1 is recorded, and not with the dataset that it has now.
        for (most, less) in [(1, 2), (2, 1)] {
            let reports = [anew(0, Some(4), 99), anew(most, Some(4), 95), anew(less, Some(4), 90)];
            let Survivor { next, is_in_sync } = survives(&reports).unwrap();
            assert_eq!((next.primary, next.epoch, is_in_sync), (CopyNumber(most), epoch(5), false));
            assert_eq!(next.in_sync[0].incarnation, reports[1].incarnation);
            assert_eq!((next.in_sync.len(), next.assignments.len()), (1, 2));
        }
        let silent = Undecided::Silent(vec![CopyNumber(1)]);
        assert_eq!(survives(&[anew(0, Some(4), 99), anew(2, Some(4), 95)]), Err(silent), "it may have more");
        let none = survive(&record(), node(0), &[anew(0, Some(4), 99)], |_| true, |_| false);
        assert_eq!(none, Err(Undecided::NobodyAnswers), "the lost node's own copy does not count");
        let hears = Report { hears_a_lease: true, ..anew(2, Some(4), 90) };
        assert_eq!(survives(&[hears, anew(1, Some(4), 90)]), Err(Undecided::IsServed(CopyNumber(2))));
    }
}
