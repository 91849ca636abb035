//! Where shards would sit on a machine that is not this one: 14 of 16 threads of a two-socket server.

use ancile::topology::{Machine, Plan, Policy, Report};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = "pack:2 [numa(memory=52613349376)] l3:1(size=8388608) core:4 pu:2";
    let machine = match Machine::from_synthetic(server) {
        Ok(machine) => machine,
        // Built without hwloc: plan for this machine instead.
        Err(_) => Machine::discover(),
    };
    let shards = machine.allowed_pus.len().saturating_sub(2).max(1);
    let plan = Plan::new(&machine, &Policy::count(shards))?;
    for seat in &plan.seats {
        println!(
            "shard {:>2} on PU {:>2}, node {:?}",
            seat.shard, seat.pu, seat.memory_node
        );
    }
    println!("{}", Report::new(machine, plan).to_text());
    Ok(())
}
