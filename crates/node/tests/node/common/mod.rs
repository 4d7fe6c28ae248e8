//! Owns which process is a node here: this test program itself, run once more.

pub mod allocated;

use config::ConfigStore;
pub use flintkv_tests::{Client, Redis, eventually, free_port, shown, words};
use flintkv_tests::{Process, Program, words_of_node};
use std::sync::Arc;

pub struct ThisTest;

impl Program for ThisTest {
    const TEST: Option<&'static str> = Some("common::node_process");
    const USUAL: &'static [(&'static str, &'static str)] = &[];
}

pub type Node = Process<ThisTest>;

/// Not a test: [`Node::start`] runs this in its own process.
#[test]
fn node_process() {
    let Some(words) = words_of_node(|_| {}) else { return };
    let config = ConfigStore::from_args(&words).expect("the test's directives are right");
    node::run(Arc::new(config), crate::databases::attach).expect("the node starts");
}
