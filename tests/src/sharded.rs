//! Owns how a database that is divided into shards is compared with one node: random commands get the same replies, but for the listed
//! refusals. Never knows where the shards are.

use crate::compare::{difference, differs_by_design, exec_difference};
use crate::generator::Commands;
use crate::{Client, seed};
use resp::client::encode_command;

/// What a divided database refuses and one node does not.
const REFUSED: &[&str] = &[
    "-CROSSSLOT Keys in request don't hash to the same slot",
    "-ERR SELECT is not allowed in cluster mode",
    "-ERR MOVE is not allowed in cluster mode",
    "-ERR Copying to another database is not allowed in cluster mode",
    "-ERR the patterns of BY and GET in SORT name keys of another slot",
    " is not supported by a database that is divided into shards",
    " is not supported in a transaction on a database that is divided into shards",
    " run in different places of a database that is divided into shards",
];

fn is_refused(reply: &[u8]) -> bool {
    let text = String::from_utf8_lossy(reply);
    text.starts_with('-') && REFUSED.iter().any(|refused| text.contains(refused))
}

fn contains(reply: &[u8], text: &[u8]) -> bool {
    reply.windows(text.len()).any(|window| window == text)
}

fn send(client: &mut Client, pipeline: &[Vec<Vec<u8>>]) {
    let mut bytes = Vec::new();
    for words in pipeline {
        encode_command(&words.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut bytes);
    }
    client.send(&bytes);
}

/// What one node gets instead: nothing for what was refused, and a transaction fails as it did at the proxy.
fn instead(pipeline: &[Vec<Vec<u8>>], replies: &[Vec<u8>]) -> Vec<Option<Vec<Vec<u8>>>> {
    let mut is_queuing = false;
    let each = pipeline.iter().zip(replies).map(|(words, reply)| {
        let name = words[0].to_ascii_uppercase();
        let was_queuing = is_queuing;
        match &name[..] {
            b"MULTI" => is_queuing = true,
            b"EXEC" | b"DISCARD" | b"RESET" => is_queuing = false,
            _ => {}
        }
        if !is_refused(reply) {
            return Some(words.clone());
        }
        match &name[..] {
            b"EXEC" => Some(vec![b"DISCARD".to_vec()]),
            _ if was_queuing => Some(vec![b"REFUSED".to_vec()]),
            _ => None,
        }
    });
    each.collect()
}

/// Sends so many random commands to both, in pipelines. Panics at the first reply that differs.
pub fn compare_commands(ours: &mut Client, theirs: &mut Client, wanted: u64) {
    let mut commands = Commands::tagged(seed(), 30, 6);
    let (mut done, mut refused) = (0, 0);
    while done < wanted {
        let pipeline: Vec<_> = (0..1 + commands.random.below(24)).flat_map(|_| commands.next_batch()).collect();
        send(ours, &pipeline);
        let replies: Vec<Vec<u8>> =
            pipeline.iter().map(|_| ours.raw().expect("the proxy keeps the connection")).collect();
        let sent = instead(&pipeline, &replies);
        let model_pipeline: Vec<_> = sent.iter().flatten().cloned().collect();
        send(theirs, &model_pipeline);
        let (mut queued, mut apart) = (Vec::new(), false);
        for ((words, reply), sent) in pipeline.iter().zip(&replies).zip(&sent) {
            let Some(sent) = sent else {
                refused += 1;
                continue;
            };
            let expected = theirs.raw().expect("the node keeps the connection");
            if sent != words {
                refused += 1;
                continue;
            }
            // A script, or a command of a transaction, has met a key of another shard: what was done until then stays.
            let reached_out = [
                &b"do not hash to the same slot"[..],
                b"command about all shards",
                b"in SORT name keys of another slot",
                b"not allowed in cluster mode",
            ];
            apart |= differs_by_design(words, reply, &expected) || reached_out.iter().any(|text| contains(reply, text));
            let difference = match &words[0][..] {
                b"EXEC" => exec_difference(&queued, reply, &expected),
                _ => difference(words, reply, &expected),
            };
            match &words[0][..] {
                b"MULTI" => queued.clear(),
                _ if expected == b"+QUEUED\r\n" => queued.push(words.clone()),
                _ => {}
            }
            if let Some(difference) = difference.filter(|_| !apart) {
                let words: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
                panic!("seed {}, command {done}: {words:?}\n{difference}", seed());
            }
            done += 1;
        }
        if apart {
            for client in [&mut *ours, &mut *theirs] {
                client.run("DISCARD");
                client.run("FLUSHALL");
            }
        }
    }
    println!("{done} commands with the same reply, {refused} refused");
    assert!(refused * 4 < done, "{refused} of {done} were refused");
}
