//! Owns running any text as a script without a server, for the fuzz target.

use super::calls::{Called, Calls};
use super::engine::{Engine, Passed};
use super::words::Words;
use resp::client::{encode_command, skip};
use resp::{Args, Out, Proto};
use std::time::{Duration, Instant};

/// Maximum time of a script, checked at every [`Calls::tick`].
const TIME_MAX: Duration = Duration::from_millis(50);

/// Compiles the text and runs it, or loads it if its first line declares a library. A reply and an error are both correct. A
/// panic, a second reply or an endless loop is a bug.
#[doc(hidden)]
pub fn try_script(source: &[u8]) {
    thread_local! {
        static ENGINE: std::cell::RefCell<Engine> = Engine::new("7.2.4").expect("Lua starts").into();
    }
    ENGINE.with_borrow_mut(|engine| {
        if source.starts_with(b"#!lua name=") {
            // Both the registered functions and an error are fine.
            let _ = engine.load(source);
            return;
        }
        let Ok(compiled) = engine.compile(source) else { return };
        let mut server =
            Alone { words: Words::default(), reply: Vec::new(), proto: Proto::Resp2, started: Instant::now() };
        let mut reply = Vec::new();
        let mut out = Out::new(&mut reply, Proto::Resp2);
        let ran = engine.run(&mut server, &compiled.function, Args::new(b"", &[]), 0, Passed::AsGlobals, &mut out);
        if ran.is_ok() {
            let whole = skip(&reply).expect("well formed").expect("a whole reply");
            assert_eq!(whole.consumed, reply.len(), "one reply");
        }
        engine.tidy(|| ());
        engine.forget(0);
    });
}

/// A server's side that answers each command with the command's own words. The first word may choose the form of the reply.
struct Alone {
    words: Words,
    reply: Vec<u8>,
    proto: Proto,
    started: Instant,
}

impl Calls for Alone {
    fn words(&mut self) -> &mut Words {
        &mut self.words
    }

    fn call(&mut self) -> Called {
        let args = self.words.args();
        let words: Vec<&[u8]> = args.from(0).collect();
        self.reply.clear();
        let mut out = Out::new(&mut self.reply, self.proto);
        match words[0] {
            b"error" => out.error("ERR asked for"),
            b"status" => out.simple("fine"),
            b"integer" => out.int(-7),
            b"double" => out.double(0.5),
            b"null" => out.null(),
            b"map" => {
                out.map(1);
                out.bulk(words[0]);
                out.null();
            }
            b"ends" => return Called::Ends,
            _ => encode_command(&words, &mut self.reply),
        }
        Called::Reply
    }

    fn reply(&self) -> &[u8] {
        &self.reply
    }

    fn proto(&self) -> Proto {
        self.proto
    }

    fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
    }

    fn may_call(&mut self) -> Option<bool> {
        Some(true)
    }

    fn log(&mut self, _: i64, _: &str) {}

    fn tick(&mut self) -> Result<(), &'static str> {
        if self.started.elapsed() < TIME_MAX { Ok(()) } else { Err("it has run for too long") }
    }
}
