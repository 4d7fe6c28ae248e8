//! Links between two ends in memory. The clock is paused everywhere: a test that waits for something that never comes ends at once,
//! because the clock jumps to the test's limit.

mod alive;
mod close;
mod common;
mod cut;
mod flow;
mod hostile;
mod messages;
mod sessions;
