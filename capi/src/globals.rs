//! Globals, one node at a time: by themselves, or within the open transaction.

#![expect(unsafe_code, reason = "the functions are called from C")]

use std::ffi::c_char;

use ancile::{Routing, Verbs};

use crate::engine::Engine;
use crate::handle::{Bytes, Handle, borrow, give, must_have, put, put_bytes, release, slice, text};
use crate::key::{Key, lock};
use crate::rows::with_way;
use crate::session::{Session, Way, client};
use crate::status::{Error, Failure, Status, enter};

/// A set of globals: an ordered store of values of any bytes, up to 16 MiB, under keys of a name and
/// subscripts. May be used by many threads at once.
pub struct Globals {
    _opaque: [u8; 0],
}

impl Handle for Globals {
    type Value = ancile::Globals;
    const TAG: u64 = u64::from_le_bytes(*b"ancl.glo");
    const NAME: &str = "set of globals";
}

/// Opens the set named `globals`, which is made at its first use, spread over the shards by name and
/// first subscript. `*globals` is freed with `ancile_globals_free`.
///
/// Errors: `SCHEMA` if the name is a table's, `FULL`, `READ_ONLY`, `CLOSED`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_engine_globals(
    engine: *const Engine,
    globals: *mut *mut Globals,
    error: *mut *mut Error,
) -> Status {
    let open = || {
        must_have(globals, "globals")?;
        // SAFETY: the caller gives a live handle, and a place to write to.
        unsafe {
            let opened = Engine::with(engine, |engine| Ok(engine.globals()?))?;
            put(globals, give(opened));
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, open) }
}

/// Creates a set of globals. Keys with the same name and first `subscripts` subscripts are neighbours in
/// one shard; if it is negative, keys are spread one by one. `*globals` is freed with
/// `ancile_globals_free`.
///
/// Errors: `TABLE_EXISTS`, `SCHEMA`, `FULL`, `READ_ONLY`, `CLOSED`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_engine_create_globals(
    engine: *const Engine,
    name: *const c_char,
    subscripts: i32,
    globals: *mut *mut Globals,
    error: *mut *mut Error,
) -> Status {
    let create = || {
        must_have(globals, "globals")?;
        let routing = match u16::try_from(subscripts) {
            Ok(subscripts) => Routing::Prefix(subscripts),
            Err(_) if subscripts < 0 => Routing::FullKey,
            Err(_) => return Err(Failure::misuse("there cannot be so many subscripts")),
        };
        // SAFETY: the caller gives a string, or null.
        let name = unsafe { text(name, "name")? };
        // SAFETY: the caller gives a live handle, and a place to write to.
        unsafe {
            let create = |engine: &ancile::Engine| Ok(engine.create_globals(name, routing)?);
            put(globals, give(Engine::with(engine, create)?));
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, create) }
}

/// Opens a set of globals that exists. `*globals` is freed with `ancile_globals_free`.
///
/// Errors: `TABLE_MISSING`, `SCHEMA` if the name is a table's, `CLOSED`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_engine_open_globals(
    engine: *const Engine,
    name: *const c_char,
    globals: *mut *mut Globals,
    error: *mut *mut Error,
) -> Status {
    let open = || {
        must_have(globals, "globals")?;
        // SAFETY: the caller gives a string, or null.
        let name = unsafe { text(name, "name")? };
        // SAFETY: the caller gives a live handle, and a place to write to.
        unsafe {
            let opened = Engine::with(engine, |engine| Ok(engine.open_globals(name)?))?;
            put(globals, give(opened));
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, open) }
}

/// Frees the handle of a set of globals, which stays where it is; null is nothing to free.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_globals_free(globals: *mut Globals) {
    // SAFETY: the caller gives a live handle, or null.
    unsafe { release(globals) };
}

/// The value of a node, if it has one, which `*found` says. It takes the place of what is in `value` (see
/// `ancile_bytes`); of a node without a value that stays as it is.
///
/// Errors: `TABLE_MISSING`, and those of every call.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_globals_get(
    session: *mut Session,
    globals: *const Globals,
    key: *const Key,
    value: *mut Bytes,
    found: *mut bool,
    error: *mut *mut Error,
) -> Status {
    let get = || {
        must_have(value, "value")?;
        must_have(found, "found")?;
        // SAFETY: the caller gives live handles.
        let (mut client, globals, key) =
            unsafe { (client(session)?, borrow(globals)?, lock(key)?) };
        let got = with_way!(client, verbs, verbs.globals(globals).get(&key)?);
        // SAFETY: looked at before, and the caller's to be written; bytes of ours or none.
        unsafe {
            put(found, got.is_some());
            if let Some(got) = got {
                put_bytes(value, &got);
            }
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, get) }
}

/// Sets a node.
///
/// Errors: `TOO_LONG`, `FULL`, `TABLE_MISSING`, and those of every change.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_globals_set(
    session: *mut Session,
    globals: *const Globals,
    key: *const Key,
    value: *const u8,
    length: usize,
    error: *mut *mut Error,
) -> Status {
    let set = || {
        // SAFETY: the caller gives live handles.
        let (mut client, globals, key) =
            unsafe { (client(session)?, borrow(globals)?, lock(key)?) };
        // SAFETY: the caller gives so many bytes.
        let value = unsafe { slice(value, length, "value")? };
        match client.way() {
            Way::Alone(session) => drop(session.globals(globals).set(&key, value)?),
            Way::Within(open) => open.globals(globals).set(&key, value)?,
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, set) }
}

/// Adds to the number that a node is worth, in one step; a node that is not there, or no number, counts
/// for 0, and one that begins with a number for that. `sum`, if wanted, is what it is then: a number in
/// canonical form, as a text (see `ancile_bytes`).
///
/// Errors: `FULL`, `TABLE_MISSING`, and those of every change.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_globals_increment(
    session: *mut Session,
    globals: *const Globals,
    key: *const Key,
    by: i64,
    sum: *mut Bytes,
    error: *mut *mut Error,
) -> Status {
    let increment = || {
        // SAFETY: the caller gives live handles.
        let (mut client, globals, key) =
            unsafe { (client(session)?, borrow(globals)?, lock(key)?) };
        let by = ancile::Number::parse(&by.to_string())?;
        let worth = with_way!(client, verbs, verbs.globals(globals).increment(&key, by)?);
        // SAFETY: null, or bytes of ours or none.
        unsafe { put_bytes(sum, worth.to_string().as_bytes()) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, increment) }
}

/// Removes a node and all below it.
///
/// Errors: `TABLE_MISSING`, and those of every change.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_globals_kill(
    session: *mut Session,
    globals: *const Globals,
    key: *const Key,
    error: *mut *mut Error,
) -> Status {
    let kill = || {
        // SAFETY: the caller gives live handles.
        let (mut client, globals, key) =
            unsafe { (client(session)?, borrow(globals)?, lock(key)?) };
        match client.way() {
            Way::Alone(session) => drop(session.globals(globals).kill(&key)?),
            Way::Within(open) => open.globals(globals).kill(&key)?,
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, kill) }
}

/// What there is at a key: a value, nodes below it, both or nothing.
///
/// Errors: `TABLE_MISSING`, and those of every call.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_globals_data(
    session: *mut Session,
    globals: *const Globals,
    key: *const Key,
    has_value: *mut bool,
    has_descendants: *mut bool,
    error: *mut *mut Error,
) -> Status {
    let look = || {
        // SAFETY: the caller gives live handles.
        let (mut client, globals, key) =
            unsafe { (client(session)?, borrow(globals)?, lock(key)?) };
        let data = with_way!(client, verbs, verbs.globals(globals).data(&key)?);
        // SAFETY: null, or the caller's to be written.
        unsafe {
            put(has_value, data.has_value);
            put(has_descendants, data.has_descendants);
        }
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, look) }
}
