//! Any text is a user's rules or an error. Accepted rules, when shown and set again, give the same user. With any
//! rules, any command line is either allowed or refused. The first line is the command, the rest are rules. `cargo
//! +nightly fuzz run acl_rules -- -max_total_time=60 -timeout=2`

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (line, rules) = match data.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (&b"get k"[..], data),
    };
    engine::try_rules(rules, line);
});
