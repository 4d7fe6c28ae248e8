use super::*;

#[derive(Debug, PartialEq)]
struct Command {
    args: Vec<Vec<u8>>,
    consumed: usize,
}

fn command(consumed: usize, args: &[&str]) -> Command {
    Command { args: args.iter().map(|arg| arg.as_bytes().to_vec()).collect(), consumed }
}

/// Parses the whole `input` as a server does. Returns its commands, and the error that ended them.
fn parse_all(input: &[u8], limits: &Limits) -> (Vec<Command>, Option<ProtocolError>) {
    feed(input, limits, &[input.len()])
}

/// The same for an `input` that arrives in parts that end at `ends`. The buffer moves for every part.
fn feed(input: &[u8], limits: &Limits, ends: &[usize]) -> (Vec<Command>, Option<ProtocolError>) {
    let (mut commands, mut start) = (Vec::new(), 0);
    let mut progress = Progress::default();
    for &end in ends {
        loop {
            let buffer = input[start..end].to_vec();
            let mut spans = vec![Span { start: 7, len: 7 }];
            match parse(&buffer, &mut progress, limits, &mut spans) {
                Ok(Parsed::Complete { consumed, source }) => {
                    assert!(!progress.is_partial());
                    assert!(consumed > 0 && consumed <= buffer.len());
                    let bytes = match source {
                        Source::Input => &buffer[..],
                        Source::Unquoted => progress.unquoted(),
                    };
                    let args = spans[1..].iter().map(|span| span.of(bytes).to_vec()).collect();
                    commands.push(Command { args, consumed });
                    start += consumed;
                }
                Ok(Parsed::Incomplete { need }) => {
                    assert_eq!(spans.len(), 1, "an incomplete command leaves no span behind");
                    assert!(need > buffer.len());
                    break;
                }
                Err(error) => {
                    assert_eq!(spans.len(), 1, "a broken command leaves no span behind");
                    return (commands, Some(error));
                }
            }
        }
    }
    (commands, None)
}

/// Parses `input` as a whole, byte by byte, and cut in two at every place. All results must agree.
fn parse_every_way(input: &[u8], limits: &Limits) -> (Vec<Command>, Option<ProtocolError>) {
    let whole = parse_all(input, limits);
    let every_byte: Vec<usize> = (0..=input.len()).collect();
    assert_eq!(feed(input, limits, &every_byte), whole, "byte by byte: {:?}", input.escape_ascii().to_string());
    for cut in 0..input.len() {
        assert_eq!(feed(input, limits, &[cut, input.len()]), whole, "cut at {cut}: {}", input.escape_ascii());
    }
    whole
}

fn commands(input: &str) -> Vec<Command> {
    let (commands, error) = parse_every_way(input.as_bytes(), &Limits::DEFAULT);
    assert_eq!(error, None, "{input:?}");
    commands
}

fn error(input: &[u8]) -> String {
    let (_, error) = parse_every_way(input, &Limits::DEFAULT);
    error.unwrap_or_else(|| panic!("no error from {}", input.escape_ascii())).text()
}

#[test]
fn multibulk_commands_in_a_pipeline() {
    assert_eq!(
        commands(
            "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$10\r\n0123456789\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n"
        ),
        [command(37, &["SET", "k", "0123456789"]), command(19, &["GET", ""]), command(14, &["PING"])],
    );
}

#[test]
fn arguments_hold_any_bytes() {
    let input = b"*2\r\n$4\r\n\r\n\0*\r\n$3\r\n$1\r\r\n";
    let (commands, error) = parse_every_way(input, &Limits::DEFAULT);
    assert_eq!(error, None);
    assert_eq!(commands[0].args, [b"\r\n\0*".to_vec(), b"$1\r".to_vec()]);
}

#[test]
fn counts_of_zero_and_less_are_commands_without_arguments() {
    assert_eq!(commands("*0\r\n"), [command(4, &[])]);
    assert_eq!(commands("*-1\r\n"), [command(5, &[])]);
    assert_eq!(commands("*-2147483649\r\nPING\r\n"), [command(14, &[]), command(6, &["PING"])]);
    assert_eq!(commands("\r\n\n   \r\n"), [command(2, &[]), command(1, &[]), command(5, &[])]);
}

#[test]
fn the_two_bytes_after_an_argument_are_not_looked_at() {
    assert_eq!(commands("*1\r\n$4\r\nPINGxy"), [command(14, &["PING"])]);
    assert_eq!(commands("*1\rx$4\r\0PINGxy"), [command(14, &["PING"])]);
}

#[test]
fn a_command_in_parts_says_how_many_bytes_it_needs() {
    let mut progress = Progress::default();
    let mut need = |input: &[u8]| match parse(input, &mut progress, &Limits::DEFAULT, &mut Vec::new()) {
        Ok(Parsed::Incomplete { need }) => need,
        other => panic!("{other:?}"),
    };
    assert_eq!(need(b""), 1);
    assert_eq!(need(b"*2\r"), 4);
    assert_eq!(need(b"*2\r\n$3\r\nGET\r\n"), 14);
    assert_eq!(need(b"*2\r\n$3\r\nGET\r\n$1000\r\nabc"), 13 + 7 + 1000 + 2);
}

#[test]
fn malformed_counts() {
    for input in ["*x\r\n", "*+1\r\n", "*01\r\n", "*1 \r\n", "*\r\n", "*-\r\n", "*-0\r\n", "*1\n\r\n", "*1\0\r\n"] {
        assert_eq!(error(input.as_bytes()), "Protocol error: invalid multibulk length", "{input:?}");
    }
    for input in ["*1048577\r\n", "*2147483648\r\n", "*9223372036854775808\r\n", "*99999999999999999999999999\r\n"] {
        assert_eq!(error(input.as_bytes()), "Protocol error: invalid multibulk length", "{input:?}");
    }
    assert_eq!(parse_every_way(b"*1048576\r\n", &Limits::DEFAULT), (vec![], None));
}

#[test]
fn malformed_lengths() {
    for length in ["-1", "", "x", "03", "+3", "536870913", "9223372036854775807", "9223372036854775808", "1e3", "3\0"] {
        assert_eq!(
            error(format!("*1\r\n${length}\r\n").as_bytes()),
            "Protocol error: invalid bulk length",
            "{length:?}"
        );
    }
    assert_eq!(parse_every_way(b"*1\r\n$536870912\r\n", &Limits::DEFAULT), (vec![], None));
}

#[test]
fn an_argument_must_begin_with_a_dollar() {
    assert_eq!(error(b"*1\r\nPING\r\n"), "Protocol error: expected '$', got 'P'");
    assert_eq!(error(b"*2\r\n$3\r\nGET\r\n:3\r\n"), "Protocol error: expected '$', got ':'");
    // The client's byte must break neither the line of the reply nor the reader's terminal.
    assert_eq!(error(b"*1\r\n\r\n"), "Protocol error: expected '$', got '?'");
    assert_eq!(error(b"*1\r\n\x1b[2J\r\n"), "Protocol error: expected '$', got '?'");
}

#[test]
fn lines_that_do_not_end() {
    let limits = Limits { inline_bytes_max: 40, ..Limits::DEFAULT };
    let result = |input: &[u8]| parse_every_way(input, &limits).1.map(ProtocolError::text);
    let long = [b'1'; 50];
    assert_eq!(result(&[b"*", &long[..39]].concat()), None);
    assert_eq!(result(&[b"*", &long[..40]].concat()).unwrap(), "Protocol error: too big mbulk count string");
    assert_eq!(result(&[b"*", &long[..40], b"\r\n"].concat()).unwrap(), "Protocol error: too big mbulk count string");
    assert_eq!(result(&[b"*1\r\n$", &long[..39]].concat()), None);
    assert_eq!(result(&[b"*1\r\n$", &long[..40]].concat()).unwrap(), "Protocol error: too big bulk count string");
    assert_eq!(result(&long[..40]), None);
    assert_eq!(result(&[&long[..40], b"\n"].concat()), None);
    assert_eq!(result(&long[..41]).unwrap(), "Protocol error: too big inline request");
    assert_eq!(result(&[&long[..41], b"\n"].concat()).unwrap(), "Protocol error: too big inline request");
}

#[test]
fn strangers_may_say_little() {
    let stranger = |input: &[u8]| parse_every_way(input, &Limits::UNAUTHENTICATED).1.map(ProtocolError::text);
    assert_eq!(stranger(b"*10\r\n$16384\r\n"), None);
    assert_eq!(stranger(b"*11\r\n").unwrap(), "Protocol error: unauthenticated multibulk length");
    assert_eq!(stranger(b"*1\r\n$16385\r\n").unwrap(), "Protocol error: unauthenticated bulk length");
    assert_eq!(stranger(b"*1048577\r\n").unwrap(), "Protocol error: invalid multibulk length");
    assert_eq!(stranger(b"*1\r\n$536870913\r\n").unwrap(), "Protocol error: invalid bulk length");
}

#[test]
fn declared_sizes_allocate_nothing() {
    let (mut progress, mut spans) = (Progress::default(), Vec::new());
    let input = b"*1000000\r\n$500000000\r\nx";
    assert!(matches!(parse(input, &mut progress, &Limits::DEFAULT, &mut spans), Ok(Parsed::Incomplete { .. })));
    assert_eq!(progress.heap_bytes() + spans.capacity(), 0);
}

#[test]
fn a_million_arguments_in_small_reads() {
    let count = 1024 * 1024;
    let mut input = format!("*{count}\r\n").into_bytes();
    for _ in 0..count {
        input.extend_from_slice(b"$1\r\nx\r\n");
    }
    // Linear work. At 1 KiB a read, parsing from the start each time would read 28 GB.
    let (mut progress, mut spans) = (Progress::default(), Vec::new());
    for end in (0..input.len()).step_by(1024) {
        let parsed = parse(&input[..end], &mut progress, &Limits::DEFAULT, &mut spans);
        assert!(matches!(parsed, Ok(Parsed::Incomplete { .. })));
    }
    let parsed = parse(&input, &mut progress, &Limits::DEFAULT, &mut spans);
    assert_eq!(parsed, Ok(Parsed::Complete { consumed: input.len(), source: Source::Input }));
    assert_eq!(spans.len(), count);
    assert!(spans.iter().all(|span| span.of(&input) == b"x"));
    assert_eq!(progress.heap_bytes(), 0);
}

#[test]
fn inline_commands() {
    assert_eq!(commands("PING\r\n"), [command(6, &["PING"])]);
    assert_eq!(commands("PING\n"), [command(5, &["PING"])]);
    assert_eq!(
        commands(" SET  key\tvalue \r\nGET key\n"),
        [command(18, &["SET", "key", "value"]), command(8, &["GET", "key"])],
    );
    assert_eq!(commands("*1\r\n$4\r\nPING\r\nPING\r\n"), [command(14, &["PING"]), command(6, &["PING"])]);
}

#[test]
fn inline_quotes() {
    let args = |line: &str| {
        let mut commands = commands(&format!("{line}\r\n"));
        assert_eq!(commands.len(), 1);
        commands.remove(0).args.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(args(r#"SET k "a b""#), ["SET", "k", "a b"]);
    assert_eq!(args(r#""\x41\x7a\xff" "\n\r\t\b\a\\\"\q""#), [r"Az\xff", r#"\n\r\t\x08\x07\\\"q"#]);
    assert_eq!(args(r#""\x4" "\xg1""#), ["x4", "xg1"]);
    assert_eq!(args(r#"'a "b" \' \n' x"#), [r#"a \"b\" \' \\n"#, "x"]);
    assert_eq!(args(r#"mid"dle quote""#), ["middle quote"]);
    assert_eq!(args(r#""" ''"#), ["", ""]);
}

#[test]
fn inline_quotes_out_of_balance() {
    for line in ["\"abc", "'abc", "\"abc\"d", "'a'b", "\"abc\\\"", "\"", "a 'b c", "\"\\", "\"a\"\"b\""] {
        assert_eq!(error(format!("{line}\r\n").as_bytes()), "Protocol error: unbalanced quotes in request", "{line}");
    }
}

#[test]
fn unquoted_bytes_of_several_commands_live_side_by_side() {
    let (mut progress, mut spans) = (Progress::default(), Vec::new());
    for line in [b"ECHO \"a b\"\n", b"ECHO 'c d'\n"] {
        let parsed = parse(line, &mut progress, &Limits::DEFAULT, &mut spans);
        assert_eq!(parsed, Ok(Parsed::Complete { consumed: 11, source: Source::Unquoted }));
    }
    let args: Vec<&[u8]> = spans.iter().map(|span| span.of(progress.unquoted())).collect();
    assert_eq!(args, [&b"ECHO"[..], b"a b", b"ECHO", b"c d"]);
    progress.clear_unquoted();
    assert_eq!(progress.unquoted(), b"");
}

#[test]
fn a_command_is_left_out_however_it_is_cut() {
    let mut input = b"*4\r\n$4\r\nMSET\r\n$1\r\nk\r\n$300\r\n".to_vec();
    input.extend([b'\r'; 300]);
    input.extend(b"\r\n$0\r\n\r\n");
    let command_bytes = input.len();
    input.extend(b"*1\r\n$4\r\nPING\r\n");
    let known = input.iter().position(|&byte| byte == b'k').unwrap();
    for first in known..command_bytes {
        for read in [1, 2, 3, 50, 1000] {
            let (mut progress, mut spans) = (Progress::default(), Vec::new());
            let parsed = parse(&input[..first], &mut progress, &Limits::DEFAULT, &mut spans);
            assert!(matches!(parsed, Ok(Parsed::Incomplete { .. })) && progress.can_skip());
            let (mut from, mut end, mut kept_bytes) = (0, first, 0);
            loop {
                let Skipped { consumed, is_complete } =
                    skip(&input[from..end], &mut progress, &Limits::DEFAULT).unwrap();
                from += consumed;
                if is_complete {
                    break;
                }
                kept_bytes = kept_bytes.max(end - from);
                end = (end + read).min(input.len());
            }
            assert_eq!(from, command_bytes, "the next command begins here");
            assert!(kept_bytes <= "$300\r\n".len(), "{kept_bytes} bytes are kept");
            let parsed = parse(&input[from..], &mut progress, &Limits::DEFAULT, &mut spans);
            assert_eq!(parsed, Ok(Parsed::Complete { consumed: 14, source: Source::Input }));
        }
    }
}
