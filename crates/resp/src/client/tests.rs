use super::*;

fn skip_in_parts(
    input: &[u8],
    ends: impl IntoIterator<Item = usize>,
) -> Result<Option<(usize, String)>, ProtocolError> {
    let mut state = SkipState::default();
    for end in ends {
        let buffer = input[..end].to_vec();
        if let Some(Reply { consumed, kind }) = state.skip(&buffer)? {
            assert_eq!(state, SkipState::default());
            return Ok(Some((consumed, format!("{kind:?}"))));
        }
    }
    Ok(None)
}

/// Skips a reply as a whole, byte by byte, and cut at every place. All results must agree, and `parse_value` must agree
/// on the length.
fn skip_every_way(input: &[u8]) -> Result<Option<(usize, String)>, ProtocolError> {
    let whole = skip(input).map(|reply| reply.map(|Reply { consumed, kind }| (consumed, format!("{kind:?}"))));
    assert_eq!(skip_in_parts(input, 0..=input.len()), whole, "byte by byte: {}", input.escape_ascii());
    for cut in 0..input.len() {
        assert_eq!(skip_in_parts(input, [cut, input.len()]), whole, "cut at {cut}: {}", input.escape_ascii());
    }
    let value = parse_value(input).map(|value| value.map(|(_, consumed)| consumed));
    assert_eq!(value, whole.clone().map(|reply| reply.map(|(consumed, _)| consumed)));
    whole
}

fn kind(input: &str) -> String {
    // The bytes that follow belong to the next reply.
    let followed = format!("{input}+next\r\n");
    let (consumed, kind) = skip_every_way(followed.as_bytes()).unwrap().unwrap();
    assert_eq!(consumed, input.len());
    for end in 0..input.len() {
        assert_eq!(skip(&input.as_bytes()[..end]), Ok(None), "{end} bytes of {input:?}");
    }
    kind
}

fn error(input: &[u8]) -> ProtocolError {
    skip_every_way(input).unwrap_err()
}

#[test]
fn scalars() {
    assert_eq!(skip(b"+OK\r\n"), Ok(Some(Reply { consumed: 5, kind: Kind::Simple(b"OK") })));
    assert_eq!(skip(b"-ERR no\r\n"), Ok(Some(Reply { consumed: 9, kind: Kind::Error(b"ERR no") })));
    assert_eq!(skip(b"!6\r\nERR\r\n!\r\n"), Ok(Some(Reply { consumed: 12, kind: Kind::Error(b"ERR\r\n!") })));
    assert_eq!(skip(b"$3\r\nabc\r\n"), Ok(Some(Reply { consumed: 9, kind: Kind::Bulk(b"abc") })));
    assert_eq!(kind("+\r\n"), "Simple([])");
    assert_eq!(kind("!1\r\nE\r\n"), "Error([69])");
    assert_eq!(kind(":-42\r\n"), "Int(-42)");
    assert_eq!(kind("$0\r\n\r\n"), "Bulk([])");
    assert_eq!(kind("$-1\r\n"), "Null");
    assert_eq!(kind("_\r\n"), "Null");
    assert_eq!(kind("*-1\r\n"), "NullArray");
    assert_eq!(kind("#t\r\n"), "Boolean(true)");
    assert_eq!(kind(",3.5\r\n"), "Double([51, 46, 53])");
    assert_eq!(kind("(12\r\n"), "BigNumber([49, 50])");
    assert_eq!(kind("=5\r\ntxt:a\r\n"), "Verbatim { format: [116, 120, 116], text: [97] }");
}

#[test]
fn aggregates_are_skipped_as_a_whole() {
    assert_eq!(kind("*0\r\n"), "Array { count: 0 }");
    assert_eq!(kind("*3\r\n:1\r\n*2\r\n$1\r\na\r\n*0\r\n$-1\r\n"), "Array { count: 3 }");
    assert_eq!(kind("%2\r\n+a\r\n~1\r\n:1\r\n+b\r\n%0\r\n"), "Map { count: 2 }");
    assert_eq!(kind("~1\r\n_\r\n"), "Set { count: 1 }");
    assert_eq!(kind(">2\r\n+message\r\n*1\r\n#f\r\n"), "Push { count: 2 }");
}

#[test]
fn attributes_belong_to_what_follows() {
    assert_eq!(kind("|1\r\n+ttl\r\n:3600\r\n$1\r\nv\r\n"), "Bulk([118])");
    assert_eq!(kind("|0\r\n:1\r\n"), "Int(1)");
    assert_eq!(kind("|1\r\n+k\r\n*1\r\n:1\r\n|1\r\n+k\r\n:2\r\n*1\r\n:3\r\n"), "Array { count: 1 }");
    assert_eq!(kind("*2\r\n|1\r\n+k\r\n:1\r\n:7\r\n:8\r\n"), "Array { count: 2 }");
}

#[test]
fn malformed_replies() {
    assert_eq!(error(b"?\r\n"), ProtocolError::UnknownType { tag: b'?' });
    assert_eq!(error(b"\0"), ProtocolError::UnknownType { tag: 0 });
    assert_eq!(error(b"*1\r\n\r\n"), ProtocolError::UnknownType { tag: b'\r' });
    assert_eq!(error(b"+OK\n"), ProtocolError::MissingLineEnd);
    assert_eq!(error(b"$3\r\nabcd\r\n"), ProtocolError::MissingLineEnd);
    assert_eq!(error(b"$3\r\nabc\rd"), ProtocolError::MissingLineEnd);
    assert_eq!(error(b"_x\r\n"), ProtocolError::MalformedNumber);
    assert_eq!(error(b"#y\r\n"), ProtocolError::MalformedNumber);
    assert_eq!(error(b"=3\r\ntxt\r\n"), ProtocolError::MalformedVerbatim);
    for number in [":\r\n", ":x\r\n", ":+1\r\n", ":9223372036854775808\r\n"] {
        assert_eq!(error(number.as_bytes()), ProtocolError::MalformedNumber, "{number:?}");
    }
    for length in
        ["$-2\r\n", "$x\r\n", "$\r\n", "*-2\r\n", "$4294967296\r\n", "*18446744073709551616\r\n", "~-1\r\n", "!-1\r\n"]
    {
        assert_eq!(error(length.as_bytes()), ProtocolError::MalformedLength, "{length:?}");
    }
    let endless = vec![b'+'; LINE_BYTES_MAX + 1];
    assert_eq!(skip(&endless), Err(ProtocolError::TooLongLine));
}

#[test]
fn hostile_nesting_and_counts() {
    let nested = |depth: usize| [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat();
    assert!(parse_value(&nested(DEPTH_MAX)).unwrap().is_some());
    assert_eq!(parse_value(&nested(DEPTH_MAX + 1)), Err(ProtocolError::TooDeep));
    assert_eq!(skip(&nested(1_000_000)).unwrap().unwrap().consumed, 4_000_004);
    assert_eq!(parse_value(b"*4294967295\r\n:1\r\n"), Ok(None));
    assert_eq!(skip(&b"%4294967295\r\n".repeat(1000)), Ok(None));
}

#[test]
fn a_large_reply_in_small_reads_takes_linear_time() {
    let input = [b"*1000000\r\n".to_vec(), b"$1\r\nx\r\n".repeat(1_000_000)].concat();
    let mut state = SkipState::default();
    for end in (0..input.len()).step_by(1024) {
        assert_eq!(state.skip(&input[..end]), Ok(None));
    }
    let reply = Reply { consumed: input.len(), kind: Kind::Array { count: 1_000_000 } };
    assert_eq!(state.skip(&input), Ok(Some(reply)));
}

#[test]
fn values() {
    let value = |input: &str| parse_value(input.as_bytes()).unwrap().unwrap().0;
    assert_eq!(
        value("*4\r\n$1\r\na\r\n:1\r\n*-1\r\n$-1\r\n"),
        Value::Array(vec![Value::Bulk(b"a".to_vec()), Value::Int(1), Value::NullArray, Value::Null]),
    );
    assert_eq!(
        value("%1\r\n+k\r\n~1\r\n,inf\r\n"),
        Value::Map(vec![(Value::Simple(b"k".to_vec()), Value::Set(vec![Value::Double(f64::INFINITY)]))]),
    );
    assert_eq!(value(">1\r\n|1\r\n+a\r\n+b\r\n#t\r\n"), Value::Push(vec![Value::Boolean(true)]));
    assert_eq!(value("=7\r\nmkd:abc\r\n"), Value::Verbatim { format: *b"mkd", text: b"abc".to_vec() });
    assert_eq!(parse_value(b",x\r\n"), Err(ProtocolError::MalformedNumber));
}
