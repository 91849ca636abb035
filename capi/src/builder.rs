//! Settings of an engine.

#![expect(unsafe_code, reason = "the functions are called from C")]

use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ancile::{Durability, EngineBuilder};

use crate::engine::Engine;
use crate::handle::{Handle, borrow, give, must_have, release, text};
use crate::status::{Error, Failure, Status, enter};

/// Changes survive nothing: an engine in memory.
pub const DURABILITY_NONE: u32 = 1;
/// Changes survive the end of the process, however it comes, but not of the system: mapped files.
pub const DURABILITY_PROCESS: u32 = 2;
/// Changes survive the end of the system, but for the latest ones: journals that are synced every so
/// often.
pub const DURABILITY_EPOCH: u32 = 3;
/// Changes are on the disk when a call that makes them returns: journals.
pub const DURABILITY_COMMIT: u32 = 4;

/// Settings for an engine; what is not set fits the machine. May be used for many engines, and by any
/// thread.
pub struct Builder {
    _opaque: [u8; 0],
}

impl Handle for Builder {
    type Value = Mutex<EngineBuilder>;
    const TAG: u64 = u64::from_le_bytes(*b"ancl.bld");
    const NAME: &str = "builder";
}

/// Changes a setting.
///
/// # Safety
/// As of [`borrow`].
unsafe fn set(
    builder: *const Builder,
    change: impl FnOnce(EngineBuilder) -> Result<EngineBuilder, Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller says so.
    let builder = unsafe { borrow(builder)? };
    let mut builder = builder.lock().unwrap_or_else(PoisonError::into_inner);
    *builder = change(builder.clone())?;
    Ok(())
}

/// Settings that fit the machine. Freed with `ancile_builder_free`.
#[unsafe(no_mangle)]
pub extern "C" fn ancile_builder_new() -> *mut Builder {
    give(Mutex::new(EngineBuilder::default()))
}

/// Frees settings; null is nothing to free. Engines that were opened with them live on.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_builder_free(builder: *mut Builder) {
    // SAFETY: the caller gives a live handle, or null.
    unsafe { release(builder) };
}

/// This many shards; by default one a processor that the process may use. A database has as many as it
/// was made with.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_builder_shards(builder: *mut Builder, shards: usize) -> Status {
    // SAFETY: the caller gives a live handle.
    unsafe {
        enter(std::ptr::null_mut(), || {
            set(builder, |builder| Ok(builder.shards(shards)))
        })
    }
}

/// The bound of each shard's memory, in bytes. Address space is reserved; memory is used only as tables
/// grow. By default the memory of the shard's node, shared by its shards.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_builder_arena_bytes(builder: *mut Builder, bytes: u64) -> Status {
    let change = |builder: EngineBuilder| Ok(builder.arena_bytes(bytes));
    // SAFETY: the caller gives a live handle.
    unsafe { enter(std::ptr::null_mut(), || set(builder, change)) }
}

/// What changes survive, one of `ANCILE_DURABILITY_...`; `milliseconds` is how often journals are synced
/// with `ANCILE_DURABILITY_EPOCH`, and means nothing else. By default `ANCILE_DURABILITY_PROCESS` for a
/// new database, and `ANCILE_DURABILITY_COMMIT` for one that has journals.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_builder_durability(
    builder: *mut Builder,
    durability: u32,
    milliseconds: u64,
) -> Status {
    let change = |builder: EngineBuilder| {
        Ok(builder.durability(match durability {
            DURABILITY_NONE => Durability::None,
            DURABILITY_PROCESS => Durability::Process,
            DURABILITY_EPOCH => Durability::Epoch(Duration::from_millis(milliseconds)),
            DURABILITY_COMMIT => Durability::Commit,
            other => return Err(Failure::misuse(format!("{other} is no durability"))),
        }))
    };
    // SAFETY: the caller gives a live handle.
    unsafe { enter(std::ptr::null_mut(), || set(builder, change)) }
}

/// Bytes of each file of a shard's journal, a multiple of 4,096; by default 16 MiB.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_builder_journal_segment_bytes(
    builder: *mut Builder,
    bytes: u64,
) -> Status {
    let change = |builder: EngineBuilder| Ok(builder.journal_segment_bytes(bytes));
    // SAFETY: the caller gives a live handle.
    unsafe { enter(std::ptr::null_mut(), || set(builder, change)) }
}

/// Whether a database is opened for reading only; by default it is not.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_builder_read_only(
    builder: *mut Builder,
    is_read_only: bool,
) -> Status {
    let change = |builder: EngineBuilder| Ok(builder.read_only(is_read_only));
    // SAFETY: the caller gives a live handle.
    unsafe { enter(std::ptr::null_mut(), || set(builder, change)) }
}

/// Whether a database that is not there is an error, instead of being made; by default it is made.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_builder_must_exist(
    builder: *mut Builder,
    must_exist: bool,
) -> Status {
    let change = |builder: EngineBuilder| Ok(builder.must_exist(must_exist));
    // SAFETY: the caller gives a live handle.
    unsafe { enter(std::ptr::null_mut(), || set(builder, change)) }
}

/// Whether each shard's thread is pinned to its processor; by default it is.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_builder_pin(builder: *mut Builder, pin: bool) -> Status {
    let change = |builder: EngineBuilder| Ok(builder.pin(pin));
    // SAFETY: the caller gives a live handle.
    unsafe { enter(std::ptr::null_mut(), || set(builder, change)) }
}

/// Opens an engine: on the database in the directory `path`, which is made if there is none, or, if
/// `path` is null, in memory. `*engine` is freed with `ancile_engine_free`.
///
/// Errors: `SETTING`, `IN_USE`, `NO_DATABASE`, `VERSION`, `NEEDS_SALVAGE`, `DAMAGED`, `SYSTEM`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_builder_open(
    builder: *const Builder,
    path: *const c_char,
    engine: *mut *mut Engine,
    error: *mut *mut Error,
) -> Status {
    let open = || {
        must_have(engine, "engine")?;
        // SAFETY: the caller gives a live handle.
        let builder = unsafe { borrow(builder)? };
        let builder = builder
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let opened = if path.is_null() {
            builder.build()?
        } else {
            // SAFETY: not null, so a string.
            builder.open(unsafe { text(path, "path")? })?
        };
        // SAFETY: it was looked at before, and is the caller's to be written.
        unsafe { engine.write(Engine::give(opened)) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, open) }
}
