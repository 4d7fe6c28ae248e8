//! Owns the format of FUNCTION DUMP: Redis's RDB format, as far as libraries of functions need it. Never knows what
//! is in a library.
//!
//! ```text
//! payload   { opcode 245, string } for each library; version, 2 bytes; CRC-64 of all before it, 8 bytes
//! string    length, bytes  |  0xc3, length compressed, length, LZF bytes
//! length    00xxxxxx  |  01xxxxxx 8 bits  |  0x80 32 bits  |  0x81 64 bits, high byte first
//! ```

use value::rdb::crc64;

const FUNCTION: u8 = 245;
/// The RDB version of Redis 7.2. Version 10, which Redis 7.0 wrote, is read too.
const VERSION: u16 = 11;
const LZF: u8 = 0xc3;
/// No library is longer. A longer claimed length is an error.
const CODE_BYTES_MAX: usize = 512 << 20;

pub fn encode<'a>(codes: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for code in codes {
        out.push(FUNCTION);
        match code.len() {
            len @ 0..64 => out.push(len as u8),
            len @ 64..16384 => out.extend((0x4000 | len as u16).to_be_bytes()),
            len => {
                out.push(0x80);
                out.extend((len as u32).to_be_bytes());
            }
        }
        out.extend_from_slice(code);
    }
    out.extend(VERSION.to_le_bytes());
    out.extend(crc64(&out).to_le_bytes());
    out
}

pub fn decode(payload: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    const WRONG: &str = "ERR DUMP payload version or checksum are wrong";
    const BROKEN: &str = "ERR failed loading given functions payload";
    let (body, crc) = payload.split_last_chunk::<8>().ok_or(WRONG)?;
    let (mut rest, version) = body.split_last_chunk::<2>().ok_or(WRONG)?;
    let given = u64::from_le_bytes(*crc);
    // 0: written without a checksum.
    if u16::from_le_bytes(*version) > VERSION || (given != 0 && given != crc64(body)) {
        return Err(WRONG);
    }
    let mut codes = Vec::new();
    while let Some((&opcode, tail)) = rest.split_first() {
        if opcode != FUNCTION {
            return Err("ERR given type is not a function");
        }
        rest = tail;
        codes.push(string(&mut rest).ok_or(BROKEN)?);
    }
    Ok(codes)
}

fn string(rest: &mut &[u8]) -> Option<Vec<u8>> {
    if rest.first() != Some(&LZF) {
        let len = length(rest)?;
        return Some(take(rest, len)?.to_vec());
    }
    take(rest, 1)?;
    let (packed, len) = (length(rest)?, length(rest)?);
    decompress(take(rest, packed)?, len)
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some(taken)
}

fn length(rest: &mut &[u8]) -> Option<usize> {
    let first = take(rest, 1)?[0];
    let len = match (first >> 6, first) {
        (0, _) => u64::from(first),
        (1, _) => u64::from(first & 0x3f) << 8 | u64::from(take(rest, 1)?[0]),
        (_, 0x80) => u64::from(u32::from_be_bytes(take(rest, 4)?.try_into().ok()?)),
        (_, 0x81) => u64::from_be_bytes(take(rest, 8)?.try_into().ok()?),
        _ => return None,
    };
    usize::try_from(len).ok().filter(|&len| len <= CODE_BYTES_MAX)
}

/// LZF. A byte below 32 is followed by that many literal bytes plus one. In any other byte the three high bits are a
/// length (7: another length byte follows), and the five low bits with the next byte are a distance back.
fn decompress(mut packed: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while let Some((&control, tail)) = packed.split_first() {
        packed = tail;
        let control = usize::from(control);
        if control < 32 {
            out.extend_from_slice(take(&mut packed, control + 1)?);
        } else {
            let mut copied = control >> 5;
            if copied == 7 {
                copied += usize::from(take(&mut packed, 1)?[0]);
            }
            let back = (control & 31) << 8 | usize::from(take(&mut packed, 1)?[0]);
            let from = out.len().checked_sub(back + 1)?;
            // Copy byte by byte: the source may overlap the bytes that this copy writes.
            for at in from..from + copied + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_read_back() {
        let codes: Vec<Vec<u8>> = [0, 1, 63, 64, 16383, 16384].iter().map(|&len| vec![b'x'; len]).collect();
        let payload = encode(codes.iter().map(Vec::as_slice));
        assert_eq!(decode(&payload).unwrap(), codes);
        // No prefix and no payload with a changed byte is accepted, and none causes a panic.
        for end in 0..200 {
            assert!(decode(&payload[..end]).is_err(), "{end} bytes");
        }
        for at in (0..payload.len()).step_by(97) {
            let mut broken = payload.clone();
            broken[at] ^= 1;
            assert!(decode(&broken).is_err(), "byte {at}");
        }
    }

    #[test]
    fn redis_s_compressed_strings_are_read() {
        // "abcabcabcabc": three literals, then nine bytes from distance three.
        assert_eq!(decompress(&[2, b'a', b'b', b'c', 7 << 5, 0, 2], 12).unwrap(), b"abcabcabcabc");
        assert_eq!(decompress(&[2, b'a', b'b', b'c', 7 << 5, 0, 3], 12), None, "from before the beginning");
        assert_eq!(decompress(&[2, b'a', b'b'], 3), None);
        assert_eq!(decompress(&[0, b'a', 7 << 5, 255, 0], 12), None, "longer than said");
    }
}
