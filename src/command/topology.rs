//! `ancile topology`: the machine, the plan, and, if asked for, what the system really gave.

use std::path::PathBuf;

use ancile::{Engine, EngineBuilder};
use ancile_topology::{KindChoice, Machine, Order, Plan, Policy, Report, Shards};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use super::{Done, print};

/// Memory that `--verify` touches in each arena.
const VERIFY_BYTES: u64 = 64 << 20;

/// What `--shards` may say.
const SHARDS_MAX: i64 = EngineBuilder::SHARDS_MAX as i64;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Read the machine from an hwloc XML file (version 1 or 2) instead of this system
    #[arg(long, value_name = "FILE.xml", group = "source")]
    input: Option<PathBuf>,
    /// Build the machine from an hwloc synthetic description, such as "pack:2 core:4 pu:2"
    #[arg(long, value_name = "STRING", group = "source")]
    synthetic: Option<String>,
    /// Read the machine from a directory that holds copies of sys/ and proc/
    #[arg(long, value_name = "DIR", group = "source")]
    sysfs: Option<PathBuf>,
    /// Number of shards; more than there are processors share them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=SHARDS_MAX), group = "count")]
    shards: Option<u32>,
    /// Place one shard on each of these logical processors, such as 0,2,4-7
    #[arg(long, value_name = "LIST", group = "count")]
    pus: Option<String>,
    /// One shard a physical core
    #[arg(long, group = "count")]
    physical_cores: bool,
    /// Logical processors to leave to the rest of the system
    #[arg(long, value_name = "R", default_value_t = 0)]
    reserve: usize,
    /// Which neighbours by number share a node
    #[arg(long, value_name = "compact|scatter", default_value = "compact")]
    order: Order,
    /// Kind of core on machines that mix them: any, ablest, least-able, or a number of the report
    #[arg(long, value_name = "KIND", default_value = "any")]
    cpu_kind: KindChoice,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Start threads and arenas by the plan, and show what was asked for and what was obtained
    #[arg(long, conflicts_with = "source")]
    verify: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// A picture
    Svg,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Done> {
    let policy = policy(arguments)?;
    let report = if arguments.verify {
        verified(&policy)?
    } else {
        planned(arguments, &policy)?
    };
    let text = match arguments.format {
        Format::Text => report.to_text(),
        Format::Json => report.to_json(),
        Format::Svg => report.to_svg(),
    };
    print(&text)?;
    Ok(Done::Good)
}

fn policy(arguments: &Arguments) -> Result<Policy> {
    let mut policy = Policy::from_env()?;
    if let Some(shards) = arguments.shards {
        policy.shards = Shards::Count(shards as usize);
    } else if let Some(list) = &arguments.pus {
        policy.shards = Shards::pus_from_list(list)?;
    } else if arguments.physical_cores {
        policy.shards = Shards::PhysicalCores;
    }
    policy.reserve = arguments.reserve;
    policy.cpu_kind = arguments.cpu_kind;
    policy.order = arguments.order;
    Ok(policy)
}

fn planned(arguments: &Arguments, policy: &Policy) -> Result<Report> {
    let machine = if let Some(path) = &arguments.input {
        Machine::from_xml(path)?
    } else if let Some(description) = &arguments.synthetic {
        Machine::from_synthetic(description)?
    } else if let Some(directory) = &arguments.sysfs {
        Machine::from_sysfs(directory)?
    } else {
        Machine::discover()
    };
    let mut plan = Plan::new(&machine, policy)?;
    if plan.seats.len() > EngineBuilder::SHARDS_MAX {
        plan.notes.push(format!(
            "an engine has at most {SHARDS_MAX} shards: it would not open with {}",
            plan.seats.len()
        ));
    }
    Ok(Report::new(machine, plan))
}

/// Starts the shards, has each touch memory, and reads back where everything is.
fn verified(policy: &Policy) -> Result<Report> {
    let engine = Engine::builder().policy(policy.clone()).build()?;
    engine.prefault(VERIFY_BYTES)?;
    let report = engine.report()?;
    engine.close()?;
    let failed = report
        .verification
        .iter()
        .flat_map(|it| &it.shards)
        .filter(|it| it.cpus_allowed.is_empty());
    if let Some(shard) = failed.map(|it| it.shard).next() {
        bail!("shard {shard} could not be read back");
    }
    Ok(report)
}
