//! Owns what the commands that iterate with a cursor share. Never knows what they iterate over.

use crate::cx::Args;
use crate::number::int_or_error;
use crate::stop::{SYNTAX, Stop};
use base::glob;

/// The options of SCAN and the like, after the cursor.
#[derive(Default)]
pub struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    pub count: Option<usize>,
    pub kind: Option<&'a [u8]>,
    pub no_values: bool,
}

/// The option that a command takes besides MATCH and COUNT.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ScanOf {
    Keys,
    Hash,
    Set,
    ZSet,
}

impl<'a> ScanOptions<'a> {
    pub fn parse(args: Args<'a>, from: usize, of: ScanOf) -> Result<ScanOptions<'a>, Stop> {
        let mut options = ScanOptions::default();
        let mut at = from;
        while let Some(word) = args.get(at) {
            let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            match args.get(at + 1) {
                Some(count) if says("count") => match int_or_error(count)? {
                    ..1 => return Err(SYNTAX),
                    count => options.count = Some(usize::try_from(count).unwrap_or(usize::MAX)),
                },
                Some(pattern) if says("match") => options.pattern = Some(pattern),
                Some(kind) if says("type") && of == ScanOf::Keys => options.kind = Some(kind),
                _ if says("novalues") && of == ScanOf::Hash => {
                    options.no_values = true;
                    at += 1;
                    continue;
                }
                _ => return Err(SYNTAX),
            }
            at += 2;
        }
        Ok(options)
    }

    /// For KEYS: a pattern and no other option.
    pub fn of_pattern(pattern: &'a [u8]) -> ScanOptions<'a> {
        ScanOptions { pattern: Some(pattern), ..ScanOptions::default() }
    }

    pub fn has_pattern(&self) -> bool {
        self.pattern.is_some()
    }

    pub fn fits(&self, name: &[u8]) -> bool {
        match self.pattern {
            None | Some(b"*") => true,
            Some(pattern) => glob::matches(pattern, name, false),
        }
    }
}

pub const INVALID_CURSOR: Stop = Stop::error("ERR invalid cursor");
/// COUNT of SCAN and HSCAN if the client gives none.
pub const SCAN_COUNT: usize = 10;
