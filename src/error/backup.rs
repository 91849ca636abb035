//! What can go wrong with backups.

use std::path::PathBuf;

use super::OpenError;

/// A backup was not made, or not restored. What was begun of it was removed, if that could be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The engine's rows are in memory only.
    #[error("the engine's rows are in memory only: there are no files to copy")]
    InMemory,
    /// The database has mapped files, which cannot be copied while they are in use. Close it, and copy its
    /// directory; or dump it.
    #[error(
        "the database has mapped files (Durability::Process), which cannot be copied while they are in use: close it and copy its directory, or dump it"
    )]
    NoJournals,
    /// The database is open for reading only: nothing changes its files. Copy its directory, or open it
    /// for writing.
    #[error("the database is open for reading only: open it for writing to make a backup")]
    ReadOnly,
    /// Something of this name is there. Nothing is copied over it.
    #[error("{} is there already: nothing is copied over it; choose another directory", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// Shards must go on while a backup is made, so it cannot be made inside one. Use a thread of the
    /// program.
    #[error("a backup cannot be made inside a shard: make it from a thread of the program")]
    InsideShard,
    /// The engine was closed, or belongs to the process that this one was forked from.
    #[error("the database was closed before its backup was made")]
    Closed,
    /// Who asked for the backup has gone away.
    #[error("the backup was interrupted")]
    Interrupted,
    /// The files could not be read, written, or found whole.
    #[error("{0}")]
    Files(String),
    /// The process that has the database open has answered with an error.
    #[error("the process that has the database open says: {0}")]
    Remote(String),
    /// The directory is no backup, or one whose making was interrupted.
    #[error("{} is no backup: {reason}", path.display())]
    NoBackup {
        /// The directory.
        path: PathBuf,
        /// What speaks against it.
        reason: String,
    },
    /// A file of the backup is not what it was. Take another backup.
    #[error("{} is damaged: {what}; use another backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The database could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}
