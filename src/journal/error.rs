//! What can go wrong, one enum a phase: [`Refusal`] before a change is made, [`WriteError`] while
//! the journal is written, [`CheckpointError`] while the image is, [`RecoveryError`] while files are
//! opened, read, checked or rolled back. Below them all is [`DiskError`].

use super::disk::DiskError;

/// A change was refused before it was made. Nothing has happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Refusal {
    /// More changes wait for the disk than may. Flush, and try again.
    #[error(
        "{staged_bytes} bytes wait for the disk already, of {bound_bytes}: try again when it has caught up"
    )]
    Full {
        /// Bytes that wait.
        staged_bytes: usize,
        /// How many may.
        bound_bytes: usize,
    },
    /// The disk has no room for another segment of the journal. Reading goes on, and so does writing
    /// as soon as there is room again.
    #[error(
        "the disk has no room for more of the journal: free some space; writing goes on by itself then"
    )]
    NoSpace,
    /// The journal could not be written, and never will be by this process. Reading goes on.
    #[error(
        "the journal cannot be written any more ({reason}): reads go on; close the database, see to the disk, and open it again"
    )]
    Poisoned {
        /// What happened first.
        reason: String,
    },
}

/// The journal was not written. What was accepted is kept, and is not durable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum WriteError {
    /// There is no room for what was accepted. Free some space; the next flush tries again.
    #[error("the journal waits for space: {0}")]
    NoSpace(DiskError),
    /// The disk failed twice in a row. What is not durable by now never will be.
    #[error(
        "the journal cannot be written any more ({reason}): close the database, see to the disk, and open it again"
    )]
    Poisoned {
        /// What happened first.
        reason: String,
    },
}

/// A checkpoint was not taken. The one before stands, and so does the journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CheckpointError {
    /// What is to be written is not durable in the journal yet. Try again when it is.
    #[error(
        "the checkpoint's epoch {epoch} is not durable yet, only {durable} is: try again when it is"
    )]
    NotDurable {
        /// The epoch of the frozen pages.
        epoch: u64,
        /// The durable epoch.
        durable: u64,
    },
    /// The disk failed. A later checkpoint undoes what this one has written, and starts again.
    #[error("the checkpoint was given up: {0}")]
    Disk(#[from] DiskError),
    /// A file that the checkpoint reads is damaged.
    #[error("the checkpoint was given up: {0}")]
    Damaged(String),
    /// The superblock was being written when the disk failed, and nobody knows whether it was. No
    /// more checkpoints until the database is opened again; the journal goes on.
    #[error(
        "no more checkpoints until the database is opened again ({reason}): the journal goes on while there is space"
    )]
    Undecided {
        /// What happened.
        reason: String,
    },
}

/// The files could not be opened, read or rolled back. They were not made worse.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RecoveryError {
    /// The disk failed. Try again when it works.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The file is no superblock, or both of its slots are damaged.
    #[error(
        "{file} is no superblock of a database, or is damaged: give the directory of a database, or restore a backup"
    )]
    NotADatabase {
        /// The file.
        file: String,
    },
    /// A version of the program that this one is older than wrote the files.
    #[error(
        "{file} has format {found}, and this program reads format {supported}: use a program of that version"
    )]
    Version {
        /// The file.
        file: String,
        /// Major version of the file.
        found: u16,
        /// Major version of the program.
        supported: u16,
    },
    /// The files have a feature that this program cannot write.
    #[error(
        "{file} has features {features:#x} that this program can read but not write: use a newer program"
    )]
    ReadOnly {
        /// The file.
        file: String,
        /// The unknown bits.
        features: u64,
    },
    /// Files of different databases or shards were mixed up.
    #[error("{file} belongs to another database or shard: {difference}; put the right file there")]
    Stranger {
        /// The file.
        file: String,
        /// What differs.
        difference: String,
    },
    /// Bytes that were durable are not there any more. Nothing was cut off or repaired.
    #[error(
        "{file} is damaged at byte {offset}: {what}; restore a backup, or roll back to an epoch before"
    )]
    Damaged {
        /// The file.
        file: String,
        /// Where.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// A rollback was interrupted, and the files are only looked at.
    #[error("a rollback to epoch {epoch} was interrupted: `ancile recover` brings it to its end")]
    Rollback {
        /// The epoch.
        epoch: u64,
    },
    /// The epoch is not within what was kept.
    #[error("epoch {asked} cannot be gone back to: {oldest} to {newest} can")]
    OutOfReach {
        /// The epoch.
        asked: u64,
        /// The oldest that can.
        oldest: u64,
        /// The newest that can.
        newest: u64,
    },
    /// The caller's own sink of discarded records failed. Nothing was rolled back.
    #[error("the discarded changes could not be put aside ({0}): nothing was rolled back")]
    Sink(String),
}

impl RecoveryError {
    pub(super) fn damaged(file: impl Into<String>, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged {
            file: file.into(),
            offset,
            what: what.into(),
        }
    }
}
