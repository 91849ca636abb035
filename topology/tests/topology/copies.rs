//! Small copies of kernel files, made here: control groups of both versions and odd processors.

use std::fs;
use std::path::Path;

use ancile_topology::{Machine, Plan, Policy, RestrictionKind};

/// Writes files below a new directory.
fn copy(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in files {
        write(directory.path(), path, text);
    }
    directory
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Four cores of one thread on one node of 4 GB.
fn four_cores(more: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = copy(more);
    for pu in 0..4 {
        let topology = format!("sys/devices/system/cpu/cpu{pu}/topology");
        write(
            directory.path(),
            &format!("{topology}/physical_package_id"),
            "0\n",
        );
        write(
            directory.path(),
            &format!("{topology}/package_cpus_list"),
            "0-3\n",
        );
        write(
            directory.path(),
            &format!("{topology}/core_cpus_list"),
            &format!("{pu}\n"),
        );
        write(
            directory.path(),
            &format!("{topology}/core_id"),
            &format!("{pu}\n"),
        );
    }
    write(
        directory.path(),
        "proc/meminfo",
        "MemTotal:        4000000 kB\n",
    );
    directory
}

fn restriction(machine: &Machine, kind: RestrictionKind) -> (String, String) {
    let found = machine.restrictions.iter().find(|it| it.kind == kind);
    let found = found.unwrap_or_else(|| panic!("no {kind:?} in {:?}", machine.restrictions));
    (found.value.clone(), found.source.clone())
}

fn shards(machine: &Machine) -> usize {
    Plan::new(machine, &Policy::default()).unwrap().seats.len()
}

const VERSION_2: &str = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";

#[test]
fn version_2_groups_are_read_up_to_the_mount() {
    let directory = four_cores(&[
        ("proc/self/mountinfo", VERSION_2),
        ("proc/self/cgroup", "0::/pod/app\n"),
        ("sys/fs/cgroup/pod/cpuset.cpus.effective", "1-3\n"),
        ("sys/fs/cgroup/pod/cpuset.mems.effective", "0\n"),
        ("sys/fs/cgroup/pod/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/pod/app/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/pod/memory.max", "1073741824\n"),
        ("sys/fs/cgroup/pod/app/memory.max", "536870912\n"),
    ]);
    let machine = Machine::from_sysfs(directory.path()).unwrap();
    assert_eq!(machine.allowed_pus.to_string(), "1-3");
    assert_eq!(machine.cpu_quota, Some(1.5));
    assert_eq!(machine.memory_limit_bytes, Some(512 << 20));
    assert_eq!(shards(&machine), 2);
    assert_eq!(
        restriction(&machine, RestrictionKind::Cpuset),
        (
            "1-3".into(),
            "/sys/fs/cgroup/pod/cpuset.cpus.effective".into()
        )
    );
    let (value, source) = restriction(&machine, RestrictionKind::CpuQuota);
    assert_eq!(
        (value.as_str(), source.as_str()),
        ("1.50 processors", "/sys/fs/cgroup/pod/cpu.max")
    );
    let (value, _) = restriction(&machine, RestrictionKind::MemoryLimit);
    assert_eq!(value, "536870912 bytes");
}

#[test]
fn version_1_groups_of_a_container_are_found_below_the_mounted_root() {
    let mounts = "40 30 0:31 /docker/abc /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n\
                  41 30 0:32 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
                  42 30 0:33 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    let groups = "3:cpuset:/docker/abc\n2:cpu,cpuacct:/docker/abc\n1:memory:/docker/abc\n";
    let directory = four_cores(&[
        ("proc/self/mountinfo", mounts),
        ("proc/self/cgroup", groups),
        ("sys/fs/cgroup/cpuset/cpuset.cpus", "2\n"),
        ("sys/fs/cgroup/cpuset/cpuset.mems", "0\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        ),
    ]);
    let machine = Machine::from_sysfs(directory.path()).unwrap();
    assert_eq!(machine.allowed_pus.to_string(), "2");
    assert_eq!(
        (machine.cpu_quota, machine.memory_limit_bytes),
        (None, None)
    );
    assert_eq!(shards(&machine), 1);
}

#[test]
fn switched_off_and_isolated_pus_are_named() {
    let directory = four_cores(&[
        ("sys/devices/system/cpu/present", "0-3\n"),
        ("sys/devices/system/cpu/online", "0-2\n"),
        ("sys/devices/system/cpu/offline", "3-127\n"),
        ("sys/devices/system/cpu/isolated", "2\n"),
    ]);
    let machine = Machine::from_sysfs(directory.path()).unwrap();
    assert_eq!(machine.allowed_pus.to_string(), "0-2");
    assert_eq!(restriction(&machine, RestrictionKind::Offline).0, "3");
    assert_eq!(restriction(&machine, RestrictionKind::Isolated).0, "2");
}

#[test]
fn a_node_without_memory_takes_that_of_the_nearest() {
    let directory = four_cores(&[
        ("sys/devices/system/node/node0/cpulist", "0-1\n"),
        ("sys/devices/system/node/node0/distance", "10 21 15\n"),
        (
            "sys/devices/system/node/node0/meminfo",
            "Node 0 MemTotal:       0 kB\n",
        ),
        ("sys/devices/system/node/node3/cpulist", "2-3\n"),
        ("sys/devices/system/node/node3/distance", "21 10 30\n"),
        (
            "sys/devices/system/node/node3/meminfo",
            "Node 3 MemTotal:       1500000 kB\n",
        ),
        ("sys/devices/system/node/node7/cpulist", "\n"),
        ("sys/devices/system/node/node7/distance", "15 30 10\n"),
        (
            "sys/devices/system/node/node7/meminfo",
            "Node 7 MemTotal:       1500000 kB\n",
        ),
    ]);
    let machine = Machine::from_sysfs(directory.path()).unwrap();
    assert_eq!(machine.distance(0, 7), Some(15));
    let plan = Plan::new(&machine, &Policy::default()).unwrap();
    let nodes: Vec<_> = plan
        .seats
        .iter()
        .map(|seat| (seat.pu, seat.node, seat.memory_node))
        .collect();
    let expected = [
        (0, Some(0), Some(7)),
        (1, Some(0), Some(7)),
        (2, Some(3), Some(3)),
        (3, Some(3), Some(3)),
    ];
    assert_eq!(nodes, expected);
    assert!(plan.seats[0].remote && plan.seats[0].notes[0].contains("node 0 has no memory"));
}

#[test]
fn damaged_files_make_missing_objects_and_no_error() {
    let directory = four_cores(&[
        ("sys/devices/system/cpu/online", "what\n"),
        ("sys/devices/system/cpu/cpu0/cache/index0/level", "three\n"),
        ("sys/devices/system/cpu/cpu1/cache/index0/level", "3\n"),
        ("sys/devices/system/cpu/cpu1/cache/index0/size", "-5K\n"),
        (
            "sys/devices/system/cpu/cpu1/cache/index0/shared_cpu_list",
            "1-3\n",
        ),
        ("sys/devices/system/node/node0/cpulist", "0-\n"),
        ("proc/self/mountinfo", "nonsense\n - \n1 2 - cgroup2\n"),
        ("proc/self/cgroup", ":::::\n\n0\n"),
    ]);
    let machine = Machine::from_sysfs(directory.path()).unwrap();
    assert_eq!(machine.allowed_pus.to_string(), "0-3");
    assert_eq!(
        (machine.caches.len(), machine.caches[0].size_bytes),
        (1, None)
    );
    assert_eq!(shards(&machine), 4);
}
