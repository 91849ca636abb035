//! A directory of the system as a disk.
//!
//! # Past the cache
//! Each file is opened twice: with `O_DIRECT` where the file system has it, and without. What starts
//! and ends at a sector goes the direct way through an aligned buffer, anything else through the
//! system's cache; the kernel keeps the two coherent, and one `fdatasync` covers both, for both are
//! the same file. Direct reads also show what is really on the disk after a sync that failed, where
//! the cache may show what never got there; without direct access that remains so.
//!
//! Some file systems (older tmpfs) refuse direct access when a file is opened, others (disks with
//! sectors of 4 KiB) when it is used. Either way the file is then used through the cache alone, and
//! [`FileDisk::direct_access`] tells.

use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::{Disk, DiskError, DiskFile, SECTOR_BYTES};

/// Alignment of the buffers of direct access: enough for every disk in use.
const ALIGNMENT: usize = 4096;
/// Bytes that pass through the aligned buffer at once.
const BOUNCE_BYTES: usize = 1 << 20;

/// A directory of the system.
pub(crate) struct FileDisk {
    directory: PathBuf,
    handle: File,
    direct: Arc<AtomicU8>,
}

/// Whether files are written past the system's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectAccess {
    /// No file was used yet.
    Unknown,
    /// They are.
    Used,
    /// The file system does not have it; the cache is used.
    Refused,
}

impl FileDisk {
    /// The disk of a directory that exists.
    pub(crate) fn new(directory: impl Into<PathBuf>) -> Result<Self, DiskError> {
        let directory = directory.into();
        let shown = directory.display().to_string();
        let handle = File::open(&directory).map_err(|e| DiskError::from_io("open", &shown, e))?;
        let direct = Arc::new(AtomicU8::new(DirectAccess::Unknown as u8));
        Ok(Self {
            directory,
            handle,
            direct,
        })
    }

    /// Keeps other processes from locking the directory for as long as this disk lives. Who writes
    /// must; who only reads need not.
    pub(crate) fn lock(&self) -> Result<(), DiskError> {
        self.handle.try_lock().map_err(|error| {
            let file = self.path("");
            match error {
                TryLockError::WouldBlock => DiskError::InUse { file },
                TryLockError::Error(error) => DiskError::from_io("lock", &file, error),
            }
        })
    }

    /// Whether files are written past the system's cache, as far as is known.
    pub(crate) fn direct_access(&self) -> DirectAccess {
        match self.direct.load(Ordering::Relaxed) {
            0 => DirectAccess::Unknown,
            1 => DirectAccess::Used,
            _ => DirectAccess::Refused,
        }
    }

    fn file(&self, name: &str, create: bool) -> Result<Box<dyn DiskFile>, DiskError> {
        let place = self.directory.join(name);
        let path = place.display().to_string();
        let operation = if create { "create" } else { "open" };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(create);
        let mut opened = options.open(&place);
        let is_denied = |e: &Error| {
            matches!(
                e.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            )
        };
        if !create && opened.as_ref().is_err_and(is_denied) {
            // What may be read is of use to those who only read.
            options.write(false);
            opened = options.open(&place);
        }
        let cached = opened.map_err(|e| DiskError::from_io(operation, &path, e))?;
        options.create_new(false).custom_flags(libc::O_DIRECT);
        let direct = options.open(&place).ok();
        let told = match &direct {
            Some(_) => DirectAccess::Used,
            None => DirectAccess::Refused,
        };
        self.direct.fetch_max(told as u8, Ordering::Relaxed);
        Ok(Box::new(SystemFile {
            path,
            cached,
            uses_direct: Cell::new(direct.is_some()),
            direct,
            bounce: RefCell::new(Bounce::default()),
            told: Arc::clone(&self.direct),
        }))
    }
}

impl Disk for FileDisk {
    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn create(&self, name: &str) -> Result<Box<dyn DiskFile>, DiskError> {
        self.file(name, true)
    }

    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, DiskError> {
        self.file(name, false)
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        std::fs::remove_file(self.directory.join(name))
            .map_err(|e| DiskError::from_io("remove", &self.path(name), e))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        std::fs::rename(self.directory.join(from), self.directory.join(to))
            .map_err(|e| DiskError::from_io("rename", &self.path(from), e))
    }

    fn list(&self) -> Result<Vec<String>, DiskError> {
        let failed = |e| DiskError::from_io("list", &self.path(""), e);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(failed)? {
            // A name that is not text is none of ours.
            names.extend(entry.map_err(failed)?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn sync_directory(&self) -> Result<(), DiskError> {
        if syncs_nothing() {
            return Ok(());
        }
        let synced = self.handle.sync_all();
        synced.map_err(|e| DiskError::from_io("sync", &self.path(""), e))
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        let failed = |e: rustix::io::Errno| DiskError::from_io("measure", &self.path(""), e.into());
        let space = rustix::fs::fstatvfs(&self.handle).map_err(failed)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

struct SystemFile {
    path: String,
    cached: File,
    direct: Option<File>,
    /// Whether the direct way was never refused.
    uses_direct: Cell<bool>,
    bounce: RefCell<Bounce>,
    told: Arc<AtomicU8>,
}

impl SystemFile {
    /// The direct way, if a range may take it.
    fn direct(&self, offset: u64, bytes: usize) -> Option<&File> {
        let is_whole = offset.is_multiple_of(SECTOR_BYTES as u64)
            && bytes.is_multiple_of(SECTOR_BYTES)
            && bytes > 0;
        self.direct
            .as_ref()
            .filter(|_| is_whole && self.uses_direct.get())
    }

    /// Takes the way through the cache from now on if that is the reason; else passes the error on.
    fn without_direct(&self, error: Error) -> Result<(), Error> {
        if error.kind() != ErrorKind::InvalidInput {
            return Err(error);
        }
        self.uses_direct.set(false);
        let told = DirectAccess::Refused as u8;
        self.told.fetch_max(told, Ordering::Relaxed);
        Ok(())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let Some(direct) = self.direct(offset, into.len()) else {
            return self.cached.read_exact_at(into, offset);
        };
        let mut bounce = self.bounce.borrow_mut();
        let mut at = offset;
        for part in into.chunks_mut(BOUNCE_BYTES) {
            let buffer = bounce.of(part.len());
            match direct.read_exact_at(buffer, at) {
                Ok(()) => part.copy_from_slice(buffer),
                Err(error) => {
                    self.without_direct(error)?;
                    self.cached.read_exact_at(part, at)?;
                }
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut at = offset;
        for part in bytes.chunks(BOUNCE_BYTES) {
            let mut written = false;
            if let Some(direct) = self.direct(at, part.len()) {
                let mut bounce = self.bounce.borrow_mut();
                let buffer = bounce.of(part.len());
                buffer.copy_from_slice(part);
                match direct.write_all_at(buffer, at) {
                    Ok(()) => written = true,
                    Err(error) => self.without_direct(error)?,
                }
            }
            if !written {
                self.cached.write_all_at(part, at)?;
            }
            at += part.len() as u64;
        }
        Ok(())
    }
}

impl SystemFile {
    /// Writes parts through one buffer, if the direct way may be taken for them.
    fn write_together(&self, offset: u64, parts: &[&[u8]]) -> Result<bool, Error> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let Some(direct) = self.direct(offset, bytes).filter(|_| bytes <= BOUNCE_BYTES) else {
            return Ok(false);
        };
        let mut bounce = self.bounce.borrow_mut();
        let mut rest = bounce.of(bytes);
        for part in parts {
            let (place, behind) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = behind;
        }
        match direct.write_all_at(bounce.of(bytes), offset) {
            Ok(()) => Ok(true),
            Err(error) => self.without_direct(error).map(|()| false),
        }
    }
}

impl DiskFile for SystemFile {
    fn path(&self) -> &str {
        &self.path
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.read(offset, into).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => DiskError::Short {
                file: self.path.clone(),
                end: offset.saturating_add(into.len() as u64),
            },
            _ => DiskError::from_io("read", &self.path, error),
        })
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write(offset, bytes).map_err(|error| {
            // A file that was opened to be read only.
            if error.raw_os_error() == Some(libc::EBADF) {
                let file = self.path.clone();
                let operation = "write";
                return DiskError::Denied { operation, file };
            }
            DiskError::from_io("write", &self.path, error)
        })
    }

    fn write_parts_at(&mut self, mut offset: u64, parts: &[&[u8]]) -> Result<(), DiskError> {
        let together = self.write_together(offset, parts);
        if together.map_err(|e| DiskError::from_io("write", &self.path, e))? {
            return Ok(());
        }
        for part in parts {
            self.write_at(offset, part)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        if syncs_nothing() {
            return Ok(());
        }
        let synced = self.cached.sync_data();
        synced.map_err(|e| DiskError::from_io("sync", &self.path, e))
    }

    fn file(&self) -> Option<File> {
        self.cached.try_clone().ok()
    }

    fn bytes(&self) -> Result<u64, DiskError> {
        let read = self.cached.metadata();
        let read = read.map_err(|e| DiskError::from_io("measure", &self.path, e));
        Ok(read?.len())
    }
}

/// Whether nothing is to be made durable, because the environment says so: the control of power cuts.
#[cfg(all(feature = "internals", not(test)))]
fn syncs_nothing() -> bool {
    static NOTHING: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *NOTHING.get_or_init(|| std::env::var_os("ANCILE_CONTROL_WITHOUT_SYNC").is_some())
}

#[cfg(not(all(feature = "internals", not(test))))]
#[inline(always)]
const fn syncs_nothing() -> bool {
    false
}

/// A buffer whose start is aligned.
#[derive(Default)]
struct Bounce(Vec<u8>);

impl Bounce {
    fn of(&mut self, bytes: usize) -> &mut [u8] {
        if self.0.len() < bytes + ALIGNMENT {
            self.0 = vec![0; bytes + ALIGNMENT];
        }
        let start = self.0.as_ptr().align_offset(ALIGNMENT);
        &mut self.0[start..start + bytes]
    }
}
