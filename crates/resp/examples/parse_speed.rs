//! Prints the cost of parsing a command, writing a reply and skipping one, in nanoseconds, with the data in cache:
//! `cargo run --release -p flintkv-resp --example parse_speed`. It takes the best of several rounds, so that a busy
//! machine disturbs little.

use std::hint::black_box;
use std::time::Instant;

use resp::client::{encode_command, skip};
use resp::{Limits, Out, Parsed, Progress, Proto, parse};

const BATCH: usize = 64;
const ROUNDS: usize = 50;
const BATCHES_PER_ROUND: usize = 2_000;

fn main() {
    let key = b"memtier-12345678";
    let value = [b'x'; 500];
    parse_batches("parse SET key 500-byte value", &[b"SET", key, &value]);
    parse_batches("parse GET key", &[b"GET", key]);
    parse_batches("parse MGET of 10 keys", &[&[&b"MGET"[..]], &[&key[..]; 10][..]].concat());
    parse_batches("parse PING", &[b"PING"]);

    write_batches("write 500-byte bulk", |out| out.bulk(black_box(&value)));
    write_batches("write 16-byte bulk", |out| out.bulk(black_box(&key[..])));
    write_batches("write OK", |out| out.ok());
    write_batches("write null", |out| out.null());
    write_batches("write int 7", |out| out.int(black_box(7)));
    write_batches("write int 1234567890", |out| out.int(black_box(1_234_567_890)));
    write_batches("write bulk int 1234567890", |out| out.bulk_int(black_box(1_234_567_890)));
    write_batches("write double 1234.5678", |out| out.double(black_box(1234.5678)));

    skip_batches("skip OK", |out| out.ok());
    skip_batches("skip 500-byte bulk", |out| out.bulk(&value));
    skip_batches("skip array of 10 bulks", |out| {
        out.array(10);
        (0..10).for_each(|_| out.bulk(key));
    });
}

fn parse_batches(name: &str, args: &[&[u8]]) {
    let mut input = Vec::new();
    (0..BATCH).for_each(|_| encode_command(args, &mut input));
    let (mut progress, mut spans) = (Progress::default(), Vec::new());
    measure(name, || {
        let input = black_box(&input[..]);
        spans.clear();
        let mut at = 0;
        while at < input.len() {
            match parse(&input[at..], &mut progress, &Limits::DEFAULT, &mut spans) {
                Ok(Parsed::Complete { consumed, .. }) => at += consumed,
                other => panic!("{other:?}"),
            }
        }
        black_box(&spans);
    });
}

fn write_batches(name: &str, mut write: impl FnMut(&mut Out<'_>)) {
    let mut buf = Vec::with_capacity(BATCH * 1024);
    measure(name, || {
        buf.clear();
        let mut out = Out::new(&mut buf, Proto::Resp2);
        (0..BATCH).for_each(|_| write(&mut out));
        black_box(&buf);
    });
}

fn skip_batches(name: &str, mut write: impl FnMut(&mut Out<'_>)) {
    let mut input = Vec::new();
    (0..BATCH).for_each(|_| write(&mut Out::new(&mut input, Proto::Resp2)));
    measure(name, || {
        let input = black_box(&input[..]);
        let mut at = 0;
        while at < input.len() {
            at += skip(&input[at..]).expect("a valid reply").expect("a whole reply").consumed;
        }
    });
}

fn measure(name: &str, mut batch: impl FnMut()) {
    let best = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..BATCHES_PER_ROUND).for_each(|_| batch());
            start.elapsed()
        })
        .min()
        .expect("there are rounds");
    println!("{name:32} {:6.1} ns", best.as_nanos() as f64 / (BATCHES_PER_ROUND * BATCH) as f64);
}
