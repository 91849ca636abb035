//! Prints the report of this machine, or of the one that the arguments name.
//!
//! `describe [FORM] [here | xml FILE | synthetic TEXT | sysfs DIR] [SHARDS]`, where FORM is
//! `text`, `json`, `svg`, or `pinned` for the text with every seat's thread started and read back.

use ancile_topology::{
    Machine, Plan, Policy, Report, ShardVerification, Verification, current_affinity, current_pu,
};

fn main() -> std::process::ExitCode {
    match run() {
        Ok(text) => {
            print!("{text}");
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let form = arguments.next().unwrap_or_else(|| "text".to_string());
    let kind = arguments.next().unwrap_or_else(|| "here".to_string());
    let machine = match kind.as_str() {
        "xml" => Machine::from_xml(arguments.next().ok_or("a file is missing")?)?,
        "synthetic" => Machine::from_synthetic(&arguments.next().ok_or("a text is missing")?)?,
        "sysfs" => Machine::from_sysfs(arguments.next().ok_or("a directory is missing")?)?,
        _ => Machine::discover(),
    };
    let policy = match arguments.next() {
        Some(shards) => Policy::count(shards.parse()?),
        None => Policy::from_env()?,
    };
    let plan = Plan::new(&machine, &policy)?;
    let report = Report::new(machine, plan);
    Ok(match form.as_str() {
        "json" => report.to_json(),
        "svg" => report.to_svg(),
        "pinned" => {
            let verification = verify(&report.plan);
            report.with_verification(verification).to_text()
        }
        _ => report.to_text(),
    })
}

/// Starts a thread for every seat, pins it, and reads back where it may run.
fn verify(plan: &Plan) -> Verification {
    let check = |seat: &ancile_topology::Seat| {
        let pinned = plan.pin_current_thread(seat.shard);
        ShardVerification {
            shard: seat.shard,
            pu_asked: seat.pu,
            pu_got: current_pu(),
            cpus_allowed: current_affinity().unwrap_or_default(),
            node_asked: seat.memory_node,
            errors: pinned
                .err()
                .map(|error| error.to_string())
                .into_iter()
                .collect(),
            ..ShardVerification::default()
        }
    };
    let shards = std::thread::scope(|scope| {
        let threads: Vec<_> = plan
            .seats
            .iter()
            .map(|seat| scope.spawn(move || check(seat)))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|shard| shard.unwrap_or_default()).collect()
    });
    Verification { shards }
}
