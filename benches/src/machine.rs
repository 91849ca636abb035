//! The machine a figure was made on, and whether it was free to be measured.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::failure::Failure;
use crate::line;
use crate::rounds::Summary;
use crate::team;

/// How long the processor time of others is watched before a run.
const WATCH: Duration = Duration::from_millis(300);

/// Other programs may use this share of the machine before a run says that it is busy.
const BUSY_SHARE_MAX: f64 = 0.05;

/// What does not change during a run.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Processor model.
    pub processor: String,
    /// Operating system kernel.
    pub kernel: String,
    /// Logical cores this process may use.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The system's setting for transparent huge pages.
    pub transparent_huge_pages: String,
    /// Commit of the sources, with a mark when they were changed since.
    pub commit: String,
    /// Compiler that built this program.
    pub rustc: &'static str,
    /// Share of the machine that others used just before the run, from 0 to 1.
    pub busy_share: f64,
}

impl Machine {
    /// Looks at the machine; takes a third of a second.
    pub fn observe() -> Self {
        Self {
            processor: field("/proc/cpuinfo", "model name"),
            kernel: line_of("/proc/sys/kernel/osrelease"),
            cores: team::cores().len(),
            memory_mib: memory_kib("MemTotal") / 1024,
            transparent_huge_pages: chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
            commit: commit(),
            rustc: env!("BENCH_RUSTC"),
            busy_share: busy_share(),
        }
    }

    /// The head of a report.
    pub fn describe(&self) -> String {
        let busy = if self.busy_share > BUSY_SHARE_MAX {
            format!(
                "\nNOTE: others use {:.0} % of this machine; figures will be low and unsteady",
                self.busy_share * 100.0
            )
        } else {
            String::new()
        };
        format!(
            "{}, {} cores, {} MiB, Linux {}, huge pages: {}\n{}, commit {}{busy}",
            self.processor,
            self.cores,
            self.memory_mib,
            self.kernel,
            self.transparent_huge_pages,
            self.rustc,
            self.commit,
        )
    }
}

/// Only an optimised build may report figures.
///
/// # Errors
/// In a debug build.
pub fn refuse_debug() -> Result<(), Failure> {
    if cfg!(debug_assertions) {
        return Err(Failure::new(
            "this is a debug build: its figures would mean nothing; build with --release",
        ));
    }
    Ok(())
}

/// Memory that could be had now without harm, in bytes.
pub fn memory_available() -> u64 {
    memory_kib("MemAvailable") * 1024
}

/// Memory of this process on huge pages, in KiB; `None` where the system does not say.
pub fn huge_page_kib() -> Option<u64> {
    number(&field("/proc/self/smaps_rollup", "AnonHugePages"))
}

/// Resident memory of this process in bytes.
pub fn resident_bytes() -> u64 {
    number(&field("/proc/self/smaps_rollup", "Rss")).unwrap_or(0) * 1024
}

/// Most resident memory this process ever had, in bytes.
pub fn peak_resident_bytes() -> u64 {
    number(&field("/proc/self/status", "VmHWM")).unwrap_or(0) * 1024
}

/// A cache line's round trip as a report says it.
pub fn describe_line(trip: Option<&Summary>) -> String {
    match trip {
        None => "one core: no cache line travels".to_owned(),
        Some(trip) => format!(
            "cache line round trip {:.0} ns ({}), {:.0} to {:.0}",
            trip.median,
            line::class(trip.median),
            trip.min,
            trip.max
        ),
    }
}

fn line_of(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn field(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .find(|line| line.starts_with(name))
        .and_then(|line| line.split_once(':'))
        .map_or_else(
            || "unknown".to_owned(),
            |(_, value)| value.trim().to_owned(),
        )
}

fn number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

fn memory_kib(name: &str) -> u64 {
    number(&field("/proc/meminfo", name)).unwrap_or(0)
}

/// The word in brackets: `always [madvise] never`.
fn chosen(path: &str) -> String {
    let text = line_of(path);
    match text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
    {
        Some((word, _)) => word.to_owned(),
        None => text,
    }
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(["-C", env!("CARGO_MANIFEST_DIR")])
            .args(arguments)
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    match git(&["status", "--porcelain"]) {
        Some(changes) if !changes.is_empty() => format!("{commit}-changed"),
        _ => commit,
    }
}

/// Processor time of all others, while this process sleeps.
fn busy_share() -> f64 {
    let Some(before) = processor_ticks() else {
        return 0.0;
    };
    thread::sleep(WATCH);
    let Some(after) = processor_ticks() else {
        return 0.0;
    };
    let (all, idle) = (after.0 - before.0, after.1 - before.1);
    if all == 0 {
        0.0
    } else {
        1.0 - idle as f64 / all as f64
    }
}

/// Ticks of all processors: all of them, and the idle ones.
fn processor_ticks() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<u64> = text
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    Some((ticks.iter().sum(), ticks.get(3)? + ticks.get(4)?))
}
