use super::*;

/// The bytes that `write` produces in RESP2 and in RESP3.
fn both(write: impl Fn(&mut Out<'_>)) -> (String, String) {
    let wire = |proto| {
        // Replies are appended to earlier ones.
        let mut buf = b"+before\r\n".to_vec();
        write(&mut Out::new(&mut buf, proto));
        String::from_utf8(buf).unwrap().strip_prefix("+before\r\n").unwrap().to_owned()
    };
    (wire(Proto::Resp2), wire(Proto::Resp3))
}

#[track_caller]
fn same(write: impl Fn(&mut Out<'_>), expected: &str) {
    differ(write, expected, expected);
}

#[track_caller]
fn differ(write: impl Fn(&mut Out<'_>), resp2: &str, resp3: &str) {
    assert_eq!(both(write), (resp2.to_owned(), resp3.to_owned()));
}

#[test]
fn scalars() {
    same(|out| out.ok(), "+OK\r\n");
    same(|out| out.simple("PONG"), "+PONG\r\n");
    same(|out| out.error("ERR no"), "-ERR no\r\n");
    same(|out| out.bulk(b""), "$0\r\n\r\n");
    same(|out| out.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n");
    same(|out| out.bulk_parts(b"ab", b"c"), "$3\r\nabc\r\n");
    same(|out| out.bulk_or_null(Some(b"x")), "$1\r\nx\r\n");
    differ(|out| out.bulk_or_null(None), "$-1\r\n", "_\r\n");
    differ(|out| out.null(), "$-1\r\n", "_\r\n");
    differ(|out| out.null_array(), "*-1\r\n", "_\r\n");
    differ(|out| out.boolean(true), ":1\r\n", "#t\r\n");
    differ(|out| out.boolean(false), ":0\r\n", "#f\r\n");
    differ(|out| out.double(3.5), "$3\r\n3.5\r\n", ",3.5\r\n");
    differ(|out| out.double(-1.2345678901234567), "$19\r\n-1.2345678901234567\r\n", ",-1.2345678901234567\r\n");
    differ(|out| out.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n");
    differ(|out| out.verbatim("txt", b"a\r\nb"), "$4\r\na\r\nb\r\n", "=8\r\ntxt:a\r\nb\r\n");
    differ(|out| out.big_number("-123"), "$4\r\n-123\r\n", "(-123\r\n");
    same(|out| out.raw(b":1\r\n"), ":1\r\n");
}

#[test]
fn a_client_s_bytes_cannot_end_a_line() {
    same(|out| out.simple("a\r\n+b"), "+a  +b\r\n");
    same(|out| out.error("ERR unknown command 'a\nb'"), "-ERR unknown command 'a b'\r\n");
    same(|out| out.error_bytes(b"ERR '\r\n:1'"), "-ERR '  :1'\r\n");
}

#[test]
fn integers_of_every_length() {
    let mut values = vec![0, i64::MAX, i64::MIN];
    for digits in 0..18 {
        let power = 10i64.pow(digits);
        values.extend([power - 1, power, power + 1, 5 * power + 3, -power, 1 - power]);
    }
    for value in values.into_iter().chain(-1100..11_000) {
        same(|out| out.int(value), &format!(":{value}\r\n"));
        same(|out| out.bulk_int(value), &format!("${}\r\n{value}\r\n", value.to_string().len()));
    }
}

#[test]
fn bulk_strings_of_every_length_of_length() {
    for len in [9, 10, 99, 100, 500, 999, 1000, 9999, 10_000, 123_456] {
        let text = "x".repeat(len);
        same(|out| out.bulk(text.as_bytes()), &format!("${len}\r\n{text}\r\n"));
    }
}

#[test]
fn aggregates() {
    same(|out| out.array(0), "*0\r\n");
    same(|out| out.array(1_000_000), "*1000000\r\n");
    differ(|out| out.map(7), "*14\r\n", "%7\r\n");
    differ(|out| out.set(3), "*3\r\n", "~3\r\n");
    differ(|out| out.push(3), "*3\r\n", ">3\r\n");
}

#[test]
fn a_length_known_only_at_the_end() {
    let array = |count: usize| {
        move |out: &mut Out<'_>| {
            let mark = out.array_deferred();
            (0..count).for_each(|n| out.int(n as i64 % 10));
            out.finish(mark, count);
            out.ok();
        }
    };
    for count in [0, 9, 10, 99, 100, 12_345] {
        let body: String = (0..count).map(|n| format!(":{}\r\n", n % 10)).collect();
        same(array(count), &format!("*{count}\r\n{body}+OK\r\n"));
    }
}

#[test]
fn deferred_lengths_nest() {
    let nested = |out: &mut Out<'_>| {
        let map = out.map_deferred();
        for _ in 0..5 {
            out.bulk(b"k");
            let set = out.set_deferred();
            (0..10).for_each(|_| out.null());
            out.finish(set, 10);
        }
        out.finish(map, 5);
    };
    differ(
        nested,
        &format!("*10\r\n{}", format!("$1\r\nk\r\n*10\r\n{}", "$-1\r\n".repeat(10)).repeat(5)),
        &format!("%5\r\n{}", format!("$1\r\nk\r\n~10\r\n{}", "_\r\n".repeat(10)).repeat(5)),
    );
}

#[test]
fn a_half_written_reply_is_truncated() {
    same(
        |out| {
            let len = out.len();
            out.array(2);
            out.bulk(b"first");
            out.truncate(len);
            out.error("ERR the second is not to be had");
        },
        "-ERR the second is not to be had\r\n",
    );
}

#[test]
fn hello_replies_in_the_new_version() {
    let mut buf = Vec::new();
    let mut out = Out::new(&mut buf, Proto::default());
    assert_eq!(out.proto(), Proto::Resp2);
    out.set_proto(Proto::Resp3);
    out.reborrow().map(0);
    assert_eq!(buf, b"%0\r\n");
}
