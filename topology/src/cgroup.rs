//! What the control groups of a process grant it: processors, nodes, CPU time and memory.
//!
//! Both versions are read, also mixed. The group's path is looked up in `/proc/self/cgroup`, the
//! mount in `/proc/self/mountinfo` (or `/proc/mounts` in old copies), and the mounted root is taken
//! off the path, as containers need. A group that lacks a file inherits it, so the search goes up
//! to the mount; for CPU time and memory the tightest value on the way counts.

use crate::files::Files;
use crate::machine::RestrictionKind;
use crate::set::NumberSet;

/// A limit of memory at or above this means none.
const MEMORY_UNLIMITED: u64 = 1 << 62;

/// A value and the file that holds it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Read<T> {
    pub(crate) value: T,
    pub(crate) source: String,
}

/// What the groups grant; `None` where they set no limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Grants {
    pub(crate) pus: Option<Read<NumberSet>>,
    pub(crate) nodes: Option<Read<NumberSet>>,
    pub(crate) quota: Option<Read<f64>>,
    pub(crate) memory: Option<Read<u64>>,
}

impl Grants {
    pub(crate) fn read(files: &Files) -> Self {
        let mounts = mounts(files);
        let find = |kind| find(files, &mounts, kind);
        let cpuset = find(RestrictionKind::Cpuset);
        Self {
            pus: set(
                files,
                &cpuset,
                &[
                    "cpuset.cpus.effective",
                    "cpuset.effective_cpus",
                    "cpuset.cpus",
                    "cpus",
                ],
            ),
            nodes: set(
                files,
                &cpuset,
                &[
                    "cpuset.mems.effective",
                    "cpuset.effective_mems",
                    "cpuset.mems",
                    "mems",
                ],
            ),
            quota: quota(files, &find(RestrictionKind::CpuQuota)),
            memory: memory(files, &find(RestrictionKind::MemoryLimit)),
        }
    }
}

/// A mounted hierarchy.
#[derive(Debug)]
struct Mount {
    point: String,
    /// The part of the hierarchy that is mounted there.
    root: String,
    /// Version 2, or the old file system of cpusets alone, or the controllers of version 1.
    kind: String,
    options: Vec<String>,
}

fn mounts(files: &Files) -> Vec<Mount> {
    let of_groups = |mount: &Mount| matches!(mount.kind.as_str(), "cgroup" | "cgroup2" | "cpuset");
    let lines = files.text("/proc/self/mountinfo").unwrap_or_default();
    let mounts: Vec<Mount> = lines
        .lines()
        .filter_map(mountinfo_line)
        .filter(of_groups)
        .collect();
    if !mounts.is_empty() {
        return mounts;
    }
    let lines = files.text("/proc/mounts").unwrap_or_default();
    lines
        .lines()
        .filter_map(mounts_line)
        .filter(of_groups)
        .collect()
}

/// `31 23 0:28 ROOT POINT OPTIONS - TYPE SOURCE OPTIONS`
fn mountinfo_line(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let mut front = front.split(' ').skip(3);
    let (root, point) = (front.next()?, front.next()?);
    let mut back = back.split(' ');
    let (kind, options) = (back.next()?, back.nth(1)?);
    Some(mount(point, root, kind, options))
}

/// `SOURCE POINT TYPE OPTIONS 0 0`
fn mounts_line(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ').skip(1);
    let (point, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
    Some(mount(point, "/", kind, options))
}

fn mount(point: &str, root: &str, kind: &str, options: &str) -> Mount {
    Mount {
        point: point.replace("\\040", " "),
        root: root.to_string(),
        kind: kind.to_string(),
        options: options.split(',').map(str::to_string).collect(),
    }
}

/// The directories that may hold the files of a controller: the process's group first, then its
/// parents up to the mount, for every hierarchy that has the controller.
fn find(files: &Files, mounts: &[Mount], kind: RestrictionKind) -> Vec<Vec<String>> {
    let controller = match kind {
        RestrictionKind::Cpuset => "cpuset",
        RestrictionKind::CpuQuota => "cpu",
        _ => "memory",
    };
    let groups = files.text("/proc/self/cgroup").unwrap_or_default();
    let mut places = Vec::new();
    for mount in mounts {
        let version_2 = mount.kind == "cgroup2";
        let old_cpuset = mount.kind == "cpuset" && controller == "cpuset";
        if !version_2 && !old_cpuset && !mount.options.iter().any(|option| option == controller) {
            continue;
        }
        let mut lines = groups.lines().filter_map(group_line);
        let group = lines.find(|(controllers, _)| match version_2 {
            true => controllers.is_empty(),
            false => controllers.split(',').any(|it| it == controller),
        });
        let path = match group {
            Some((_, path)) => path.to_string(),
            None if controller == "cpuset" => files.text("/proc/self/cpuset").unwrap_or_default(),
            None => String::new(),
        };
        places.push(upwards(&mount.point, below(&path, &mount.root)));
    }
    places
}

/// `3:cpu,cpuacct:/path` as controllers and path.
fn group_line(line: &str) -> Option<(&str, &str)> {
    let mut fields = line.splitn(3, ':').skip(1);
    Some((fields.next()?, fields.next()?))
}

/// The part of a group's path below the mounted root; empty if it is not below.
fn below<'a>(path: &'a str, root: &str) -> &'a str {
    let root = root.trim_end_matches('/');
    match path.strip_prefix(root) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
        _ => "",
    }
}

fn upwards(point: &str, path: &str) -> Vec<String> {
    let mut path = path.trim_end_matches('/');
    if path.contains("/..") {
        path = "";
    }
    let mut directories = vec![format!("{point}{path}")];
    while let Some((parent, _)) = path.rsplit_once('/') {
        path = parent;
        directories.push(format!("{point}{path}"));
    }
    directories
}

/// The nearest set that is not empty.
fn set(files: &Files, places: &[Vec<String>], names: &[&str]) -> Option<Read<NumberSet>> {
    let paths = places
        .iter()
        .flatten()
        .flat_map(|directory| names.iter().map(move |name| format!("{directory}/{name}")));
    paths.into_iter().find_map(|source| {
        let value = files.list(&source).filter(|set| !set.is_empty())?;
        Some(Read { value, source })
    })
}

/// The tightest CPU time on the way up, in processors.
fn quota(files: &Files, places: &[Vec<String>]) -> Option<Read<f64>> {
    let found = places.iter().flatten().filter_map(|directory| {
        let source = format!("{directory}/cpu.max");
        if let Some(text) = files.text(&source) {
            let (quota, period) = text.split_once(' ')?;
            return ratio(quota, period).map(|value| Read { value, source });
        }
        let source = format!("{directory}/cpu.cfs_quota_us");
        let quota = files.text(&source)?;
        let period = files.text(&format!("{directory}/cpu.cfs_period_us"))?;
        ratio(&quota, &period).map(|value| Read { value, source })
    });
    found.min_by(|a, b| a.value.total_cmp(&b.value))
}

/// Microseconds of a period; no limit is `max` or -1.
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let quota: u64 = quota.trim().parse().ok().filter(|quota| *quota > 0)?;
    let period: u64 = period.trim().parse().ok().filter(|period| *period > 0)?;
    Some(quota as f64 / period as f64)
}

/// The tightest limit of memory on the way up.
fn memory(files: &Files, places: &[Vec<String>]) -> Option<Read<u64>> {
    let paths = places.iter().flatten().flat_map(|directory| {
        ["memory.max", "memory.limit_in_bytes"].map(|name| format!("{directory}/{name}"))
    });
    let found = paths.filter_map(|source| {
        let value = files
            .number(&source)
            .filter(|bytes| *bytes < MEMORY_UNLIMITED)?;
        Some(Read { value, source })
    });
    found.min_by_key(|read| read.value)
}

#[cfg(test)]
mod tests {
    use super::{below, mountinfo_line, ratio, upwards};

    #[test]
    fn a_container_sees_its_group_at_the_mount() {
        assert_eq!(below("/docker/abc/job", "/docker/abc"), "/job");
        assert_eq!(below("/docker/abcd", "/docker/abc"), "");
        assert_eq!(below("/job", "/"), "/job");
        assert_eq!(upwards("/c", "/a/b"), ["/c/a/b", "/c/a", "/c"]);
        assert_eq!(upwards("/c", "/../outside"), ["/c"]);
        assert_eq!(upwards("/c", ""), ["/c"]);
    }

    #[test]
    fn both_forms_of_no_quota_are_no_quota() {
        assert_eq!(ratio("max", "100000"), None);
        assert_eq!(ratio("-1", "100000"), None);
        assert_eq!(ratio("50000", "100000"), Some(0.5));
        assert_eq!(ratio("50000", "0"), None);
    }

    #[test]
    fn optional_fields_of_mountinfo_are_skipped() {
        let line =
            "34 31 0:31 /a /sys/fs/cgroup/cpuset rw shared:9 master:2 - cgroup cgroup rw,cpuset";
        let mount = mountinfo_line(line).unwrap();
        assert_eq!(
            (mount.root.as_str(), mount.point.as_str()),
            ("/a", "/sys/fs/cgroup/cpuset")
        );
        assert!(mount.options.contains(&"cpuset".to_string()));
    }
}
