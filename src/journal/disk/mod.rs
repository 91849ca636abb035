//! A disk: one directory of named files, as much of it as durability needs.
//!
//! # What is durable when
//! Bytes that were written are durable once [`DiskFile::sync`] has returned `Ok`, and until then
//! any sector of [`SECTOR_BYTES`] may hold the old bytes, the new ones, or some of each. A file's
//! creation, renaming or removal is durable once [`Disk::sync_directory`] has returned `Ok`. After
//! a sync that failed nothing is known, and it must not be tried again on the same file: the system
//! has already forgotten what it could not write (Rebello et al., *Can applications recover from
//! fsync failures?*, ATC 2020).
//!
//! # Two disks
//! [`FileDisk`] is a directory of the system. The simulated one of the tests loses, keeps, tears
//! and reorders what was not synced, fails at the n-th operation, and lies.

mod file;
#[cfg(test)]
pub(crate) mod simulated;

pub(crate) use file::{DirectAccess, FileDisk};

/// The unit that a disk writes as a whole, at best.
pub(crate) const SECTOR_BYTES: usize = 512;

/// A directory of named files.
pub(crate) trait Disk: Send + Sync {
    /// A file's name as messages show it.
    fn path(&self, name: &str) -> String;
    /// A new, empty file; there must be none of this name.
    fn create(&self, name: &str) -> Result<Box<dyn DiskFile>, DiskError>;
    /// A file that exists, to read and, if that is permitted, to write.
    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, DiskError>;
    /// Removes a file's name.
    fn remove(&self, name: &str) -> Result<(), DiskError>;
    /// Gives a file another name, which must be free.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;
    /// The names of all files, in any order.
    fn list(&self) -> Result<Vec<String>, DiskError>;
    /// Makes names durable.
    fn sync_directory(&self) -> Result<(), DiskError>;
    /// Bytes that files can still grow by.
    fn free_bytes(&self) -> Result<u64, DiskError>;
}

/// An open file. Offsets and lengths that are multiples of a sector go past the system's cache
/// where the file system has that.
pub(crate) trait DiskFile: Send {
    /// The file as messages show it.
    fn path(&self) -> &str;
    /// Fills `into` with the bytes from `offset`; [`DiskError::Short`] if the file ends before.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError>;
    /// Writes `bytes` at `offset`; the file grows as needed, with zeros before them.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;
    /// As [`write_at`](Self::write_at), of parts one behind the other. After an error any of them may be
    /// written.
    fn write_parts_at(&mut self, mut offset: u64, parts: &[&[u8]]) -> Result<(), DiskError> {
        for part in parts {
            self.write_at(offset, part)?;
            offset += part.len() as u64;
        }
        Ok(())
    }
    /// Makes all that was written durable.
    fn sync(&mut self) -> Result<(), DiskError>;
    /// The file's length.
    fn bytes(&self) -> Result<u64, DiskError>;
    /// The file of the system, to be read only, if it is one.
    fn file(&self) -> Option<std::fs::File> {
        None
    }
}

/// The disk refused an operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DiskError {
    /// The disk, or the user's quota, is full. Free some space; writing goes on by itself then.
    #[error("{file}: no space left to {operation} it; free some space on its file system")]
    NoSpace {
        /// What was tried.
        operation: &'static str,
        /// The file.
        file: String,
    },
    /// The file, or the directory that it was to be in, is not there.
    #[error("{file} is not there: give the directory of a database, or put the file back")]
    NotFound {
        /// The file.
        file: String,
    },
    /// A file of this name is there already.
    #[error("{file} is there already: remove it, or choose another directory")]
    Exists {
        /// The file.
        file: String,
    },
    /// Another process has the database open for writing. Close it there, or ask that process.
    #[error("{file} is in use by another process: close the database there first")]
    InUse {
        /// The directory.
        file: String,
    },
    /// The user may not do this.
    #[error("{file}: no permission to {operation} it; change its owner or mode")]
    Denied {
        /// What was tried.
        operation: &'static str,
        /// The file.
        file: String,
    },
    /// The file ends before the bytes that were asked for.
    #[error(
        "{file} ends before byte {end}: it was cut short; restore a backup, or roll back to before"
    )]
    Short {
        /// The file.
        file: String,
        /// Where the bytes asked for end.
        end: u64,
    },
    /// The disk failed.
    #[error("{file}: the system could not {operation} it: {source}; check the disk")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file.
        file: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl DiskError {
    /// What the system's answer means for `file`.
    fn from_io(operation: &'static str, file: &str, source: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let file = file.to_owned();
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                Self::NoSpace { operation, file }
            }
            ErrorKind::NotFound => Self::NotFound { file },
            ErrorKind::AlreadyExists => Self::Exists { file },
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Self::Denied { operation, file }
            }
            _ => Self::Io {
                operation,
                file,
                source,
            },
        }
    }

    /// Whether space is what is missing, so that waiting may help.
    pub(crate) fn is_no_space(&self) -> bool {
        matches!(self, Self::NoSpace { .. })
    }

    /// Whether the file is not there.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

/// Removes a file that may not be there.
pub(crate) fn remove_if_there(disk: &dyn Disk, name: &str) -> Result<(), DiskError> {
    match disk.remove(name) {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
