//! Owns the thread that calls the parts of the app once a second: it measures, compares metrics with alert rules, writes
//! events, and closes what was not used for long; and those of a member of a cluster that may wait for others, etcd and shards. Never knows a
//! request.

use crate::app::App;
use crate::database_events;
use crate::events::Event;
use crate::metrics::cluster::Sight;
use crate::metrics::shards::ShardFigures;
use crate::routes::cluster;
use config::Secret;
use node::Database;
use node::metrics::part;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch as signal;

/// What the consoles of a cluster share, once a second: it may wait for etcd, so it has a thread of its own.
pub fn share(app: &App, stopped: &signal::Receiver<bool>) {
    while !*stopped.borrow() {
        let settings = app.node.config().snapshot().console.clone();
        let given = settings.password.as_ref().map(Secret::expose).and_then(|given| std::str::from_utf8(given).ok());
        if let Some(password) = app.users.look(given, (app.now_ms)()) {
            say_password(&password);
        }
        for _ in 0..10 {
            if !*stopped.borrow() {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Asks the shards of the cluster's databases in the middle of each second, so that each round of [`run`] finds new answers, and tells the
/// other nodes about the endpoints of this one.
pub fn ask_shards(app: &App, stopped: &signal::Receiver<bool>) {
    while !*stopped.borrow() {
        app.watch.saw_shards(shard_figures(app));
        let next_ms = ((app.now_ms)() + 500) / 1000 * 1000 + 500;
        loop {
            let left_ms = next_ms.saturating_sub((app.now_ms)());
            if left_ms == 0 || *stopped.borrow() {
                break;
            }
            std::thread::sleep(Duration::from_millis(left_ms.min(100)));
        }
    }
}

fn shard_figures(app: &App) -> BTreeMap<String, Option<ShardFigures>> {
    let Some(agent) = &app.agent else { return BTreeMap::new() };
    let Ok(status) = agent.status() else { return BTreeMap::new() };
    let of = |database: Arc<Database>| {
        let (id, found) = status.view.named(database.name()).filter(|_| database.is_of_cluster())?;
        let own = part::text(&database);
        agent.tell_endpoint(id, &own);
        // A shard that is not served is not waited for.
        let is_served = cluster::shards(&status.view, found).iter().all(|shard| shard.is_served);
        let shards = if is_served { agent.shard_infos(id, part::SECTION).ok() } else { None };
        let endpoints = agent.told_endpoints(id).map(|mut endpoints| {
            endpoints.push((status.member.name.to_string(), own));
            endpoints
        });
        let figures = shards.and_then(|shards| ShardFigures::of((app.now_ms)(), &shards, endpoints.as_deref()));
        Some((database.name().to_owned(), figures))
    };
    app.node.databases().into_iter().filter_map(of).collect()
}

pub fn say_password(password: &str) {
    tracing::warn!("console: the first user is 'admin' with the password {password} (shown only once: change it)");
}

/// One round at the start of each second, until the console stops.
pub fn run(app: &App, stopped: &signal::Receiver<bool>) {
    let mut said = false;
    app.event(Event::info("node", "", "the console has started").mark("started"));
    while !*stopped.borrow() {
        let now_ms = (app.now_ms)();
        match app.watch.look(&app.node, &Sight::of(app.agent.as_deref()), now_ms) {
            Ok(()) => said = false,
            Err(error) if !said => {
                said = true;
                tracing::error!("the metrics' history cannot be written: {error}");
            }
            Err(_) => {}
        }
        app.alerts.look(&app.node, &app.watch, &app.events, now_ms);
        app.benchmarks.look(&app.events, now_ms);
        database_events::look(&app.node, &app.watch, app.has_crashed, &app.events);
        app.sign_on.look(now_ms);
        app.terminals.look(now_ms);
        // Short sleeps, so that the node does not wait a whole second when it stops.
        let next_ms = (now_ms / 1000 + 1) * 1000;
        while !*stopped.borrow() {
            app.following.look(&app.node, &app.events, (app.now_ms)());
            let left_ms = next_ms.saturating_sub((app.now_ms)());
            if left_ms == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(left_ms.min(100)));
        }
    }
    app.event(Event::info("node", "", "the console is stopping"));
    app.ends();
    app.benchmarks.stop();
    app.analyses.stop_all();
    app.surveys.stop();
}
