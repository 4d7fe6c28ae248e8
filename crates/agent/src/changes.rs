//! Owns what operators ask of the cluster's databases and nodes at this node, and how long they wait until all nodes have followed. Never
//! writes a record itself (`desk`).

use crate::agent::{Agent, Membership, NoCluster};
use crate::authority::AuthorityStatus;
use crate::calls;
use crate::change_error::{ChangeError, find};
use crate::desk::{Desk, Forgetting, Made, Placement, Recovery};
use crate::plans::{Planned, Wish};
use cluster::ids::{OperationId, ShardNumber};
use cluster::view::View;
use config::definition::{Definition, DefinitionChange};
use membership::call::NewToken;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::timeout;

/// How long a change may take until every node that runs has followed.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(25);

impl From<NoCluster> for ChangeError {
    fn from(why: NoCluster) -> ChangeError {
        ChangeError::NoCluster(why.to_string())
    }
}

impl Agent {
    fn at_desk<T>(&self, by: &str, work: impl AsyncFnOnce(&Arc<Membership>, &Desk<'_>) -> T) -> Result<T, ChangeError> {
        let membership = self.membership()?;
        let (node, issuer) = (self.node(), membership.issuer());
        let desk = Desk {
            records: membership.records(),
            view: membership.view_receiver(),
            workers: node.workers() as u64,
            has_own: &|name| node.database(name).is_some(),
            is_free: &|port| node.is_free(port),
            asks: &|view, asked| calls::ask(&issuer, view, asked),
            by,
        };
        Ok(self.wait(work(&membership, &desk)))
    }

    /// Where a new database would be placed. Refuses what [`Agent::create`] would refuse.
    pub fn plan(&self, definition: &Definition) -> Result<Placement, ChangeError> {
        self.at_desk("", async |_, desk| desk.plan(definition))?
    }

    /// Makes a database and waits until it is served.
    pub fn create(&self, definition: &Definition, by: &str) -> Result<Placement, ChangeError> {
        self.at_desk(by, async |membership, desk| {
            let (made, placement) = desk.create(definition).await?;
            let slow = |nodes: &str| {
                let why = format!("'{}' was created, and {nodes} has not made its shards yet", definition.name);
                ChangeError::Slow(why + ": see flintkv cluster operations")
            };
            match followed(membership, made).await {
                Ok(true) => Ok(placement),
                Ok(false) => Err(slow("a node that does not run")),
                Err(nodes) => Err(slow(&format!("node {nodes}"))),
            }
        })?
    }

    /// Deletes a database of the cluster. Waits until every node that runs has removed its part; false: one does not run, and will do it
    /// when it is back.
    pub fn delete(&self, name: &str, by: &str) -> Result<bool, ChangeError> {
        self.at_desk(by, async |membership, desk| {
            let made = desk.delete(name).await?;
            followed(membership, made).await.map_err(|nodes| {
                ChangeError::Slow(format!("'{name}' is being deleted, and node {nodes} has not done it yet"))
            })
        })?
    }

    pub fn set_paused(&self, name: &str, is_paused: bool, by: &str) -> Result<bool, ChangeError> {
        self.at_desk(by, async |membership, desk| {
            let made = desk.set_paused(name, is_paused).await?;
            followed(membership, made).await.map_err(|nodes| slow(name, &nodes))
        })?
    }

    /// Deletes all keys. As with [`Agent::delete`], a node that does not run does it when it is back, before it serves.
    pub fn flush(&self, name: &str, by: &str) -> Result<bool, ChangeError> {
        self.at_desk(by, async |membership, desk| {
            let made = desk.flush(name).await?;
            followed(membership, made).await.map_err(|nodes| slow(name, &nodes))
        })?
    }

    /// What [`Agent::resize`] would do.
    pub fn plan_resize(&self, name: &str, change: &DefinitionChange) -> Result<Placement, ChangeError> {
        self.at_desk("", async |_, desk| desk.plan_resize(name, change))?
    }

    /// Changes limits, policy, compression or password of a database; its copies and proxies follow.
    pub fn resize(&self, name: &str, change: &DefinitionChange, by: &str) -> Result<bool, ChangeError> {
        self.at_desk(by, async |membership, desk| {
            let made = desk.resize(name, change).await?;
            followed(membership, made).await.map_err(|nodes| slow(name, &nodes))
        })?
    }

    /// The steps of what an operator wishes, as they would be carried out now.
    pub fn plan_operation(&self, wish: &Wish) -> Result<Planned, ChangeError> {
        self.at_desk("", async |_, desk| desk.plan_operation(wish))?
    }

    /// Begins what moves copies or primaries, and does not wait for its end.
    pub fn operate(&self, wish: &Wish, by: &str) -> Result<(OperationId, Planned), ChangeError> {
        self.at_desk(by, async |membership, desk| {
            let begun = desk.operate(wish).await?;
            // Whoever asks this node for it next finds it.
            let is_known = |view: &View| view.operations.contains_key(&begun.0);
            let _ = timeout(FOLLOW_TIMEOUT, membership.view_when(is_known)).await;
            Ok(begun)
        })?
    }

    /// Ends an operation before its last step; the cluster takes back what is half done.
    pub fn abort(&self, id: OperationId, by: &str) -> Result<(), ChangeError> {
        self.at_desk(by, async |_, desk| desk.abort(id).await)?
    }

    /// See [`cluster::records::SettingsRecord`].
    pub fn set_replace_after(&self, seconds: u64, by: &str) -> Result<(), ChangeError> {
        self.at_desk(by, async |_, desk| desk.set_replace_after(seconds).await)?
    }

    /// A token with which another node joins.
    pub fn new_token(&self, may_coordinate: bool) -> Result<NewToken, ChangeError> {
        let membership = self.membership()?;
        let token = self.wait(membership.issuer().new_token(None, may_coordinate));
        token.map_err(ChangeError::Busy)
    }

    /// What the cluster would lose with a node.
    pub fn plan_forget(&self, name: &str, loses_data: bool) -> Result<Forgetting, ChangeError> {
        self.at_desk("", async |membership, desk| desk.plan_forget(name, membership.me, loses_data).await)?
    }

    /// Removes a node that does not run, or this one. Its shards must be gone before, unless `loses_data`: then they go on with the best
    /// copies that other nodes have, or begin empty.
    pub fn forget(&self, name: &str, loses_data: bool, by: &str) -> Result<Forgetting, ChangeError> {
        self.at_desk(by, async |membership, desk| {
            desk.plan_forget(name, membership.me, loses_data).await?;
            let view = membership.view();
            let (id, _) = view.node_named(name).ok_or_else(|| ChangeError::NotFound(format!("node '{name}'")))?;
            let issuer = membership.issuer();
            // etcd first: a member that is gone and still counts takes part of the majority away.
            if issuer.member.etcd.external.is_none() {
                let busy = |error: coord::Error| ChangeError::Busy(format!("etcd: {error}"));
                let members = issuer.etcd.members().await.map_err(busy)?;
                if let Some(member) = members.iter().find(|member| member.name == id.to_string()) {
                    issuer.etcd.remove_member(member.id).await.map_err(busy)?;
                }
            }
            let (made, forgetting) = desk.forget(name, membership.me, loses_data).await?;
            if id != membership.me {
                followed(membership, made).await.map_err(|nodes| {
                    let why = format!("node '{name}' is removed, and node {nodes} has not opened its shards yet");
                    ChangeError::Slow(why)
                })?;
            }
            Ok(forgetting)
        })?
    }

    /// What [`Agent::recover`] would do now.
    pub fn plan_recover(
        &self,
        name: &str,
        shard: Option<ShardNumber>,
        loses_data: bool,
    ) -> Result<Recovery, ChangeError> {
        self.at_desk("", async |_, desk| desk.plan_recover(name, shard, loses_data).await)?
    }

    /// Has the shards of a database that nobody can serve, or one of them, go on with the copies that have most, and waits until they serve.
    /// `loses_data`: without the copies that do not answer.
    pub fn recover(
        &self,
        name: &str,
        shard: Option<ShardNumber>,
        loses_data: bool,
        by: &str,
    ) -> Result<Recovery, ChangeError> {
        self.at_desk(by, async |membership, desk| {
            let (made, recovery) = desk.recover(name, shard, loses_data).await?;
            let followed = followed(membership, made).await;
            followed.map(|_| recovery).map_err(|nodes| slow(name, &nodes))
        })?
    }

    /// The cluster's authority, and how far its replacement is.
    pub fn authority(&self) -> Result<AuthorityStatus, NoCluster> {
        Ok(self.membership()?.part().status())
    }

    /// Begins to replace the authority. The nodes go on by themselves.
    pub fn replace_authority(&self, by: &str) -> Result<(), ChangeError> {
        self.wait(self.membership()?.part().replace(by))
    }

    /// Has the nodes go back to the authority that is being replaced.
    pub fn abandon_replacement(&self) -> Result<(), ChangeError> {
        self.wait(self.membership()?.part().abandon())
    }

    /// This node leaves its cluster, which knows it no more afterwards. One that was removed forgets that it was a member.
    pub fn leave(&self, by: &str) -> Result<(), ChangeError> {
        if self.removal().is_none() {
            let (membership, member) = (self.membership()?, self.status()?.member);
            membership.is_leaving.store(true, Relaxed);
            let forgotten = self.forget(member.name.as_str(), false, by);
            if let Err(error) = forgotten {
                membership.is_leaving.store(false, Relaxed);
                return Err(error);
            }
        }
        self.folder().remove().map_err(|error| ChangeError::Busy(error.to_string()))
    }

    /// Whether the cluster has a database with this name.
    pub fn has(&self, name: &str) -> bool {
        self.membership().is_ok_and(|membership| find(&membership.view(), name).is_ok())
    }
}

fn slow(name: &str, nodes: &str) -> ChangeError {
    ChangeError::Slow(format!(
        "'{name}' is changed, and node {nodes} has not followed yet: see flintkv cluster operations"
    ))
}

/// Waits until every node that runs has done its part. False: one does not run. An error: the nodes that run and have not followed in time.
async fn followed(membership: &Membership, made: Made) -> Result<bool, String> {
    let waits_for = |view: &View| -> Vec<(String, bool)> {
        let Some(operation) = view.operations.get(&made.operation) else { return Vec::new() };
        let open = operation.nodes.iter().filter(|step| !step.is_done && view.nodes.contains_key(&step.node));
        open.map(|step| (step.name.to_string(), view.live.contains_key(&step.node))).collect()
    };
    // Trimming removes only operations that have ended; before the record has come, the view is older.
    let is_known = |view: &View| view.operations.contains_key(&made.operation);
    let waits = async {
        membership.view_when(is_known).await;
        membership.view_when(|view| !waits_for(view).iter().any(|(_, is_live)| *is_live)).await
    };
    match timeout(FOLLOW_TIMEOUT, waits).await {
        Ok(view) => Ok(waits_for(&view).is_empty()),
        Err(_) => {
            let open = waits_for(&membership.view());
            let live: Vec<String> = open.into_iter().filter(|(_, is_live)| *is_live).map(|(name, _)| name).collect();
            Err(live.join(", "))
        }
    }
}
