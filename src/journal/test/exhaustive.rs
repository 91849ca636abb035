//! All short workloads, a power cut at every step of each, every kind of loss, and a second power
//! cut in the recovery.
//!
//! `ANCILE_JOURNAL_WORKLOADS=3` runs all workloads of up to three operations with a second cut at
//! every step of the recovery; otherwise there are two operations and one second cut each.

use super::model::Model;
use super::toy::{Act, Toy, created, disks};
use crate::id::hash;
use crate::journal::RecoveryError;
use crate::journal::simulated::{Fault, Loss, Machine};

const SHARDS: usize = 2;
const LOSSES: [Loss; 4] = [Loss::Drop, Loss::Keep, Loss::Prefix, Loss::Torn];

/// What workloads are made of.
#[derive(Clone, Copy, Debug)]
enum Operation {
    /// One shard changes something.
    Change,
    /// One shard changes something, tells the other, and that changes something.
    Both,
    /// What was changed is written, and not synced.
    Write,
    /// The epoch is made durable.
    Commit,
    /// A checkpoint of one shard.
    Checkpoint,
    /// The oldest epoch is gone back to.
    Rollback,
}

const OPERATIONS: [Operation; 6] = [
    Operation::Change,
    Operation::Both,
    Operation::Write,
    Operation::Commit,
    Operation::Checkpoint,
    Operation::Rollback,
];

/// Runs a workload as far as the power lasts. The model is what may be there afterwards.
fn run(machine: &Machine, model: &mut Model, workload: &[Operation]) {
    let open = |model: &mut Model, back_to| {
        let opened = Toy::open(disks(machine, SHARDS), model, back_to, 5);
        match opened {
            Err(error) if !machine.is_down() => panic!("{workload:?}: {error}"),
            opened => opened.ok(),
        }
    };
    let Some(mut toy) = open(model, None) else {
        return;
    };
    for operation in workload {
        match operation {
            Operation::Change => toy.act(Act::Change(0)),
            Operation::Both => {
                toy.acts([Act::Change(0), Act::Message(0, 1), Act::Change(1)]);
            }
            Operation::Write => toy.act(Act::Write(0)),
            Operation::Commit => {
                toy.acts([Act::Close, Act::Settle]);
            }
            Operation::Checkpoint => toy.act(Act::CheckpointAll(0)),
            Operation::Rollback => {
                model.clone_from(&toy.model);
                let back_to = model.epochs().get(1).copied();
                match open(model, back_to) {
                    Some(opened) => toy = opened,
                    None => return,
                }
            }
        }
    }
    model.clone_from(&toy.model);
}

/// Opens what is there, goes on for a while, loses what is not durable, and opens it again.
fn live_on(machine: &Machine, model: &mut Model) -> Result<(), RecoveryError> {
    let mut toy = Toy::open(disks(machine, SHARDS), model, None, 6)?;
    let acts = [
        Act::Change(1),
        Act::Close,
        Act::Settle,
        Act::CheckpointAll(1),
        Act::Change(0),
    ];
    toy.acts(acts);
    assert!(toy.model.acknowledged > model.acknowledged);
    model.clone_from(&toy.model);
    machine.restart(Loss::Drop, 1);
    Toy::open(disks(machine, SHARDS), model, None, 7)?;
    Ok(())
}

/// A machine on which something has happened already: a checkpoint, and a durable epoch after it.
fn prepared() -> (Machine, Model) {
    let machine = created(SHARDS, 1);
    let mut model = Model::new(SHARDS);
    let mut toy = Toy::open(disks(&machine, SHARDS), &mut model, None, 4).unwrap();
    for act in [
        Act::Change(0),
        Act::Change(1),
        Act::CheckpointAll(0),
        Act::Change(0),
        Act::Change(1),
        Act::Close,
        Act::Settle,
        Act::Prepare(0),
        Act::Prepare(1),
    ] {
        toy.act(act);
    }
    let model = toy.model.clone();
    assert_eq!(model.epochs().len(), 3);
    machine.restart(Loss::Drop, 2);
    (machine, model)
}

/// All that can come of a workload; says how many crashes that are.
fn explore(prepared: &(Machine, Model), workload: &[Operation], is_full: bool) -> u64 {
    let mut crashes = 0;
    for step in 1.. {
        let (machine, mut model) = (prepared.0.fork(), prepared.1.clone());
        machine.plan(step, Fault::PowerCut);
        run(&machine, &mut model, workload);
        let is_last = !machine.is_down();
        for loss in LOSSES {
            let seed = hash(step);
            let (machine, model) = (machine.fork(), model.clone());
            machine.restart(loss, seed);
            let context = || format!("{workload:?}, step {step}, {loss:?}");
            let steps = machine.steps();
            let (whole, mut expected) = (machine.fork(), model.clone());
            let opened = Toy::open(disks(&whole, SHARDS), &mut expected, None, 8);
            assert!(opened.is_ok(), "{}: {}", context(), opened.err().unwrap());
            let recovery_steps = whole.steps() - steps;
            whole.restart(Loss::Torn, seed);
            let lived = live_on(&whole, &mut expected);
            assert!(lived.is_ok(), "{}: {lived:?}", context());
            crashes += 3;
            for second in 1..=recovery_steps {
                if !is_full && second != 1 + hash(seed ^ loss as u64) % recovery_steps {
                    continue;
                }
                let (machine, mut model) = (machine.fork(), model.clone());
                machine.plan(second, Fault::PowerCut);
                let cut_off = Toy::open(disks(&machine, SHARDS), &mut model, None, 9);
                assert!(cut_off.is_err(), "{}", context());
                machine.restart(LOSSES[(hash(second) % 4) as usize], second);
                let lived = live_on(&machine, &mut model);
                assert!(lived.is_ok(), "{}, then {second}: {lived:?}", context());
                crashes += 2;
            }
        }
        if is_last {
            break;
        }
    }
    crashes
}

#[test]
fn every_crash_of_every_short_workload_is_recovered_from() {
    let longest = std::env::var("ANCILE_JOURNAL_WORKLOADS")
        .map_or(2, |longest| longest.parse().expect("a length"));
    let prepared = prepared();
    let (mut workloads, mut crashes, mut last) = (0_u64, 0, vec![Vec::new()]);
    for _ in 0..longest {
        let longer = |workload: &Vec<Operation>| {
            let workload = workload.clone();
            OPERATIONS.map(|next| [workload.clone(), vec![next]].concat())
        };
        last = Vec::from_iter(last.iter().flat_map(longer));
        for workload in &last {
            crashes += explore(&prepared, workload, longest > 2);
            workloads += 1;
        }
    }
    println!("{workloads} workloads, {crashes} crashes");
    assert!(crashes > workloads * 100);
}
