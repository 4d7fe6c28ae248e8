//! redis-rs against the server of the environment: every family of commands in every style of the library.

mod awaited;
mod flow;
mod harness;
mod messages;
mod ordered;
mod server;
mod values;

use harness::{Run, Style};

fn main() {
    let mut run = Run::new();
    use Style::*;
    run.every("strings", values::strings);
    run.every("bitmaps", values::bitmaps);
    run.every("hyperloglog", values::hyperloglog);
    run.every("keys", values::keys);
    run.every("scan", values::scan);
    run.every("sort", values::sort);
    run.every("dump", values::dump);
    run.every("hashes", values::hashes);
    run.every("hash-expiry", values::hash_expiry);
    run.every("lists", ordered::lists);
    run.every("blocking", ordered::blocking);
    run.every("sets", ordered::sets);
    run.every("sorted-sets", ordered::sorted_sets);
    run.every("sorted-set-ranges", ordered::ranges);
    run.every("geo", ordered::geo);
    run.every("streams", ordered::streams);
    run.every("groups", ordered::groups);
    run.every("scripts", flow::scripts);
    run.every("functions", flow::functions);
    run.each(&[Sync2, Sync3], "pipelines", flow::pipelines);
    run.each(&[Sync2, Sync3], "transactions", flow::transactions);
    run.each(&[Sync2, Sync3], "pubsub", messages::pubsub);
    run.each(&[Sync3], "pushes", messages::pushes);
    run.every("sharded-pubsub", messages::sharded);
    run.each(&[Sync2], "keyspace-events", messages::keyspace_events);
    run.each(&[Sync3], "caching", messages::caching);
    run.each(&[Sync2], "monitor", messages::monitor);
    run.every("connection", server::connection);
    run.every("databases", server::databases);
    run.every("server", server::server);
    run.every("acl", server::acl);
    run.each(&[Sync2], "pools", server::pools);
    run.each(&[Sync3], "reconnect", server::reconnect);
    run.each(&[Sync3], "timeouts", server::timeouts);
    run.every("errors", server::errors);
    run.each(&[Many2, Many3], "async-commands", awaited::commands);
    run.each(&[Many2, Many3], "async-pipelines", awaited::pipelines);
    run.each(&[Many2, Many3], "async-iterators", awaited::iterators);
    if harness::env("REDIS_TLS_PORT").is_some() {
        run.each(&[Sync3], "tls", server::tls);
    }
    if harness::env("REDIS_SOCKET").is_some() {
        run.each(&[Sync3], "unix-socket", server::unix_socket);
    }
    run.end();
}
