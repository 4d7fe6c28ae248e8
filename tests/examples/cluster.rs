//! A cluster of three nodes on loopback, for tests that are no Rust programs: two with data, one that only votes, and a database with so many
//! shards. Prints a line `HOST PORT` for each node with data, first for that of the first shard. Then it obeys lines from standard input, and says `done` to each: `kill NODE`,
//! `start NODE` (1 is the first one). At the end of the input all is ended and removed.
//! usage: cluster SHARDS [option of `flintkv database create` ...] [-- directive=value ...]

use flintkv_tests::cluster::{Cluster, Role};
use std::io::BufRead;

const NAME: &str = "orders";

fn main() {
    let mut words = std::env::args().skip(1);
    let shards: u16 = words.next().and_then(|word| word.parse().ok()).expect("usage: cluster SHARDS [option ...]");
    let words: Vec<String> = words.collect();
    let mut parts = words.splitn(2, |word| word == "--");
    let options: Vec<&str> = parts.next().unwrap_or_default().iter().map(String::as_str).collect();
    let directives = parts.next().unwrap_or_default().iter();
    let directives: Vec<(&str, &str)> =
        directives.map(|word| word.split_once('=').expect("a directive is NAME=VALUE")).collect();
    let mut cluster = Cluster::start(&[Role::Data, Role::Data, Role::Quorum], &directives);
    let port = cluster.create(NAME, shards, &options);
    cluster.serves(0, NAME, usize::from(shards));
    cluster.serves(1, NAME, usize::from(shards));
    let shown = cluster.members[0].operator(&["database", "shards", NAME, "--json"]).expect("the shards");
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let at = &shown[0]["node"];
    let has_first = |name: &str| at.to_string().contains(name);
    let mut data: Vec<_> = cluster.members[..2].iter().collect();
    data.sort_by_key(|member| !has_first(&member.name));
    for member in data {
        println!("{} {port}", member.host);
    }
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line of standard input");
        let Some((what, number)) = line.split_once(' ') else { panic!("not known: {line}") };
        let member = &mut cluster.members[number.parse::<usize>().expect("the number of a node") - 1];
        match what {
            "kill" => member.kill_node(),
            "start" => member.start_node(),
            _ => panic!("not known: {line}"),
        }
        println!("done");
    }
}
