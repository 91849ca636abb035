//! The collection of machines beside the repository, and the right values for each.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ancile_topology::Machine;

/// The directory shared beside the repository, if it is there.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared")
        .join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is absent", path.display());
    None
}

/// A row of the index: the right values for a file.
pub(crate) struct Row {
    pub(crate) file: String,
    values: Vec<(String, String)>,
}

impl Row {
    /// The value of a column as a number.
    pub(crate) fn number(&self, column: &str) -> usize {
        let text = self.text(column);
        text.parse()
            .unwrap_or_else(|_| panic!("{}: {column} is {text}", self.file))
    }

    pub(crate) fn text(&self, column: &str) -> &str {
        let found = self.values.iter().find(|(name, _)| name == column);
        &found.unwrap_or_else(|| panic!("no column {column}")).1
    }
}

/// The rows of the index whose file is in one of these directories.
pub(crate) fn rows(root: &Path, directories: &[&str]) -> Vec<Row> {
    let index = std::fs::read_to_string(root.join("index.tsv")).expect("the index can be read");
    let mut lines = index.lines();
    let heads: Vec<&str> = lines.next().expect("a heading").split('\t').collect();
    let row = |line: &str| {
        let pairs = heads.iter().zip(line.split('\t'));
        let values: Vec<_> = pairs
            .map(|(head, value)| (head.to_string(), value.to_string()))
            .collect();
        Row {
            file: values[0].1.clone(),
            values,
        }
    };
    let rows: Vec<Row> = lines.map(row).collect();
    let wanted = |row: &Row| {
        let directory = row.file.split('/').next().unwrap_or_default();
        directories.contains(&directory)
    };
    rows.into_iter().filter(wanted).collect()
}

/// A machine of the collection and the name of its file.
pub(crate) type Named = (String, Machine);

/// All machines of the collection, read once: XML files and archives of kernel files.
pub(crate) fn machines() -> impl Iterator<Item = &'static Named> {
    xml_files().iter().chain(archives())
}

/// The machine of a file; `None` if there is no collection.
pub(crate) fn machine(name: &str) -> Option<&'static Machine> {
    let found = machines().find(|(file, _)| file == name);
    assert!(
        found.is_some() || machines().next().is_none(),
        "{name} is not in the collection"
    );
    found.map(|(_, machine)| machine)
}

fn xml_files() -> &'static [Named] {
    static FILES: OnceLock<Vec<Named>> = OnceLock::new();
    FILES.get_or_init(|| {
        let Some(root) = shared("topologies") else {
            return Vec::new();
        };
        let mut files = Vec::new();
        for directory in ["xml", "xml-v1", "xml-derived", "xml-export", "lab"] {
            let entries = std::fs::read_dir(root.join(directory))
                .into_iter()
                .flatten()
                .flatten();
            files.extend(
                entries.map(|entry| format!("{directory}/{}", entry.file_name().display())),
            );
        }
        files.sort();
        let read = |name: String| {
            let machine =
                Machine::from_xml(root.join(&name)).unwrap_or_else(|error| panic!("{error}"));
            (name, machine)
        };
        files.into_iter().map(read).collect()
    })
}

/// The machines of the archives of kernel files.
pub(crate) fn archives() -> &'static [Named] {
    static ARCHIVES: OnceLock<Vec<Named>> = OnceLock::new();
    ARCHIVES.get_or_init(|| {
        let Some(root) = shared("topologies") else {
            return Vec::new();
        };
        let read = |row: Row| {
            let unpacked = Unpacked::new(&root.join(&row.file))?;
            let machine =
                Machine::from_sysfs(&unpacked.path).unwrap_or_else(|error| panic!("{error}"));
            Some((row.file, machine))
        };
        rows(&root, &["sysfs"])
            .into_iter()
            .filter_map(read)
            .collect()
    })
}

/// An archive unpacked into a directory that goes with it.
pub(crate) struct Unpacked {
    pub(crate) path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Unpacked {
    /// `None`, with the reason printed, where it cannot be unpacked here.
    pub(crate) fn new(archive: &Path) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut tar = Command::new("tar");
        tar.arg("-xjf").arg(archive).arg("-C").arg(directory.path());
        // Devices and counters are most of an archive, and nothing reads them.
        let unread = [
            "pci*",
            "class",
            "bus",
            "device-tree",
            "cpuidle",
            "cpufreq",
            "thermal_throttle",
            "virtual",
        ];
        tar.args(unread.map(|name| format!("--exclude=*/{name}")));
        match tar.output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                println!(
                    "skipped: {}: {}",
                    archive.display(),
                    String::from_utf8_lossy(&output.stderr)
                );
                return None;
            }
            Err(error) => {
                println!("skipped: {}: tar: {error}", archive.display());
                return None;
            }
        }
        let mut entries = std::fs::read_dir(directory.path())
            .expect("it was unpacked")
            .flatten();
        let path = entries.next().expect("it holds a directory").path();
        Some(Self {
            path,
            _directory: directory,
        })
    }
}
