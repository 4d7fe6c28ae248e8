//! Any pattern fits any text or does not, in at most pattern × text steps; slower matching runs into the timeout. The
//! first byte gives the length of the pattern and whether case counts. `cargo +nightly fuzz run glob --
//! -max_total_time=60 -timeout=2 -max_len=65536`

#![no_main]

use base::glob::matches;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else { return };
    let any_case = choice & 1 == 1;
    let (pattern, text) = rest.split_at(rest.len() * usize::from(choice >> 1) / 128);
    let fits = matches(pattern, text, any_case);
    assert!(!fits || any_case || matches(pattern, text, true) || pattern.contains(&b'['));
    if text.is_empty() {
        return;
    }
    // A text, escaped as a pattern, fits itself.
    let escaped: Vec<u8> = text.iter().flat_map(|&byte| [b'\\', byte]).collect();
    assert!(matches(&escaped, text, any_case));
    let anywhere = [b"*", &escaped[..], b"*"].concat();
    assert!(matches(&anywhere, &[b"before", text, b"behind"].concat(), any_case));
    // A star before a pattern skips anything.
    if fits {
        assert!(matches(&[b"*", pattern].concat(), &[b"before", text].concat(), any_case));
    }
});
