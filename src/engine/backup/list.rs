//! The file BACKUP: which files a backup has, so that one that is cut short or damaged is noticed.
//!
//! JSON: `format_major`, `format_minor`, the `epoch` at whose end the database was, the `time` of the
//! backup in seconds since 1970, and `files` with `name`, `bytes` and `checksum` (CRC-64/NVME,
//! hexadecimal). The file does not name itself.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::failed;
use crate::engine::directory::MANIFEST;
use crate::error::{BackupError, OpenError};

pub(super) const NAME: &str = crate::engine::directory::BACKUP;

const FORMAT: (u32, u32) = (1, 0);

#[derive(Serialize, Deserialize)]
pub(super) struct FileList {
    format_major: u32,
    format_minor: u32,
    pub(super) epoch: u64,
    time: u64,
    pub(super) files: Vec<FileEntry>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct FileEntry {
    pub(super) name: String,
    pub(super) bytes: u64,
    #[serde(serialize_with = "as_hex", deserialize_with = "of_hex")]
    pub(super) checksum: u64,
}

/// The part of every version's list that says which version it is.
#[derive(Deserialize)]
struct Version {
    format_major: u32,
}

impl FileList {
    pub(super) fn new(epoch: u64, files: Vec<FileEntry>) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            format_major: FORMAT.0,
            format_minor: FORMAT.1,
            epoch,
            time: time.map_or(0, |time| time.as_secs()),
            files,
        }
    }

    pub(super) fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// The list of a backup that came to its end.
    pub(super) fn read(directory: &Path) -> Result<Self, BackupError> {
        let none = |reason: String| BackupError::NoBackup {
            path: directory.to_owned(),
            reason,
        };
        let path = directory.join(NAME);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(none(format!("it has no file {NAME}")));
            }
            read => read.map_err(failed(&path, "read"))?,
        };
        let unreadable = |error: serde_json::Error| none(format!("its {NAME} is damaged: {error}"));
        let version: Version = serde_json::from_str(&text).map_err(unreadable)?;
        if version.format_major != FORMAT.0 {
            return Err(BackupError::Open(OpenError::Version {
                path,
                found: version.format_major,
                reads: FORMAT.0,
            }));
        }
        let list: Self = serde_json::from_str(&text).map_err(unreadable)?;
        if !directory.join(MANIFEST).exists() {
            return Err(none(format!(
                "it has no file {MANIFEST}: its making was interrupted"
            )));
        }
        match list.files.iter().find(|file| !file.is_own()) {
            None => Ok(list),
            Some(file) => Err(none(format!("its {NAME} names {:?}", file.name))),
        }
    }
}

impl FileEntry {
    /// Whether the name is that of a file that a backup may have: nothing outside of it.
    fn is_own(&self) -> bool {
        let is_plain = |name: &str| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
                && !name.starts_with('.')
        };
        match self.name.split_once('/') {
            None => self.name == MANIFEST,
            Some((shard, name)) => shard.starts_with("shard-") && is_plain(shard) && is_plain(name),
        }
    }
}

fn as_hex<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:016x}"))
}

fn of_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    u64::from_str_radix(&text, 16).map_err(serde::de::Error::custom)
}
