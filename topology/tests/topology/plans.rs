//! What holds for the plans of every machine of the collection.

use std::collections::BTreeMap;

use ancile_topology::{
    KindChoice, Machine, NumberSet, Order, Plan, PlanError, Policy, Seat, Shards,
};

use crate::collection::{machine, machines};

/// What a seat's share is counted by: its node, or its package where it has no node.
type Place = (Option<u32>, Option<usize>);

fn place(seat: &Seat) -> Place {
    (
        seat.node,
        if seat.node.is_none() {
            seat.package
        } else {
            None
        },
    )
}

fn plan(machine: &Machine, policy: &Policy) -> Plan {
    Plan::new(machine, policy).unwrap_or_else(|error| panic!("{error}"))
}

/// Allowed cores and PUs of every place, taken from the plan of all PUs.
fn capacities(machine: &Machine) -> BTreeMap<Place, (usize, usize)> {
    let whole = plan(machine, &Policy::count(machine.allowed_pus.len()));
    let mut found: BTreeMap<Place, (Vec<Result<usize, u32>>, usize)> = BTreeMap::new();
    for seat in &whole.seats {
        let (cores, pus) = found.entry(place(seat)).or_default();
        let core = seat.core.ok_or(seat.pu);
        if !cores.contains(&core) {
            cores.push(core);
        }
        *pus += 1;
    }
    found
        .into_iter()
        .map(|(place, (cores, pus))| (place, (cores.len(), pus)))
        .collect()
}

fn shares(plan: &Plan) -> BTreeMap<Place, usize> {
    let mut shares = BTreeMap::new();
    for seat in &plan.seats {
        *shares.entry(place(seat)).or_default() += 1;
    }
    shares
}

/// Every check on a plan of `count` shards that shares no PU.
fn check(name: &str, machine: &Machine, plan: &Plan) {
    let count = plan.seats.len();
    let distinct: NumberSet = plan.seats.iter().map(|seat| seat.pu).collect();
    assert_eq!(distinct.len(), count, "{name}: a PU twice");
    assert!(
        distinct.is_subset(&machine.allowed_pus),
        "{name}: a PU that is not allowed"
    );
    assert!(!plan.oversubscribed, "{name}");
    let capacities = capacities(machine);
    let shares = shares(plan);
    let cores: usize = capacities.values().map(|(cores, _)| cores).sum();
    let widths: NumberSet = capacities.values().map(|(_, pus)| *pus as u32).collect();
    let depths: NumberSet = capacities
        .values()
        .map(|(cores, _)| *cores as u32)
        .collect();
    let given = |place| shares.get(place).copied().unwrap_or(0);
    if widths.len() == 1 && depths.len() == 1 {
        let most = capacities.keys().map(given).max().unwrap_or(0);
        let least = capacities.keys().map(given).min().unwrap_or(0);
        assert!(most - least <= 1, "{name}: {shares:?}");
    }
    for (place, (own, pus)) in &capacities {
        let fair = count as f64 * *own as f64 / cores as f64;
        let share = given(place);
        if count <= cores {
            assert!(
                (share as f64 - fair).abs() < 1.0,
                "{name}: {place:?} has {share}, fair is {fair}"
            );
        } else {
            assert!(
                (*own..=*pus).contains(&share),
                "{name}: {place:?} has {share}"
            );
        }
    }
    if count <= cores {
        let mut own: Vec<_> = plan
            .seats
            .iter()
            .map(|seat| seat.core.ok_or(seat.pu))
            .collect();
        own.sort();
        own.dedup();
        assert_eq!(
            own.len(),
            count,
            "{name}: siblings although there are cores"
        );
    }
    order(name, plan);
    memory(name, machine, plan);
}

fn order(name: &str, plan: &Plan) {
    let places: Vec<Place> = plan.seats.iter().map(place).collect();
    match plan.policy.order {
        Order::Compact => {
            let mut runs = places.clone();
            runs.dedup();
            let left = runs.len();
            runs.sort();
            runs.dedup();
            assert_eq!(runs.len(), left, "{name}: comes back to a node: {places:?}");
        }
        Order::Scatter => {
            for index in 1..places.len() {
                let rest = &places[index..];
                let only_one_left = rest.iter().all(|place| *place == rest[0]);
                let repeats = places[index] == places[index - 1];
                assert!(
                    !repeats || only_one_left,
                    "{name}: does not alternate: {places:?}"
                );
            }
        }
    }
}

fn memory(name: &str, machine: &Machine, plan: &Plan) {
    let allowed = machine
        .numa_nodes
        .iter()
        .filter(|node| machine.allowed_nodes.contains(node.os_index));
    let with_memory: NumberSet = allowed
        .filter(|it| it.memory_bytes.is_some())
        .map(|it| it.os_index)
        .collect();
    let mut total = 0_u128;
    for seat in &plan.seats {
        let node = seat
            .memory_node
            .unwrap_or_else(|| panic!("{name}: no memory node"));
        assert!(
            with_memory.is_empty() || with_memory.contains(node),
            "{name}: node {node} has no memory"
        );
        assert_eq!(
            seat.arena_bytes == 0,
            with_memory.is_empty() && machine.memory_bytes.is_none(),
            "{name}"
        );
        let pu = machine.pu(seat.pu).unwrap();
        assert_eq!(seat.remote, !pu.nodes.contains(&node), "{name}");
        assert!(
            !seat.remote || !seat.notes.is_empty(),
            "{name}: remote and no word about it"
        );
        total += u128::from(seat.arena_bytes);
    }
    let sizes = machine
        .numa_nodes
        .iter()
        .filter_map(|node| node.memory_bytes)
        .map(u128::from);
    let size = machine.memory_bytes.map_or_else(|| sizes.sum(), u128::from);
    assert!(total <= size - size / 4, "{name}: {total} of {size} bytes");
}

#[test]
fn plans_of_every_machine_keep_the_rules() {
    for (name, machine) in machines() {
        let pus = machine.allowed_pus.len();
        for order in [Order::Compact, Order::Scatter] {
            for count in [1, 2, 7, 14, pus / 2, pus - 1, pus] {
                let count = count.clamp(1, pus);
                let plan = plan(machine, &Policy::count(count).with_order(order));
                assert_eq!(plan.seats.len(), count, "{name}");
                check(name, machine, &plan);
            }
            let cores = capacities(machine)
                .values()
                .map(|(cores, _)| cores)
                .sum::<usize>();
            let shards = Shards::PhysicalCores;
            let policy = Policy {
                shards,
                order,
                ..Policy::default()
            };
            let plan = plan(machine, &policy);
            assert_eq!(plan.seats.len(), cores, "{name}");
            check(name, machine, &plan);
        }
    }
}

#[test]
fn fourteen_shards_sit_on_every_machine_and_share_only_where_they_must() {
    for (name, machine) in machines() {
        let plan = plan(machine, &Policy::count(14));
        let pus = machine.allowed_pus.len();
        assert_eq!(plan.seats.len(), 14, "{name}");
        assert_eq!(plan.oversubscribed, pus < 14, "{name}");
        let mut load: BTreeMap<u32, usize> = BTreeMap::new();
        for seat in &plan.seats {
            assert!(machine.allowed_pus.contains(seat.pu), "{name}");
            *load.entry(seat.pu).or_default() += 1;
        }
        let most = load.values().max().unwrap();
        assert_eq!(*most, 14_usize.div_ceil(pus), "{name}: {load:?}");
        assert_eq!(load.len(), pus.min(14), "{name}: {load:?}");
    }
}

#[test]
fn default_plans_of_every_machine_leave_the_reserve_and_never_share() {
    for (name, machine) in machines() {
        let pus = machine.allowed_pus.len();
        for reserve in [0, 2, 1000] {
            let plan = plan(machine, &Policy::default().with_reserve(reserve));
            let usable = pus.saturating_sub(reserve).max(1);
            let little = plan.notes.iter().any(|note| note.contains("little memory"));
            let expected = if little {
                plan.seats.len().min(usable - 1)
            } else {
                usable
            };
            assert_eq!(plan.seats.len(), expected, "{name}");
            assert_eq!(plan.spare_pus.len(), pus - plan.seats.len(), "{name}");
            check(name, machine, &plan);
        }
    }
}

#[test]
fn fourteen_shards_on_the_reference_machine_are_seven_a_node() {
    for name in [
        "e5530-2n4c2t-block",
        "e5530-2n4c2t-interleaved",
        "e5530-14of16",
    ] {
        let Some(machine) = machine(&format!("xml-derived/{name}.xml")) else {
            return;
        };
        for policy in [
            Policy::count(14),
            Policy::default().with_reserve(machine.allowed_pus.len() - 14),
            Policy::count(14).with_order(Order::Scatter),
        ] {
            let shares = shares(&plan(machine, &policy));
            assert_eq!(
                shares.values().copied().collect::<Vec<_>>(),
                [7, 7],
                "{name}"
            );
        }
    }
}

#[cfg(feature = "hwloc")]
fn synthetic(text: &str) -> Machine {
    Machine::from_synthetic(text).unwrap_or_else(|error| panic!("{error}"))
}

#[cfg(feature = "hwloc")]
#[test]
fn more_than_1024_pus_are_planned() {
    let machine = synthetic("pack:8 [numa(memory=64000000000)] core:96 pu:2");
    assert_eq!(machine.pus.len(), 1536);
    let plan = plan(&machine, &Policy::default());
    check("1536 PUs", &machine, &plan);
    assert_eq!(plan.seats.len(), 1536);
}

#[cfg(feature = "hwloc")]
#[test]
fn seats_within_a_node_are_spread_over_its_packages_and_caches() {
    let machine = synthetic("numa:1(memory=64000000000) pack:2 l3:4 core:4 pu:1");
    let plan = plan(&machine, &Policy::count(8));
    let l3 = machine.caches.iter().filter(|cache| cache.level == 3);
    for cache in l3 {
        let inside = plan
            .seats
            .iter()
            .filter(|seat| cache.pus.contains(seat.pu))
            .count();
        assert_eq!(inside, 1, "{cache:?}");
    }
}

#[cfg(feature = "hwloc")]
#[test]
fn a_quota_sets_the_default_and_never_the_explicit_count() {
    let mut machine = synthetic("numa:1(memory=64000000000) core:8 pu:1");
    for (quota, shards) in [(0.5, 1), (1.0, 1), (1.5, 2), (7.2, 8), (64.0, 8)] {
        machine.cpu_quota = Some(quota);
        let by_default = plan(&machine, &Policy::default());
        assert_eq!(by_default.seats.len(), shards, "quota {quota}");
        assert_eq!(
            shards < 8,
            by_default.notes.iter().any(|note| note.contains("quota"))
        );
        assert_eq!(plan(&machine, &Policy::count(8)).seats.len(), 8);
    }
}

#[cfg(feature = "hwloc")]
#[test]
fn a_memory_limit_bounds_all_arenas_together() {
    let mut machine = synthetic("numa:2(memory=64000000000) core:4 pu:1");
    machine.memory_limit_bytes = Some(512 << 20);
    let plan = plan(&machine, &Policy::default());
    let sum: u64 = plan.seats.iter().map(|seat| seat.arena_bytes).sum();
    assert!(sum <= 384 << 20 && sum > 300 << 20, "{sum}");
    assert!(
        plan.notes.iter().any(|note| note.contains("memory limit")),
        "{:?}",
        plan.notes
    );
}

#[cfg(feature = "hwloc")]
#[test]
fn little_memory_means_fewer_shards_and_never_a_refusal() {
    let machine = synthetic("numa:1(memory=50000000) core:16 pu:1");
    let by_default = plan(&machine, &Policy::default());
    assert_eq!(by_default.seats.len(), 2);
    assert!(
        by_default
            .notes
            .iter()
            .any(|note| note.contains("little memory"))
    );
    assert_eq!(plan(&machine, &Policy::count(16)).seats.len(), 16);
}

#[cfg(feature = "hwloc")]
#[test]
fn listed_pus_are_taken_in_their_order_if_the_kernel_permits_them() {
    let mut machine = synthetic("numa:2(memory=64000000000) core:4 pu:1");
    // As under taskset or isolcpus: permitted, but not in the mask that the process was given.
    machine.allowed_pus = NumberSet::from_list("0-1").unwrap();
    machine.permitted_pus = NumberSet::from_list("0-5").unwrap();
    let listed = |list: &[u32]| {
        let shards = Shards::Pus(list.to_vec());
        Plan::new(
            &machine,
            &Policy {
                shards,
                ..Policy::default()
            },
        )
    };
    let pus: Vec<u32> = listed(&[5, 0, 3])
        .unwrap()
        .seats
        .iter()
        .map(|seat| seat.pu)
        .collect();
    assert_eq!(pus, [5, 0, 3]);
    let error = listed(&[0, 6]).unwrap_err();
    assert!(
        error.to_string().contains("PU 6") && error.to_string().contains("0-5"),
        "{error}"
    );
    assert_eq!(listed(&[1, 1]).unwrap_err(), PlanError::PuTwice { pu: 1 });
    assert_eq!(listed(&[]).unwrap_err(), PlanError::NoShards);
    assert!(matches!(
        listed(&[4_000_000_000]),
        Err(PlanError::PuNotPermitted { .. })
    ));
}

#[test]
fn one_kind_of_core_can_be_chosen() {
    let Some(machine) = machine("xml-export/20em64t-hybrid-1p6c2t+2ca4co1t.xml") else {
        return;
    };
    let with = |cpu_kind| {
        Plan::new(
            machine,
            &Policy {
                cpu_kind,
                ..Policy::default()
            },
        )
    };
    assert_eq!(with(KindChoice::Ablest).unwrap().seats.len(), 12);
    assert_eq!(with(KindChoice::LeastAble).unwrap().seats.len(), 8);
    assert_eq!(with(KindChoice::Index(1)), with(KindChoice::Index(1)));
    assert!(matches!(
        with(KindChoice::Index(7)),
        Err(PlanError::NoSuchKind { .. })
    ));
    let any = with(KindChoice::Any).unwrap();
    let first_six: NumberSet = any.seats[..6].iter().map(|seat| seat.pu).collect();
    assert!(
        first_six.is_subset(&machine.cpu_kinds[1].pus),
        "abler cores come first: {first_six}"
    );
}

#[test]
fn memory_of_pus_with_several_nodes_is_the_nearest_with_most() {
    for (name, expected) in [
        // A slow node without PUs of its own, told by its latency.
        ("lab/cxl.xml", "0-1"),
        // Small fast nodes beside large ones.
        ("xml-derived/spr-hbm-flat-snc4.xml", "0,2,4,6,8,10,12,14"),
        // Two equal nodes on the same PUs: both are used.
        ("xml/28intel64-2p2g7c-CoD.nogroups.v1tov2.xml", "0-3"),
    ] {
        let Some(machine) = machine(name) else {
            return;
        };
        let plan = plan(machine, &Policy::default());
        let nodes: NumberSet = plan
            .seats
            .iter()
            .filter_map(|seat| seat.memory_node)
            .collect();
        assert_eq!(nodes.to_string(), expected, "{name}");
        assert!(plan.seats.iter().all(|seat| !seat.remote), "{name}");
        assert!(
            plan.seats
                .iter()
                .any(|seat| seat.notes.iter().any(|note| note.contains("are local")))
        );
    }
}

#[cfg(feature = "hwloc")]
#[test]
fn a_machine_of_another_place_is_planned_and_never_pinned() {
    let machine = synthetic("numa:1(memory=64000000000) core:2 pu:1");
    let plan = plan(&machine, &Policy::default());
    let before = ancile_topology::current_affinity().unwrap();
    let error = plan.pin_current_thread(0).unwrap_err();
    assert!(error.to_string().contains("another machine"), "{error}");
    assert_eq!(ancile_topology::current_affinity().unwrap(), before);
}

#[cfg(feature = "hwloc")]
#[test]
fn nothing_allowed_and_nothing_asked_for_are_errors() {
    let mut machine = synthetic("numa:1 core:2 pu:1");
    assert_eq!(
        Plan::new(&machine, &Policy::count(0)),
        Err(PlanError::NoShards)
    );
    machine.allowed_pus = NumberSet::new();
    assert!(matches!(
        Plan::new(&machine, &Policy::default()),
        Err(PlanError::NoAllowedPu { .. })
    ));
}
