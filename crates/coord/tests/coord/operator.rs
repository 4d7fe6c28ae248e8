//! What an operator asks of etcd.

use std::time::Duration;

use coord::{Coord, Error, Etcd};

use crate::cluster::Cluster;
use crate::common::{commit, eventually, put, run};

#[test]
fn members_leader_space_and_snapshot() {
    run(async {
        // Otherwise etcd wants all members to have been connected for 5 s before it lets one go.
        let mut cluster = Cluster::start_with(3, &["--strict-reconfig-check=false"]).await;
        let etcd = cluster.etcd();
        eventually("all members answer", async || {
            etcd.members().await.is_ok_and(|members| members.iter().all(|member| member.status.is_ok()))
        })
        .await;
        let members = etcd.members().await.unwrap();
        assert_eq!(members.len(), 3);
        for member in &members {
            let index = cluster.index(&member.peer_urls);
            assert_eq!(member.name, format!("m{index}"));
            assert_eq!(member.client_urls, [cluster.members[index].client_url.clone()]);
            let status = member.status.as_ref().unwrap();
            assert!(status.version.starts_with("3."), "{status:?}");
            assert!(status.db_bytes >= status.db_bytes_in_use && status.db_bytes_in_use > 0);
        }

        // To each member in turn, from whichever leads.
        for member in &members {
            etcd.move_leader(member.id).await.unwrap();
            assert_eq!(cluster.leader().await, cluster.index(&member.peer_urls));
            commit(&etcd, vec![put("a", &member.name)]).await;
        }

        for member in &members {
            etcd.defragment(member.id).await.unwrap();
        }
        assert!(matches!(etcd.defragment(1).await, Err(Error::Refused(_))));

        let path = cluster.path("snapshot.db");
        let bytes = etcd.snapshot(&path).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);
        let snapshot = std::fs::read(&path).unwrap();
        assert!(snapshot.windows(2).any(|two| two == b"m2"), "the last value is in it");
        assert!(!path.with_extension("part").exists());
        // Nothing is left of one that fails.
        let nowhere = Etcd::new(coord::etcd::Options {
            timeout: Duration::from_millis(200),
            ..coord::etcd::Options::new(vec![format!("http://127.0.0.1:{}", flintkv_tests::free_port())])
        });
        assert!(nowhere.unwrap().snapshot(&path).await.is_err());
        assert!(!path.with_extension("part").exists());
        assert_eq!(std::fs::read(&path).unwrap(), snapshot);

        // A member leaves, and another joins in its place.
        let gone = cluster.leader().await;
        let id = members.iter().find(|member| cluster.index(&member.peer_urls) == gone).unwrap().id;
        // The leader that is removed may end before it answers, so look rather than rely on the answer.
        let _ = etcd.remove_member(id).await;
        cluster.kill(gone);
        cluster.members.remove(gone);
        let etcd = cluster.etcd();
        eventually("two are left", async || etcd.members().await.is_ok_and(|members| members.len() == 2)).await;
        eventually("one of them leads", async || etcd.get("a").await.is_ok()).await;
        cluster.add();
        let _ = etcd.add_learner(&cluster.members[2].peer_url).await;
        eventually("it is a member", async || etcd.members().await.is_ok_and(|members| members.len() == 3)).await;
        let joining = etcd.members().await.unwrap();
        let new = joining.iter().find(|member| member.name.is_empty()).unwrap();
        assert!(new.is_learner);
        assert!(matches!(&new.status, Err(Error::Unreachable(why)) if why.contains("has not started")));
        cluster.spawn_member(2, "existing");
        eventually("the new member answers", async || {
            let members = etcd.members().await.unwrap_or_default();
            members.len() == 3 && members.iter().all(|member| member.status.is_ok())
        })
        .await;
        // It votes once it has what the others have.
        let id = new.id;
        eventually("it is promoted", async || {
            let _ = etcd.promote(id).await;
            etcd.members().await.is_ok_and(|members| members.iter().all(|member| !member.is_learner))
        })
        .await;
    });
}

#[test]
fn without_a_majority_the_members_say_that_there_is_no_leader() {
    run(async {
        let mut cluster = Cluster::start(3).await;
        let etcd = cluster.etcd();
        eventually("all know the leader", async || {
            etcd.members().await.is_ok_and(|members| members.iter().all(coord::etcd::maintenance::Member::has_leader))
        })
        .await;
        assert!(etcd.slowest().is_some());
        cluster.kill(0);
        cluster.kill(1);
        let one = cluster.etcd_of(&[2], Duration::from_secs(2));
        eventually("the last one knows none", async || {
            let members = one.known_members().await.unwrap_or_default();
            let answer = members.iter().filter(|member| member.status.is_ok()).count();
            answer == 1 && !members.iter().any(coord::etcd::maintenance::Member::has_leader)
        })
        .await;
        assert!(one.members().await.is_err(), "its list may be old");
    });
}
