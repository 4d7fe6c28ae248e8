//! Any text is rules of a user or an error; what is taken makes the same user again; and whatever the rules, any command
//! line is allowed or not. The first line is the command, the rest are rules.
//! `cargo +nightly fuzz run acl_rules -- -max_total_time=60 -timeout=2`

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (line, rules) = match data.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (&b"get k"[..], data),
    };
    engine::try_rules(rules, line);
});
