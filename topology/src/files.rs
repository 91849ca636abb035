//! Reads small files of the kernel below a root directory, `/` or a copy of another machine's.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::set::NumberSet;

/// No file of interest is longer; guards against a copy that holds something else.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A directory that holds `sys/` and `proc/`.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    root: PathBuf,
}

impl Files {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The path below the root; for the running system the path itself.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's text without the blanks around it; `None` if it cannot be read.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let file = fs::File::open(self.path(path)).ok()?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_string())
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// A set from a file in list form.
    pub(crate) fn list(&self, path: &str) -> Option<NumberSet> {
        NumberSet::from_list(&self.text(path)?).ok()
    }

    /// A set from the first of these files that holds one: names that end in `list` or are a list
    /// by nature are read as lists, all others as masks.
    pub(crate) fn set(&self, directory: &str, names: &[&str]) -> Option<NumberSet> {
        names.iter().find_map(|name| {
            let path = format!("{directory}/{name}");
            if name.ends_with("list") {
                self.list(&path)
            } else {
                NumberSet::from_mask(&self.text(&path)?).ok()
            }
        })
    }

    /// The numbers of the entries called `prefix` and a number.
    pub(crate) fn numbered(&self, directory: &str, prefix: &str) -> NumberSet {
        let names = self.names(directory);
        let numbers = names.iter().filter_map(|name| name.strip_prefix(prefix));
        numbers.filter_map(|number| number.parse().ok()).collect()
    }

    /// The names of a directory's entries, sorted.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(directory))
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// A value in `MemTotal:  1234 kB` form, in bytes. 0 counts as unknown or none.
    pub(crate) fn memory_total(&self, path: &str) -> Option<u64> {
        let text = self.text(path)?;
        let line = text.lines().find(|line| line.contains("MemTotal:"))?;
        let kilobytes: u64 = line.split_whitespace().rev().nth(1)?.parse().ok()?;
        Some(kilobytes.saturating_mul(1024)).filter(|bytes| *bytes > 0)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }
}
