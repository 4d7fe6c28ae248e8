//! Owns the list of all routes. Never knows what any of them does.

mod alerts;
mod analysis;
mod backups;
mod benchmarks;
mod bulk;
mod clients;
pub mod cluster;
mod command;
mod configuration;
mod databases;
mod edit;
mod events;
mod health;
mod keys;
mod latency;
mod metrics;
mod node;
mod operations;
mod plan;
mod prometheus;
mod recovery;
mod replication;
mod session;
mod surveys;
mod terminal;
mod users;

use crate::openapi;
use crate::route::Route;
use std::sync::OnceLock;

/// The areas, in the order of the documentation.
static AREAS: &[&[Route]] = &[
    session::ROUTES,
    node::ROUTES,
    cluster::ROUTES,
    operations::ROUTES,
    recovery::ROUTES,
    plan::ROUTES,
    surveys::ROUTES,
    databases::ROUTES,
    backups::ROUTES,
    replication::ROUTES,
    metrics::ROUTES,
    clients::ROUTES,
    latency::ROUTES,
    keys::ROUTES,
    edit::ROUTES,
    bulk::ROUTES,
    analysis::ROUTES,
    command::ROUTES,
    terminal::ROUTES,
    configuration::ROUTES,
    benchmarks::ROUTES,
    alerts::ROUTES,
    events::ROUTES,
    users::ROUTES,
    health::ROUTES,
    prometheus::ROUTES,
];

pub fn all() -> impl Iterator<Item = &'static Route> + Clone {
    AREAS.iter().copied().flatten()
}

/// The OpenAPI document of all routes, built once.
pub fn openapi_json() -> &'static [u8] {
    static JSON: OnceLock<Vec<u8>> = OnceLock::new();
    JSON.get_or_init(|| openapi::json(all()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Method;
    use std::collections::HashSet;

    #[test]
    fn rows_are_whole() {
        let mut seen = HashSet::new();
        for route in all() {
            let name = format!("{} {}", route.method.name(), route.path);
            assert!(seen.insert(name.clone()), "{name} twice");
            assert!(route.summary.ends_with('.') && !route.tag.is_empty(), "{name}");
            assert_eq!(
                route.inline,
                route.path.starts_with("/health/"),
                "{name}: others may wait for a disk or a lock"
            );
            assert_eq!(
                route.action.is_empty(),
                route.method == Method::Get,
                "{name}: what changes something is audited"
            );
            assert!(
                route.role.is_some()
                    || !route.path.starts_with("/api/v1/")
                    || route.tag == "Session"
                    || route.path.ends_with("openapi.json"),
                "{name} is open"
            );
        }
    }
}
