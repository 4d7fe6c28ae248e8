//! The steps of the replacement of a cluster's authority.

use membership::authority::{AuthorityRecord, NodeCertificates, NodeProgress, Step};
use pki::Authority;
use std::collections::BTreeSet;

const NOW_MS: u64 = 1_790_000_000_000;

struct Scene {
    old: Authority,
    new: Authority,
    record: AuthorityRecord,
    nodes: Vec<NodeProgress>,
}

/// Two nodes, of which the first runs a member of etcd.
fn scene() -> Scene {
    let old = Authority::create("test", NOW_MS).unwrap();
    let new = old.successor(NOW_MS);
    let record = AuthorityRecord::begin(old.certificate(), new.certificate(), "admin", NOW_MS);
    let only_old = BTreeSet::from([old.certificate().fingerprint()]);
    let node = |name: &str, coordinates: bool| NodeProgress {
        name: name.to_owned(),
        is_live: true,
        keeps_key: coordinates,
        runs_etcd: coordinates,
        certificates: Some(NodeCertificates {
            trusts: only_old.clone(),
            node: old.certificate().fingerprint(),
            etcd: coordinates.then(|| old.certificate().fingerprint()),
            keys: if coordinates { only_old.clone() } else { BTreeSet::new() },
        }),
        etcd_trusts: coordinates.then(|| only_old.clone()),
    };
    let nodes = vec![node("n1", true), node("n2", false)];
    Scene { old, new, record, nodes }
}

impl Scene {
    fn waits(&self) -> Vec<String> {
        self.record.waits_for(&self.nodes).iter().map(ToString::to_string).collect()
    }

    /// Does what the step asks of the node, one thing after the other. The step has waited for each.
    fn obey(&mut self, at: usize) {
        let (record, trusted) = (self.record.clone(), self.record.fingerprints());
        let mut act = |act: &dyn Fn(&mut NodeProgress)| {
            let before = self.waits();
            act(&mut self.nodes[at]);
            assert_ne!(self.waits(), before, "it does not wait for this of {at}");
        };
        let coordinates = at == 0;
        match record.step().unwrap() {
            Step::Trust | Step::Drop => {
                act(&|node| node.certificates.as_mut().unwrap().trusts.clone_from(&trusted));
                if coordinates {
                    act(&|node| node.certificates.as_mut().unwrap().keys.clone_from(&trusted));
                    act(&|node| node.etcd_trusts = Some(trusted.clone()));
                }
            }
            Step::Renew => {
                act(&|node| node.certificates.as_mut().unwrap().node = record.target);
                if coordinates {
                    act(&|node| node.certificates.as_mut().unwrap().etcd = Some(record.target));
                }
            }
        }
    }

    fn finish_step(&mut self) {
        for at in [1, 0] {
            self.obey(at);
        }
        assert_eq!(self.waits(), Vec::<String>::new());
        self.record = self.record.next(NOW_MS + 1);
    }
}

#[test]
fn every_step_waits_for_every_node() {
    let mut scene = scene();
    let mut steps = Vec::new();
    while let Some(step) = scene.record.step() {
        steps.push(step);
        scene.finish_step();
    }
    assert_eq!(steps, [Step::Trust, Step::Renew, Step::Drop]);
    assert_eq!(scene.record.trusted, [scene.new.certificate().pem()]);
    assert_eq!(
        (scene.record.signing, scene.record.ended_ms),
        (scene.new.certificate().fingerprint(), Some(NOW_MS + 1))
    );
}

#[test]
fn a_node_that_does_not_run_holds_every_step_up() {
    let mut scene = scene();
    while scene.record.step().is_some() {
        let before = scene.record.clone();
        scene.finish_step();
        let after = std::mem::replace(&mut scene.record, before);
        scene.nodes[1].is_live = false;
        assert_eq!(scene.waits(), ["node 'n2' does not run"]);
        scene.nodes[1].is_live = true;
        scene.record = after;
    }
}

#[test]
fn what_is_abandoned_goes_back_to_the_old_authority() {
    // In the first step, and in the second.
    for steps in [0, 1] {
        let mut scene = scene();
        (0..steps).for_each(|_| scene.finish_step());
        scene.obey(1);
        scene.record = scene.record.abandoned().unwrap();
        assert!(scene.record.is_abandoned);
        let mut back = Vec::new();
        while let Some(step) = scene.record.step() {
            back.push(step);
            // A node that had not done the step has nothing to undo.
            let (record, trusted) = (scene.record.clone(), scene.record.fingerprints());
            for node in &mut scene.nodes {
                let has = node.certificates.as_mut().unwrap();
                match record.step().unwrap() {
                    Step::Renew => {
                        has.node = record.target;
                        has.etcd = has.etcd.map(|_| record.target);
                    }
                    _ => {
                        has.trusts.clone_from(&trusted);
                        has.keys.retain(|key| trusted.contains(key));
                        node.etcd_trusts = node.etcd_trusts.as_ref().map(|_| trusted.clone());
                    }
                }
            }
            assert_eq!(scene.waits(), Vec::<String>::new());
            scene.record = scene.record.next(NOW_MS);
        }
        assert_eq!(back, [&[Step::Renew][..steps], &[Step::Drop]].concat());
        assert_eq!(scene.record.trusted, [scene.old.certificate().pem()]);
        assert_eq!(scene.record.signing, scene.old.certificate().fingerprint());
    }
    let mut late = scene();
    late.finish_step();
    late.finish_step();
    assert_eq!((late.record.step(), late.record.abandoned()), (Some(Step::Drop), None));
}
