//! Any text is a script or an error. Whatever a script does, it ends with one reply and within its memory. `cargo
//! +nightly fuzz run lua corpus/lua seeds/lua -- -detect_leaks=0 -dict=seeds/lua.dict -max_total_time=60 -timeout=20`

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| lua::try_script(data));
