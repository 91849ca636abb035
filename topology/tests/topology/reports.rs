//! The forms of the report, on every machine of the collection.

use std::collections::BTreeSet;

use ancile_topology::{
    Machine, NodePages, NumberSet, Plan, Policy, Report, ShardVerification, Verification,
};

use crate::collection::machines;

fn report(machine: Machine) -> Report {
    let plan = Plan::new(&machine, &Policy::count(machine.allowed_pus.len())).unwrap();
    Report::new(machine, plan)
}

#[test]
fn json_of_every_machine_comes_back_as_the_same_report() {
    for (name, machine) in machines() {
        let report = report(machine.clone());
        let back: Report = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(back, report, "{name}");
    }
}

#[test]
fn json_has_the_documented_fields() {
    let machine = Machine::discover();
    let json: serde_json::Value = serde_json::from_str(&report(machine).to_json()).unwrap();
    for path in [
        "/format",
        "/machine/is_this_system",
        "/machine/source/kind",
        "/machine/packages/0/pus",
        "/machine/numa_nodes/0/memory_bytes",
        "/machine/cores/0/pus",
        "/machine/pus/0/os_index",
        "/machine/allowed_pus/0",
        "/counts/cores",
        "/plan/seats/0/shard",
        "/plan/seats/0/pu",
        "/plan/seats/0/memory_node",
        "/plan/seats/0/arena_bytes",
        "/plan/oversubscribed",
        "/plan/policy/order",
        "/restrictions",
        "/verification",
    ] {
        assert!(json.pointer(path).is_some(), "{path} is missing");
    }
}

#[test]
fn text_of_every_machine_names_every_shard() {
    for (name, machine) in machines() {
        let report = report(machine.clone());
        let text = report.to_text();
        let (_, plan) = text.split_once("Plan: ").expect("a plan");
        let (_, plan) = plan.split_once('\n').expect("a table");
        let shards = plan
            .lines()
            .filter_map(|line| line.split_whitespace().next()?.parse::<usize>().ok());
        assert_eq!(
            shards.collect::<BTreeSet<_>>(),
            (0..report.plan.seats.len()).collect(),
            "{name}"
        );
    }
}

#[test]
fn a_picture_of_every_machine_is_well_formed_and_shows_every_pu_once() {
    for (name, machine) in machines() {
        let pus = machine.pus.len();
        let report = report(machine.clone());
        let picture = report.to_svg();
        let document =
            roxmltree::Document::parse(&picture).unwrap_or_else(|error| panic!("{name}: {error}"));
        let texts = document
            .descendants()
            .filter(|node| node.has_tag_name("text"));
        let of_class = |class: &str| {
            texts
                .clone()
                .filter(|it| it.attribute("class") == Some(class))
                .count()
        };
        assert_eq!(of_class("on") + of_class("off"), pus, "{name}");
        assert_eq!(of_class("shard"), report.plan.seats.len(), "{name}");
        inside(name, &document);
    }
}

/// Every rectangle lies within the picture.
fn inside(name: &str, document: &roxmltree::Document<'_>) {
    let number = |node: &roxmltree::Node<'_, '_>, name: &str| -> Option<f64> {
        node.attribute(name)?.parse().ok()
    };
    let root = document.root_element();
    let (width, height) = (
        number(&root, "width").unwrap(),
        number(&root, "height").unwrap(),
    );
    for it in document
        .descendants()
        .filter(|node| node.has_tag_name("rect"))
    {
        let place = (
            number(&it, "x"),
            number(&it, "y"),
            number(&it, "width"),
            number(&it, "height"),
        );
        if let (Some(x), Some(y), Some(wide), Some(high)) = place {
            assert!(
                x >= 0.0 && y >= 0.0 && x + wide <= width && y + high <= height,
                "{name}: {it:?}"
            );
        }
    }
}

#[test]
fn verification_is_shown_as_asked_and_got() {
    let shard = |shard, pu_asked, allowed: &str, pages: &[(u32, u64)]| ShardVerification {
        shard,
        pu_asked,
        pu_got: Some(pu_asked),
        cpus_allowed: NumberSet::from_list(allowed).unwrap(),
        node_asked: Some(0),
        pages_by_node: pages
            .iter()
            .map(|(node, pages)| NodePages {
                node: *node,
                pages: *pages,
            })
            .collect(),
        huge_bytes: 64 << 20,
        errors: Vec::new(),
    };
    let mut unpinned = shard(1, 1, "0-1", &[]);
    unpinned
        .errors
        .push("cannot pin to PU 1: Operation not permitted".to_string());
    let shards = vec![shard(0, 0, "0", &[(0, 960), (1, 40)]), unpinned];
    assert_eq!(shards[0].local_share(), Some(0.96));
    assert_eq!(shards[1].local_share(), None);
    let machine = Machine::discover();
    let plan = Plan::new(&machine, &Policy::count(2)).unwrap();
    let report = Report::new(machine, plan).with_verification(Verification { shards });
    let text = report.to_text();
    for part in [
        "asked / got",
        "96.0 %",
        "0: 960, 1: 40",
        "64 MB",
        "no, may run on 0-1",
        "not read",
        "Operation not permitted",
    ] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
    assert!(
        report
            .to_svg()
            .contains("Verified: 1 of 2 threads pinned, at least 96.0 %")
    );
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(
        json.pointer("/verification/shards/0/pages_by_node/1/pages"),
        Some(&40.into())
    );
}
