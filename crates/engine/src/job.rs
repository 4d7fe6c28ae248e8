//! Owns what a command leaves to another thread: how it gets there, and how its outcome gets back. Never knows a command.

use crate::control::CHANGE_PATIENCE;
use crate::hub::Hub;
use commands::job::{Job, Task};
use commands::session::Session;
use commands::{Run, Stop};
use std::sync::Arc;

/// The running command waits until another thread has done this.
pub fn leave(me: &mut Session, task: Task) -> Run {
    me.job = Some(Box::new(Job { task, outcome: None }));
    Err(Stop::Exchange)
}

/// How the running command's job went, if it has left one.
pub fn outcome(me: &mut Session) -> Option<Run> {
    let outcome = me.job.take()?.outcome?;
    Some(outcome.map_err(|text| Stop::Error(text.into())))
}

/// Has the running command's job done, and leaves the outcome where the command finds it.
pub async fn carry_out(hub: &Arc<Hub>, session: &mut Session) {
    let Some(mut job) = session.job.take() else { return };
    let (hub, task) = (Arc::clone(hub), job.task.clone());
    let done = tokio::task::spawn_blocking(move || run(&hub, &task)).await;
    job.outcome = Some(done.unwrap_or_else(|panic| {
        tracing::error!("a bug: a change of the configuration: {panic}");
        Err("ERR an error of the server itself: the log tells more".to_owned())
    }));
    session.job = Some(job);
}

fn run(hub: &Hub, task: &Task) -> Result<(), String> {
    let control = hub.control().ok_or("ERR the database is being closed")?;
    match task {
        Task::SetConfig { pairs, local } => {
            let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(name, value)| (&**name, &**value)).collect();
            control.set_config(&pairs, *local, CHANGE_PATIENCE)
        }
        Task::RewriteConfig => control.rewrite_config(CHANGE_PATIENCE),
    }
}
