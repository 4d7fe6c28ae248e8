//! Owns how a command is put into a session with an owner, for the first time or once more. Never knows whether it must be.

use crate::batch::Batch;
use crate::directory::{Command, bit};
use crate::forwarding::{ForwardingSession, Part, PartState, Sent};
use crate::hub::Hub;
use crate::routes::Policy;
use crate::scripts::as_sha;
use crate::worker::Worker;
use commands::Args;
use commands::session::{Multi, Session};
use resp::extent::Extent;

pub struct Transmitter<'a> {
    pub worker: &'a Worker,
    pub batch: &'a Batch,
}

impl Transmitter<'_> {
    /// `places`: which of a split command's keys the shard gets, all of them if it is empty.
    #[inline]
    pub fn transmit(
        &self,
        session: &Session,
        sent: &Sent,
        part: &mut Part,
        places: &[u32],
        to: &mut ForwardingSession,
    ) {
        to.follow(session);
        let begins_at = to.end();
        match &sent.transaction {
            None => {
                let command = self.worker.hub.directory.by_id(sent.command);
                self.add(command, self.batch.args(self.batch.commands[sent.at]), places, to);
            }
            Some(multi) => self.add_transaction(multi, to),
        }
        part.begins_at = begins_at;
        part.owed = std::mem::take(&mut to.owed);
        (part.state, part.extent) = (PartState::Sent, Extent::default());
    }

    #[inline]
    fn add(&self, command: &Command, args: Args<'_>, places: &[u32], to: &mut ForwardingSession) {
        if command.is(bit::SCRIPT | bit::BLOCKS) {
            self.prepare(command, args, to);
        }
        match command.policy {
            Policy::Split(step, _) if !places.is_empty() => {
                let words = places.iter().flat_map(|&nth| (0..step).map(move |more| 1 + nth as usize * step + more));
                let words = std::iter::once(command.name.as_bytes()).chain(words.map(|at| &args[at]));
                to.add_words(1 + places.len() * step, words);
            }
            _ => to.add(command.word, args),
        }
    }

    fn add_transaction(&self, multi: &Multi, to: &mut ForwardingSession) {
        let hub = &*self.worker.hub;
        let steps = || multi.commands.iter().map(|queued| (queued_command(hub, queued.args()), queued.args()));
        for (command, args) in steps().filter(|(command, _)| command.is(bit::SCRIPT | bit::BLOCKS)) {
            self.prepare(command, args, to);
        }
        to.say(&[b"MULTI"]);
        for (command, args) in steps() {
            to.add(command.word, args);
            // QUEUED, or an error, which EXEC repeats.
            to.owed += 1;
        }
        to.add_words(1, std::iter::once(&b"EXEC"[..]));
    }

    /// What the owner must have or say before this command.
    #[cold]
    fn prepare(&self, command: &Command, args: Args<'_>, to: &mut ForwardingSession) {
        if command.is(bit::BLOCKS) {
            to.ask_client();
            to.say_written();
        }
        let scripts = &self.worker.hub.scripts;
        let Some(text) = args.get(1) else { return };
        match command.name {
            // Later calls by the digest may go to other shards.
            "eval" | "eval_ro" => {
                scripts.add(text, false);
            }
            "evalsha" | "evalsha_ro" => {
                if let Some(sha) = as_sha(text) {
                    to.load_script(&sha, scripts.flushes(), || scripts.body(&sha));
                }
            }
            _ => {}
        }
    }
}

/// The command that a transaction has queued.
pub fn queued_command<'h>(hub: &'h Hub, args: Args<'_>) -> &'h Command {
    let found = hub.directory.find(&args[0]).or_else(|| hub.directory.original(&args[0]));
    let command = found.expect("it was found when it was queued");
    command.subcommand(&args).unwrap_or(command)
}
