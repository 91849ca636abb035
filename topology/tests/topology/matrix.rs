//! Restrictions that are really laid on a process, row by row: what it finds, and what it prints.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ancile_topology::{
    Machine, Plan, Policy, Report, RestrictionKind, SourceKind, current_affinity,
    pin_current_thread,
};

use crate::collection::shared;
use crate::process::{behind, describe, program, run, works};

fn value(report: &Report, kind: RestrictionKind) -> Option<&str> {
    let found = report.restrictions.iter().find(|it| it.kind == kind)?;
    Some(&found.value)
}

fn pus(report: &Report) -> Vec<u32> {
    report.plan.seats.iter().map(|seat| seat.pu).collect()
}

/// The PUs that this process may use, and two of them if there are two.
fn here() -> (Machine, Option<(u32, u32)>) {
    let machine = Machine::discover();
    let pus: Vec<u32> = machine.allowed_pus.iter().take(2).collect();
    let pair = pus.first().copied().zip(pus.get(1).copied());
    if pair.is_none() {
        println!("skipped: fewer than two PUs are allowed here");
    }
    (machine, pair)
}

#[test]
fn unrestricted_every_allowed_pu_gets_a_shard() {
    let report = run(describe(&["json"])).report();
    let (machine, _) = here();
    assert!(report.machine.is_this_system);
    assert_eq!(report.machine.allowed_pus, machine.allowed_pus);
    assert_eq!(value(&report, RestrictionKind::Affinity), None);
    if machine.cpu_quota.is_none() {
        assert_eq!(report.plan.seats.len(), machine.allowed_pus.len());
    }
}

#[test]
fn the_files_of_this_system_tell_the_same_as_its_discovery() {
    let from_files = Machine::from_sysfs("/").unwrap();
    let (machine, _) = here();
    let numbers = |machine: &Machine| -> std::collections::BTreeSet<u32> {
        machine.pus.iter().map(|pu| pu.os_index).collect()
    };
    assert_eq!(numbers(&from_files), numbers(&machine));
    assert_eq!(from_files.permitted_pus, machine.permitted_pus);
    assert_eq!(from_files.cores.len(), machine.cores.len());
    assert_eq!(from_files.numa_nodes.len(), machine.numa_nodes.len());
}

#[test]
fn taskset_leaves_only_its_pus() {
    let (_, Some((first, second))) = here() else {
        return;
    };
    for pu in [first, second] {
        let list = pu.to_string();
        if !works(&["taskset", "-c", &list, "true"]) {
            return;
        }
        let report = run(behind(&["taskset", "-c", &list], &["json"])).report();
        assert_eq!(pus(&report), [pu]);
        assert_eq!(
            value(&report, RestrictionKind::Affinity),
            Some(list.as_str())
        );
        let text = run(behind(&["taskset", "-c", &list], &["pinned"])).text;
        assert!(
            text.contains(&format!("affinity (taskset): {pu} ")),
            "{text}"
        );
        assert!(text.contains(&format!("{pu} / {pu}     yes")), "{text}");
    }
}

#[test]
fn fourteen_shards_on_one_pu_share_it_and_say_so() {
    let (_, Some((first, _))) = here() else {
        return;
    };
    let list = first.to_string();
    if !works(&["taskset", "-c", &list, "true"]) {
        return;
    }
    let report = run(behind(&["taskset", "-c", &list], &["json", "here", "14"])).report();
    assert_eq!(pus(&report), [first; 14]);
    assert!(report.plan.oversubscribed);
}

#[test]
fn the_environment_stands_in_for_the_discovered_count() {
    let mut command = describe(&["json"]);
    command.env("ANCILE_SHARDS", "14");
    assert_eq!(run(command).report().plan.seats.len(), 14);
    for wrong in ["0", "many", "-1"] {
        let mut command = describe(&["json"]);
        command.env("ANCILE_SHARDS", wrong);
        let output = run(command);
        assert_eq!((output.code, output.errors.lines().count()), (Some(1), 1));
        assert!(output.errors.contains("ANCILE_SHARDS"), "{}", output.errors);
    }
}

/// A control group of version 1, gone at the end.
struct Group {
    path: PathBuf,
}

impl Group {
    /// `None`, with the reason printed, where none can be made.
    fn new(controller: &str, name: &str, files: &[(&str, &str)]) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup").join(controller);
        let path = root.join(format!("ancile-{name}-{}", std::process::id()));
        if !root.join("cgroup.procs").exists() || fs::create_dir(&path).is_err() {
            println!(
                "skipped: no control group can be made below {}",
                root.display()
            );
            return None;
        }
        let group = Self { path };
        group.write(files).then_some(group)
    }

    /// A group inside this one.
    fn inside(&self, name: &str, files: &[(&str, &str)]) -> Option<Self> {
        let group = Self {
            path: self.path.join(name),
        };
        fs::create_dir(&group.path).ok()?;
        group.write(files).then_some(group)
    }

    fn write(&self, files: &[(&str, &str)]) -> bool {
        files.iter().all(|(name, text)| {
            let written = fs::write(self.path.join(name), text);
            if let Err(error) = &written {
                println!("skipped: {name} cannot be set: {error}");
            }
            written.is_ok()
        })
    }

    /// The program, started inside the group.
    fn command(&self, arguments: &[&str]) -> Command {
        let enter = format!(
            "echo $$ > {}/cgroup.procs && exec \"$@\"",
            self.path.display()
        );
        behind(&["sh", "-c", &enter, "sh"], arguments)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let removed = fs::remove_dir(&self.path);
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

#[test]
fn a_nested_cpuset_leaves_only_its_pus() {
    let (_, Some((first, second))) = here() else {
        return;
    };
    let both = format!("{first},{second}");
    let Some(outer) = Group::new(
        "cpuset",
        "outer",
        &[("cpuset.cpus", &both), ("cpuset.mems", "0")],
    ) else {
        return;
    };
    let one = second.to_string();
    let Some(inner) = outer.inside("inner", &[("cpuset.cpus", &one), ("cpuset.mems", "0")]) else {
        return;
    };
    let report = run(inner.command(&["json"])).report();
    assert_eq!(pus(&report), [second]);
    assert_eq!(value(&report, RestrictionKind::Cpuset), Some(one.as_str()));
    let text = run(inner.command(&["pinned"])).text;
    assert!(
        text.contains(&format!(
            "cgroup cpuset, PUs: {second} (/sys/fs/cgroup/cpuset/ancile-outer"
        )),
        "{text}"
    );
    // A seat outside the cpuset is refused before any thread starts; asking for more wraps round.
    let report = run(inner.command(&["json", "here", "3"])).report();
    assert_eq!(pus(&report), [second; 3]);
}

#[test]
fn a_quota_is_rounded_up_and_an_explicit_count_wins() {
    let (machine, Some(_)) = here() else {
        return;
    };
    let pus = machine.allowed_pus.len();
    for (quota, shown, shards) in [
        ("50000", "0.50", 1),
        ("100000", "1.00", 1),
        ("150000", "1.50", 2),
    ] {
        let files = [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", quota)];
        let Some(group) = Group::new("cpu", "quota", &files) else {
            return;
        };
        let report = run(group.command(&["json"])).report();
        assert_eq!(report.plan.seats.len(), shards.min(pus), "{quota}");
        let expected = format!("{shown} processors");
        assert_eq!(
            value(&report, RestrictionKind::CpuQuota),
            Some(expected.as_str())
        );
        let mut command = group.command(&["json"]);
        command.env("ANCILE_SHARDS", "2");
        assert_eq!(run(command).report().plan.seats.len(), 2);
    }
}

/// Runs on a thread of its own, so that no pin outlives the test.
fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().expect("the thread ends well"))
}

#[test]
fn a_pinned_thread_finds_the_whole_machine_and_keeps_its_pin() {
    let (machine, Some((_, second))) = here() else {
        return;
    };
    let (found, after) = apart(|| {
        pin_current_thread(second).unwrap();
        (Machine::discover(), current_affinity().unwrap())
    });
    assert_eq!(found.allowed_pus, machine.allowed_pus);
    assert_eq!(after.to_string(), second.to_string());
    let policy = Policy::default();
    let plans = [&machine, &found].map(|it| Plan::new(it, &policy).unwrap());
    let seats = plans
        .each_ref()
        .map(|plan| plan.seats.iter().map(|seat| seat.pu).collect::<Vec<_>>());
    assert_eq!(seats[0], seats[1]);
    let pinned = |it: &&ancile_topology::Restriction| it.kind == RestrictionKind::ThreadAffinity;
    let own = found
        .restrictions
        .iter()
        .find(pinned)
        .expect("the pin is reported");
    assert_eq!(own.value, second.to_string());
}

#[test]
fn repeated_discovery_changes_nothing() {
    let policies = || {
        let text = fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
        let names = text
            .lines()
            .filter_map(|line| line.split(' ').nth(1).map(str::to_string));
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let status = || {
        let text = fs::read_to_string("/proc/thread-self/status").unwrap();
        let wanted =
            |line: &&str| line.starts_with("Cpus_allowed") || line.starts_with("Mems_allowed");
        text.lines()
            .filter(wanted)
            .map(str::to_string)
            .collect::<Vec<_>>()
    };
    let before = (status(), policies());
    let first = Machine::discover();
    for _ in 0..20 {
        let again = Machine::discover();
        assert_eq!(again.pus, first.pus);
        assert_eq!(again.allowed_pus, first.allowed_pus);
        assert_eq!(again.restrictions, first.restrictions);
    }
    assert_eq!((status(), policies()), before);
}

/// The wrapper that makes system calls answer EPERM, compiled here.
fn deny() -> Option<(tempfile::TempDir, String)> {
    let source = shared("tools/deny-mempolicy.c")?;
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("deny");
    let (source, target) = (source.display().to_string(), program.display().to_string());
    works(&["cc", "-O1", "-o", &target, &source]).then_some((directory, target))
}

#[test]
fn denied_affinity_is_reported_and_nothing_is_claimed() {
    let Some((_directory, deny)) = deny() else {
        return;
    };
    let (_, Some((first, second))) = here() else {
        return;
    };
    let output = run(behind(&[&deny, "-a"], &["pinned"]));
    assert_eq!((output.code, output.errors.as_str()), (Some(0), ""));
    let refused = format!("cannot pin to PU {first}: Operation not permitted (errno 1); allowed: ");
    assert!(output.text.contains(&refused), "{}", output.text);
    assert!(output.text.contains("no, may run on "), "{}", output.text);
    assert!(!output.text.contains(" yes "), "{}", output.text);
    assert!(
        output
            .text
            .contains(&format!("shard 1: cannot pin to PU {second}")),
        "{}",
        output.text
    );
}

#[test]
fn denied_memory_policy_changes_no_plan_and_is_reported() {
    let Some((_directory, deny)) = deny() else {
        return;
    };
    let free = run(describe(&["json"])).report();
    let denied = run(behind(&[&deny], &["json"])).report();
    assert_eq!(denied.plan.seats, free.plan.seats);
    let policy = value(&denied, RestrictionKind::MemoryPolicy).unwrap_or_default();
    assert!(
        policy.starts_with("not readable (Operation not permitted"),
        "{policy}"
    );
}

/// The program with an empty file system over a directory.
fn hidden(directory: &str, arguments: &[&str]) -> Option<Command> {
    let hide = format!("mount -t tmpfs none {directory} && exec \"$@\"");
    let wrapper = ["unshare", "-m", "sh", "-c", &hide, "sh"];
    let probe: Vec<&str> = wrapper.iter().copied().chain(["true"]).collect();
    works(&probe).then(|| behind(&wrapper, arguments))
}

#[test]
fn without_sys_the_affinity_makes_a_machine_of_one_node_in_silence() {
    let Some(command) = hidden("/sys", &["json"]) else {
        return;
    };
    let report = run(command).report();
    let (machine, _) = here();
    assert_eq!(report.machine.source.kind, SourceKind::Affinity);
    assert_eq!(report.machine.numa_nodes.len(), 1);
    assert_eq!(report.machine.allowed_pus, machine.allowed_pus);
    assert_eq!(report.plan.seats.len(), machine.allowed_pus.len());
    assert!(
        report
            .plan
            .seats
            .iter()
            .all(|seat| seat.memory_node == Some(0) && seat.arena_bytes > 0)
    );
    let text = run(hidden("/sys", &["pinned"]).unwrap()).text;
    assert!(text.contains("no processor files"), "{text}");
}

#[test]
fn without_node_files_there_is_one_node() {
    let Some(command) = hidden("/sys/devices/system/node", &["json"]) else {
        return;
    };
    let report = run(command).report();
    let (machine, _) = here();
    assert_eq!(report.machine.numa_nodes.len(), 1);
    assert_eq!(report.machine.allowed_pus, machine.allowed_pus);
}

#[test]
fn an_inherited_memory_policy_is_reported() {
    if !works(&["numactl", "--membind=0", "true"]) {
        return;
    }
    let report = run(behind(&["numactl", "--membind=0"], &["json"])).report();
    assert_eq!(
        value(&report, RestrictionKind::MemoryPolicy),
        Some("bind 0")
    );
}

#[test]
fn an_ordinary_user_gets_the_same_plan() {
    let user = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let probe: Vec<&str> = user.iter().copied().chain(["true"]).collect();
    if !works(&probe) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("describe");
    fs::copy(program(), &copy).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(directory.path(), open).unwrap();
    let mut command = Command::new(user[0]);
    command
        .args(&user[1..])
        .arg(&copy)
        .arg("json")
        .env_remove("ANCILE_SHARDS");
    let report = run(command).report();
    let own = run(describe(&["json"])).report();
    assert_eq!(report.plan.seats, own.plan.seats);
    assert_eq!(report.machine.pus, own.machine.pus);
}
