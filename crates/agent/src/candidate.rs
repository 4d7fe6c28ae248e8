//! Owns what a member knows that may lead the cluster, and whether it should. Never leads.

use cluster::ids::{NodeId, ProcessId};
use cluster::records::Role;
use cluster::view::View;
use membership::issuer::Issuer;
use std::sync::Arc;
use tokio::sync::watch;

/// A member that may lead.
pub struct Candidate {
    pub role: Role,
    pub me: NodeId,
    /// This run of the node.
    pub process: ProcessId,
    pub view: watch::Receiver<Arc<View>>,
    /// How many a node with data has.
    pub workers: u64,
    /// The newest: it changes with etcd's endpoints.
    pub issuer: Box<dyn Fn() -> Arc<Issuer> + Send + Sync>,
}

impl Candidate {
    pub fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }

    /// The cluster knows this process as the node's.
    pub fn runs(&self, view: &View) -> bool {
        view.live.get(&self.me).is_some_and(|live| live.process == self.process)
    }
}

/// The node starts anew next, so it does not lead.
pub fn is_to_restart(view: &View, node: NodeId, process: ProcessId) -> bool {
    let mut running = view.operations.values().filter(|operation| operation.ended_ms.is_none());
    running.any(|operation| {
        let step = operation.steps.get(operation.done).filter(|_| operation.aborted_by.is_none());
        let restarted = step.filter(|step| step.to == Some(node)).and_then(|step| step.restarted.as_ref());
        restarted.is_some_and(|restarted| restarted.process == process)
    })
}

/// With more than half of the nodes away, this may be the smaller part of something that an operator knows better.
pub fn majority_is_away(view: &View) -> Option<String> {
    let data = view.nodes.iter().filter(|(_, node)| node.role == Role::Data);
    let (all, away) =
        data.fold((0, 0), |(all, away), (id, _)| (all + 1, away + usize::from(!view.live.contains_key(id))));
    (2 * away > all).then(|| format!("{away} of {all} nodes with data do not run"))
}
