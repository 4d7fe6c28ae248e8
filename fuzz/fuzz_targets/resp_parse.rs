//! Any bytes are commands (and replies) or an error, and the result does not depend on how they are cut into reads. The
//! first byte chooses the size of a read and the limits; the rest is the input. `cargo +nightly fuzz run resp_parse --
//! -max_total_time=60`

#![no_main]

use libfuzzer_sys::fuzz_target;
use resp::client::{SkipState, parse_value, skip};
use resp::{Limits, Parsed, Progress, ProtocolError, Source, parse};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, input)) = data.split_first() else {
        return;
    };
    let read_bytes = choice as usize % 32 + 1;
    let limits = match choice / 32 % 3 {
        0 => Limits::DEFAULT,
        1 => Limits::UNAUTHENTICATED,
        // Small enough that short inputs reach the limits.
        _ => Limits { bulk_bytes_max: 20, args_count_max: 4, inline_bytes_max: 30, authenticated: true },
    };
    assert_eq!(serve(input, &limits, read_bytes), serve(input, &limits, input.len().max(1)));
    assert_eq!(skip_all(input, read_bytes), skip_all(input, input.len().max(1)));
    if let (Ok(Some((_, consumed))), Ok(reply)) = (parse_value(input), skip(input)) {
        assert_eq!(Some(consumed), reply.map(|reply| reply.consumed));
    }
});

/// The commands that a server reads from `input`, and the error that ended them.
fn serve(input: &[u8], limits: &Limits, read_bytes: usize) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let (mut commands, mut progress, mut spans) = (Vec::new(), Progress::default(), Vec::new());
    let (mut start, mut end) = (0, 0);
    loop {
        spans.clear();
        match parse(&input[start..end], &mut progress, limits, &mut spans) {
            Ok(Parsed::Complete { consumed, source }) => {
                assert!(consumed > 0 && consumed <= end - start);
                let bytes = if source == Source::Input { &input[start..] } else { progress.unquoted() };
                commands.push(spans.iter().map(|span| span.of(bytes).to_vec()).collect());
                progress.clear_unquoted();
                start += consumed;
            }
            Ok(Parsed::Incomplete { need }) => {
                assert!(need > end - start && spans.is_empty());
                if end == input.len() {
                    return (commands, None);
                }
                end = (end + read_bytes).min(input.len());
            }
            Err(error) => return (commands, Some(error)),
        }
    }
}

/// Where each reply in `input` ends, and the error that ended them.
fn skip_all(input: &[u8], read_bytes: usize) -> (Vec<usize>, Option<resp::client::ProtocolError>) {
    let (mut ends, mut state) = (Vec::new(), SkipState::default());
    let (mut start, mut end) = (0, 0);
    loop {
        match state.skip(&input[start..end]) {
            Ok(Some(reply)) => {
                start += reply.consumed;
                ends.push(start);
            }
            Ok(None) if end == input.len() => return (ends, None),
            Ok(None) => end = (end + read_bytes).min(input.len()),
            Err(error) => return (ends, Some(error)),
        }
    }
}
