//! Owns the jobs that commands leave to another thread: how a job gets there, and how its outcome gets back. Never
//! knows a command.

use crate::control::CHANGE_TIMEOUT;
use crate::functions;
use crate::hub::Hub;
use commands::job::{Job, Task};
use commands::session::Session;
use commands::{Run, Stop};
use std::sync::Arc;

/// Leaves a task for another thread. The running command waits until it is done.
pub fn leave(me: &mut Session, task: Task) -> Run {
    me.job = Some(Box::new(Job { task, outcome: None }));
    Err(Stop::Exchange)
}

/// The outcome of the running command's job, if it left one.
pub fn outcome(me: &mut Session) -> Option<Run> {
    let outcome = me.job.take()?.outcome?;
    Some(outcome.map_err(|text| Stop::Error(text.into())))
}

/// Carries out the running command's job, and stores the outcome in the session.
pub async fn run_job(hub: &Arc<Hub>, session: &mut Session) {
    let Some(mut job) = session.job.take() else { return };
    let (hub, task) = (Arc::clone(hub), job.task.clone());
    let done = tokio::task::spawn_blocking(move || run(&hub, &task)).await;
    job.outcome = Some(done.unwrap_or_else(|panic| {
        tracing::error!("a bug: work for a command panicked: {panic}");
        Err("ERR internal error of the server: see the log".to_owned())
    }));
    session.job = Some(job);
}

fn run(hub: &Hub, task: &Task) -> Result<(), String> {
    if let Task::ChangeFunctions(change) = task {
        let keeper = hub.routes.get().and_then(|routes| routes.functions.as_deref());
        return functions::change(hub, keeper.expect("only then it is left to another thread"), change);
    }
    let spread = || hub.kept_settings().map_or(Ok(()), |settings| settings.spread(hub.config.version()));
    let control = hub.control().ok_or("ERR the database is being closed")?;
    match task {
        Task::SetConfig { pairs, local } => {
            let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(name, value)| (&**name, &**value)).collect();
            control.set_config(&pairs, *local, CHANGE_TIMEOUT)?;
            spread()
        }
        Task::RewriteConfig => control.rewrite_config(CHANGE_TIMEOUT),
        Task::SpreadSettings => spread(),
        Task::Save => control.save(),
        Task::SaveFlushed => {
            control.save_flushed(true);
            Ok(())
        }
        Task::Reload { saves } => control.reload(*saves),
        Task::Follow { primary } => control.follow(primary.as_ref().map(|(host, port)| (host.as_str(), *port)), true),
        Task::AbortFailover => control.abort_failover(true),
        Task::ChangeFunctions(_) => unreachable!("it was done above"),
    }
}
