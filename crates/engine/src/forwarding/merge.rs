//! Owns how the replies of several shards become one. Never knows where they come from.

use crate::routes::Merge;
use resp::client::{Kind, SkipState};
use resp::extent::Extent;
use resp::{Out, Proto};

/// A shard's reply.
#[derive(Default)]
pub struct PartReply {
    pub bytes: Vec<u8>,
    /// Of a split command: the keys that the shard owns, by their positions among all keys.
    pub places: Vec<u32>,
}

const NO_REPLY: &str = "ERR a shard has given a reply that was not expected";

/// The texts of INFO that have come.
pub fn texts(parts: &[PartReply]) -> Vec<String> {
    let text = |part: &PartReply| match kind(&part.bytes)? {
        Kind::Bulk(text) | Kind::Verbatim { text, .. } => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    };
    parts.iter().filter_map(text).collect()
}

/// Appends the merged reply. `random` chooses among equals.
pub fn merge(how: Merge, parts: &[PartReply], random: impl FnOnce() -> u64, proto: Proto, output: &mut Vec<u8>) {
    let is_error = |part: &&PartReply| part.bytes.first() == Some(&b'-');
    if how == Merge::OneSucceeds {
        let has_any = |part: &&PartReply| !part.bytes.starts_with(b"-NOTBUSY");
        let told = parts.iter().find(|part| !is_error(part)).or_else(|| parts.iter().find(has_any));
        if let Some(part) = told {
            return output.extend_from_slice(&part.bytes);
        }
    }
    if let Some(error) = parts.iter().find(is_error) {
        return output.extend_from_slice(&error.bytes);
    }
    let from = output.len();
    let merged = match how {
        Merge::First | Merge::OneSucceeds => parts.first().map(|part| output.extend_from_slice(&part.bytes)),
        Merge::Sum => sum(parts, proto, output),
        Merge::Min => min(parts, proto, output),
        Merge::Chain => chain(parts, proto, output),
        Merge::InOrder => in_order(parts, proto, output),
        Merge::Any => any(parts, random(), output),
        Merge::Xor => xor(parts, output),
        // The proxy adds its own: `settle` does it.
        Merge::Info => None,
    };
    if merged.is_none() {
        output.truncate(from);
        Out::new(output, proto).error(NO_REPLY);
    }
}

fn kind(bytes: &[u8]) -> Option<Kind<'_>> {
    Some(SkipState::default().skip(bytes).ok()??.kind)
}

fn int(bytes: &[u8]) -> Option<i64> {
    match kind(bytes)? {
        Kind::Int(value) => Some(value),
        _ => None,
    }
}

/// The elements of an array, each in its bytes.
fn elements(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let Kind::Array { count } = kind(bytes)? else { return None };
    let mut rest = &bytes[bytes.iter().position(|&byte| byte == b'\n')? + 1..];
    let mut elements = Vec::with_capacity(count);
    for _ in 0..count {
        let (end, is_complete) = Extent::default().advance(rest).ok()?;
        if !is_complete {
            return None;
        }
        let (element, behind) = rest.split_at(end);
        elements.push(element);
        rest = behind;
    }
    Some(elements)
}

fn sum(parts: &[PartReply], proto: Proto, output: &mut Vec<u8>) -> Option<()> {
    let sum = parts.iter().try_fold(0i64, |sum, part| sum.checked_add(int(&part.bytes)?))?;
    Out::new(output, proto).int(sum);
    Some(())
}

fn min(parts: &[PartReply], proto: Proto, output: &mut Vec<u8>) -> Option<()> {
    let mut out = Out::new(output, proto);
    if parts.iter().all(|part| part.bytes.first() == Some(&b':')) {
        let values: Option<Vec<i64>> = parts.iter().map(|part| int(&part.bytes)).collect();
        out.int(values?.into_iter().min()?);
        return Some(());
    }
    let all: Option<Vec<Vec<&[u8]>>> = parts.iter().map(|part| elements(&part.bytes)).collect();
    let all = all?;
    let count = all.iter().map(Vec::len).min()?;
    out.array(count);
    for at in 0..count {
        let values: Option<Vec<i64>> = all.iter().map(|elements| int(elements[at])).collect();
        out.int(values?.into_iter().min()?);
    }
    Some(())
}

fn chain(parts: &[PartReply], proto: Proto, output: &mut Vec<u8>) -> Option<()> {
    let mut count = 0;
    for part in parts {
        let Kind::Array { count: more } = kind(&part.bytes)? else { return None };
        count += more;
    }
    Out::new(output, proto).array(count);
    for part in parts {
        output.extend_from_slice(&part.bytes[part.bytes.iter().position(|&byte| byte == b'\n')? + 1..]);
    }
    Some(())
}

fn in_order(parts: &[PartReply], proto: Proto, output: &mut Vec<u8>) -> Option<()> {
    let mut all: Vec<(u32, &[u8])> = Vec::new();
    for part in parts {
        let elements = elements(&part.bytes)?;
        if elements.len() != part.places.len() {
            return None;
        }
        all.extend(part.places.iter().copied().zip(elements));
    }
    all.sort_unstable_by_key(|&(place, _)| place);
    Out::new(output, proto).array(all.len());
    all.iter().for_each(|(_, element)| output.extend_from_slice(element));
    Some(())
}

fn any(parts: &[PartReply], random: u64, output: &mut Vec<u8>) -> Option<()> {
    let is_there = |part: &&PartReply| !matches!(kind(&part.bytes), Some(Kind::Null));
    let there = parts.iter().filter(is_there).count() as u64;
    let chosen = match there {
        0 => parts.first()?,
        _ => parts.iter().filter(is_there).nth((random % there) as usize)?,
    };
    output.extend_from_slice(&chosen.bytes);
    Some(())
}

fn xor(parts: &[PartReply], output: &mut Vec<u8>) -> Option<()> {
    let digest = |part: &PartReply| match kind(&part.bytes)? {
        Kind::Simple(text) if text.len() == 40 => {
            let (high, low) = std::str::from_utf8(text).ok()?.split_at(8);
            Some((u32::from_str_radix(high, 16).ok()?, u128::from_str_radix(low, 16).ok()?))
        }
        _ => None,
    };
    let xor = parts.iter().try_fold((0, 0), |xor, part| digest(part).map(|of| (xor.0 ^ of.0, xor.1 ^ of.1)))?;
    output.extend_from_slice(format!("+{:08x}{:032x}\r\n", xor.0, xor.1).as_bytes());
    Some(())
}

/// A shard's reply to SCAN, with another cursor in it.
pub fn with_cursor(reply: &[u8], next: impl Fn(u64) -> u64, proto: Proto, output: &mut Vec<u8>) -> Option<()> {
    let elements = elements(reply)?;
    let &[cursor, keys] = &*elements else { return None };
    let Some(Kind::Bulk(cursor)) = kind(cursor) else { return None };
    let cursor = std::str::from_utf8(cursor).ok()?.parse().ok()?;
    let mut out = Out::new(output, proto);
    out.array(2);
    out.bulk(next(cursor).to_string().as_bytes());
    output.extend_from_slice(keys);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(how: Merge, replies: &[&str]) -> String {
        let parts: Vec<PartReply> =
            replies.iter().map(|reply| PartReply { bytes: reply.as_bytes().to_vec(), places: Vec::new() }).collect();
        let mut output = Vec::new();
        merge(how, &parts, || 1, Proto::Resp2, &mut output);
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn replies_become_one() {
        assert_eq!(merged(Merge::Sum, &[":1\r\n", ":0\r\n", ":41\r\n"]), ":42\r\n");
        assert_eq!(merged(Merge::First, &["+OK\r\n", "+OK\r\n"]), "+OK\r\n");
        assert_eq!(merged(Merge::First, &["+OK\r\n", "-OOM x\r\n"]), "-OOM x\r\n");
        assert_eq!(
            merged(Merge::Chain, &["*1\r\n$1\r\na\r\n", "*0\r\n", "*1\r\n$1\r\nb\r\n"]),
            "*2\r\n$1\r\na\r\n$1\r\nb\r\n"
        );
        assert_eq!(merged(Merge::Min, &[":3\r\n", ":2\r\n"]), ":2\r\n");
        assert_eq!(merged(Merge::Min, &["*2\r\n:1\r\n:5\r\n", "*2\r\n:0\r\n:7\r\n"]), "*2\r\n:0\r\n:5\r\n");
        assert_eq!(merged(Merge::Any, &["$-1\r\n", "$1\r\na\r\n", "$1\r\nb\r\n"]), "$1\r\nb\r\n");
        assert_eq!(merged(Merge::Any, &["$-1\r\n", "$-1\r\n"]), "$-1\r\n");
        assert_eq!(merged(Merge::OneSucceeds, &["-NOTBUSY x\r\n", "+OK\r\n"]), "+OK\r\n");
        let [a, b] = ["f".repeat(40), "0f".repeat(20)].map(|digest| format!("+{digest}\r\n"));
        assert_eq!(merged(Merge::Xor, &[&a, &b]), format!("+{}\r\n", "f0".repeat(20)));
        assert_eq!(merged(Merge::OneSucceeds, &["-NOTBUSY x\r\n", "-NOTBUSY y\r\n"]), "-NOTBUSY x\r\n");
        assert_eq!(merged(Merge::OneSucceeds, &["-NOTBUSY x\r\n", "-UNKILLABLE y\r\n"]), "-UNKILLABLE y\r\n");
        for how in [Merge::Sum, Merge::Min, Merge::Chain] {
            assert!(merged(how, &["+x\r\n", ":1\r\n"]).starts_with("-ERR a shard"), "{how:?}");
        }
    }

    #[test]
    fn elements_return_to_their_places() {
        let part = |bytes: &str, places: &[u32]| PartReply { bytes: bytes.into(), places: places.into() };
        let parts = [part("*2\r\n$1\r\nb\r\n$-1\r\n", &[1, 3]), part("*2\r\n$1\r\na\r\n$1\r\nc\r\n", &[0, 2])];
        let mut output = Vec::new();
        merge(Merge::InOrder, &parts, || 0, Proto::Resp2, &mut output);
        assert_eq!(String::from_utf8(output).unwrap(), "*4\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$-1\r\n");
    }

    #[test]
    fn a_page_of_scan_gets_another_cursor() {
        let mut output = Vec::new();
        let reply = b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\na\r\n";
        with_cursor(reply, |cursor| cursor + 17, Proto::Resp2, &mut output).unwrap();
        assert_eq!(String::from_utf8(output).unwrap(), "*2\r\n$2\r\n17\r\n*1\r\n$1\r\na\r\n");
    }
}
