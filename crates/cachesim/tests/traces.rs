//! What the store's rule achieves on the traces, at a small number of keys.

use cachesim::policies::{Ideal, SecondAccess, WTinyLfu};
use cachesim::traces::{Capture, Moving, NewPolicy, Published, Recent, Scan, Trace, Zipf};
use cachesim::{Setup, simulate};

const KEYS: usize = 10_000;
const STORE: NewPolicy = &|setup| Box::new(SecondAccess::new(setup));
const W_TINY_LFU: NewPolicy = &|setup| Box::new(WTinyLfu::new(setup));

fn setup(ram: f64) -> Setup {
    Setup::of(KEYS, ram, 1)
}

#[test]
fn the_published_load_is_served_as_by_w_tinylfu_and_centralised_values_are_in_ram_after_one_pass() {
    // At the smallest size the hand begins a second turn, in which it forgets some references, before the pass is over.
    for (ram, least) in [(0.252, 0.92), (0.28, 0.95), (0.308, 0.95)] {
        let trace = Published(setup(ram));
        let (ours, theirs) = (trace.measure(STORE), trace.measure(W_TINY_LFU));
        let centralised = ours[Published::CENTRALISED];
        assert!(centralised >= least, "RAM for {ram}: {centralised} of the centralised values are in RAM");
        let (ours, theirs) = (ours[Published::STEADY], theirs[Published::STEADY]);
        assert!(ours >= theirs - 0.01, "RAM for {ram}: {ours} instead of {theirs}");
    }
}

/// A written value always comes into RAM, which costs more if RAM is small and few keys are likely.
#[test]
fn zipfs_law_is_served_nearly_as_by_w_tinylfu() {
    for (ram, reads, mixed) in [(0.1, 0.015, 0.045), (0.28, 0.01, 0.025)] {
        let trace = Zipf(setup(ram));
        let (ours, theirs) = (trace.measure(STORE), trace.measure(W_TINY_LFU));
        for (column, (ours, theirs)) in trace.columns().iter().zip(ours.iter().zip(theirs)) {
            let tolerance = if column.ends_with("reads") { reads } else { mixed };
            assert!(*ours >= theirs - tolerance, "RAM for {ram}, {column}: {ours} instead of {theirs}");
        }
    }
}

#[test]
fn a_scan_displaces_little() {
    let shares = Scan(setup(0.28)).measure(STORE);
    assert!(shares[Scan::HOT_AFTER] >= shares[Scan::HOT_BEFORE] - 0.03, "{shares:?}");
    assert!(shares[Scan::HITS_AFTER] >= shares[Scan::HITS_BEFORE] - 0.03, "{shares:?}");
}

#[test]
fn a_hot_set_that_moved_comes_into_ram() {
    let shares = Moving(setup(0.28)).measure(STORE);
    assert!(shares[Moving::AFTER_4_READS] >= 0.8, "{shares:?}");
}

#[test]
fn the_ideal_policy_is_a_bound() {
    let traces: [&dyn Trace; 2] = [&Published(setup(0.28)), &Zipf(setup(0.1))];
    for trace in traces {
        let ranking = trace.ranking().expect("its probabilities do not change");
        let ideal = trace.measure(&|setup| Box::new(Ideal::new(setup, &ranking)));
        for new_policy in [STORE, W_TINY_LFU] {
            let shares = trace.measure(new_policy);
            let is_bound = shares.iter().zip(&ideal).all(|(share, bound)| share <= bound);
            assert!(is_bound, "{}: {shares:?}, and the ideal policy has {ideal:?}", trace.title());
        }
    }
}

#[test]
fn a_table_has_a_row_for_each_policy_and_a_seed_repeats_it() {
    let results = simulate(&Recent(Setup::of(2000, 0.1, 3)));
    assert_eq!(results, simulate(&Recent(Setup::of(2000, 0.1, 3))));
    assert_ne!(results, simulate(&Recent(Setup::of(2000, 0.1, 4))));
    let text = results.markdown();
    let rows: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()).collect();
    let policies = ["LRU", "CLOCK, 2 bits", "S3-FIFO", "W-TinyLFU", "CLOCK, second access"];
    assert_eq!(rows, [&["policy", "---"][..], &policies].concat());
    assert!(text.starts_with("**Hit ratio of reads of recent keys: 2,000 keys, RAM for 10.0 %**\n\n"), "{text}");
}

#[test]
fn a_capture_is_a_trace() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("monitor.txt");
    // The first half uses ten keys in turn. In the second half, every other GET is of a key that is not used again.
    let line = |key: String| format!("1700000000.5 [0 127.0.0.1:5] \"GET\" \"{key}\"\n");
    let first = (0..100).map(|number| line(format!("hot:{}", number % 10)));
    let second = (0..50).flat_map(|number| [line(format!("hot:{}", number % 10)), line(format!("once:{number}"))]);
    std::fs::write(&path, first.chain(second).collect::<String>()).expect("written");
    let capture = Capture::read(&path, &[0.5], 1).expect("a capture");
    assert_eq!(capture.columns(), ["RAM for 50.0 %"]);
    assert_eq!(capture.measure(STORE), [0.5]);
    assert!(capture.title().ends_with("200 uses of 60 keys"), "{}", capture.title());
    std::fs::write(&path, "nothing of the kind\n").expect("written");
    assert!(Capture::read(&path, &[0.5], 1).is_err());
}
