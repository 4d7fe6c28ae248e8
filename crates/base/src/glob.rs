//! Owns the patterns of KEYS, SCAN and CONFIG GET. Never knows what the matched text means.
//!
//! `*` fits any bytes, `?` one byte, `[abc]`, `[a-z]` and `[^a]` one byte of a class, `\x` the byte x itself. Redis's
//! special cases are kept: a class that is not closed ends with the pattern; a range may be reversed and compares signed
//! bytes; an escaped byte in a class keeps its case; only the empty pattern fits the empty string.
//!
//! The matcher backtracks only to the last `*`. So the time is at most pattern length × text length, and usually their sum.

/// Whether `pattern` fits the whole `text`. `any_case` ignores the case of ASCII letters.
pub fn matches(pattern: &[u8], text: &[u8], any_case: bool) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut p, mut t) = (0, 0);
    // Where to resume if the rest does not fit: (pattern position after the last star, text position).
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            if p == pattern.len() {
                return true;
            }
            retry = Some((p, t));
            continue;
        }
        let fits = match text.get(t) {
            Some(&byte) if p < pattern.len() => one(&pattern[p..], byte, any_case),
            Some(_) => None,
            None if p == pattern.len() => return true,
            // The text is used up but the pattern is not. A longer star would leave even less text.
            None => return false,
        };
        match (fits, retry) {
            (Some(length), _) => (p, t) = (p + length, t + 1),
            (None, Some((after_star, from))) => {
                (p, t) = (after_star, from + 1);
                retry = Some((after_star, from + 1));
            }
            (None, None) => return false,
        }
    }
}

/// If the pattern's first element fits the byte, the length of that element.
#[inline]
fn one(pattern: &[u8], byte: u8, any_case: bool) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => {
            let (fits, length) = class_fits(class, byte, any_case);
            fits.then_some(1 + length)
        }
        [b'\\', escaped, ..] => same(*escaped, byte, any_case).then_some(2),
        [plain, ..] => same(*plain, byte, any_case).then_some(1),
        [] => None,
    }
}

fn same(a: u8, b: u8, any_case: bool) -> bool {
    a == b || (any_case && a.eq_ignore_ascii_case(&b))
}

/// `class` starts after the `[`. Returns whether the class contains the byte, and the length of the class including the `]`.
fn class_fits(class: &[u8], byte: u8, any_case: bool) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match &class[at..] {
            [] => break,
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [from, b'-', to, ..] => {
                found |= range_fits(*from, *to, byte, any_case);
                at += 3;
            }
            [plain, ..] => {
                found |= same(*plain, byte, any_case);
                at += 1;
            }
        }
    }
    (found != negated, at)
}

fn range_fits(from: u8, to: u8, byte: u8, any_case: bool) -> bool {
    // C's `char` is signed on most machines that run Redis. Redis first orders the ends of the range and then folds their
    // case.
    let fold = |byte: u8| if any_case { byte.to_ascii_lowercase() as i8 } else { byte as i8 };
    let (low, high) = if from as i8 <= to as i8 { (from, to) } else { (to, from) };
    (fold(low)..=fold(high)).contains(&fold(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, text: &str) -> bool {
        matches(pattern.as_bytes(), text.as_bytes(), false)
    }

    #[test]
    fn elements() {
        for (pattern, text) in [
            ("h?llo", "hello"),
            ("h*llo", "hllo"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-b]llo", "hbllo"),
            ("*", "x"),
            ("**", "x"),
            ("a**b", "ab"),
            ("\\*", "*"),
            ("a\\", "a\\"),
            ("[", "["),
            ("[a", "a"),
            ("[z-a]", "m"),
            ("[\\]]", "]"),
            ("[a-]", "_"),
            ("a*", "a"),
            ("*a*b*", "xaxbx"),
            ("[^]a", "xa"),
        ] {
            let expected = !matches!(pattern, "[");
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
        for (pattern, text) in [
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            ("a", "ab"),
            ("ab", "a"),
            ("*a", "b"),
            ("[]", "]"),
            ("?", ""),
            ("*", ""),
            ("\\*", "x"),
            ("a*b", "abc"),
            ("[^a-c]", "b"),
            ("[a-]", "-"),
        ] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
        assert!(fits("", ""));
    }

    #[test]
    fn case_is_folded_on_demand() {
        assert!(matches(b"MAXmem*", b"maxmemory", true));
        assert!(matches(b"[A-C]x", b"bX", true));
        assert!(!matches(b"[A-C]x", b"bx", false));
        assert!(!matches(b"[\\A]", b"a", true), "an escaped byte in a class keeps its case");
    }

    #[test]
    fn hostile_patterns_take_bounded_time() {
        let text = "a".repeat(20_000);
        assert!(!fits(&format!("{}b", "a*".repeat(1000)), &text));
        assert!(!fits(&format!("{}b", "*a".repeat(1000)), &text));
        assert!(!fits(&"[a".repeat(5000), &text));
        assert!(fits(&"*".repeat(10_000), &text));
    }

    /// The definition of matching. Takes exponential time.
    fn slow(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], _) => text.is_empty(),
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|skip| slow(rest, &text[skip..])),
            (_, []) => false,
            (_, [byte, after @ ..]) => one(pattern, *byte, false).is_some_and(|length| slow(&pattern[length..], after)),
        }
    }

    #[test]
    fn matches_agrees_with_the_definition() {
        // Try every pattern of up to six of these bytes with every text of up to four letters.
        let bytes = b"ab*?";
        let words = |lengths: std::ops::RangeInclusive<u32>, letters: usize| {
            lengths
                .flat_map(move |length| (0..letters.pow(length)).map(move |n| (n, length)))
                .map(move |(n, length)| (0..length).map(|at| bytes[n / letters.pow(at) % letters]).collect::<Vec<u8>>())
        };
        for pattern in words(0..=6, 4) {
            for text in words(1..=4, 2) {
                assert_eq!(matches(&pattern, &text, false), slow(&pattern, &text), "{pattern:?} {text:?}");
            }
        }
    }
}
