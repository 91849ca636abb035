//! Keys of globals: a name and any number of subscripts.

#![expect(unsafe_code, reason = "the functions are called from C")]

use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard, TryLockError};

use ancile::{GlobalKey, Number};

use crate::handle::{Bytes, Handle, borrow, give, must_have, put, put_bytes, release, slice, text};
use crate::status::{Error, Failure, Status, enter};

/// A key of globals: a name and subscripts, which are numbers or bytes. Numbers come before bytes, and
/// among themselves in the order of numbers; bytes that look like a canonical number are that number.
/// Used by one thread at a time.
pub struct Key {
    _opaque: [u8; 0],
}

impl Handle for Key {
    type Value = Mutex<GlobalKey>;
    const TAG: u64 = u64::from_le_bytes(*b"ancl.key");
    const NAME: &str = "key";
}

/// The key of a handle, for this thread alone.
///
/// # Safety
/// As of [`borrow`].
pub(crate) unsafe fn lock<'a>(key: *const Key) -> Result<MutexGuard<'a, GlobalKey>, Failure> {
    // SAFETY: the caller says so.
    match unsafe { borrow(key)? }.try_lock() {
        Ok(key) => Ok(key),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            let message = "the key is in use by another thread";
            Err(Failure::new(Status::Busy, message))
        }
    }
}

/// A key without subscripts: the name, of 1 to 255 bytes. `*key` is freed with `ancile_key_free`.
///
/// Errors: `KEY`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_key_new(
    name: *const c_char,
    key: *mut *mut Key,
    error: *mut *mut Error,
) -> Status {
    let make = || {
        must_have(key, "key")?;
        // SAFETY: the caller gives a string, or null.
        let made = GlobalKey::new(unsafe { text(name, "name")? })?;
        // SAFETY: looked at before, and the caller's to be written.
        unsafe { put(key, give(Mutex::new(made))) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, make) }
}

/// A copy of a key. `*copy` is freed with `ancile_key_free`.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_key_copy(
    key: *const Key,
    copy: *mut *mut Key,
    error: *mut *mut Error,
) -> Status {
    let make = || {
        must_have(copy, "copy")?;
        // SAFETY: the caller gives a live handle.
        let made = unsafe { lock(key)? }.clone();
        // SAFETY: looked at before, and the caller's to be written.
        unsafe { put(copy, give(Mutex::new(made))) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, make) }
}

/// Frees a key; null is nothing to free.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_key_free(key: *mut Key) {
    // SAFETY: the caller gives a live handle, or null.
    unsafe { release(key) };
}

/// Adds an integer as the last subscript.
///
/// Errors: `KEY` if it has more than 18 digits, or the key becomes longer than 2,000 bytes; then it is
/// as it was.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_key_push_integer(
    key: *mut Key,
    subscript: i64,
    error: *mut *mut Error,
) -> Status {
    let push = || {
        // SAFETY: the caller gives a live handle.
        unsafe { lock(key)? }.push(Number::parse(&subscript.to_string())?)?;
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, push) }
}

/// Adds bytes as the last subscript: a text, a number as a text such as `-2.5`, or any others. Of no
/// length they are the empty subscript, which comes before all others.
///
/// Errors: `KEY` if the key becomes longer than 2,000 bytes; then it is as it was.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_key_push_bytes(
    key: *mut Key,
    subscript: *const u8,
    length: usize,
    error: *mut *mut Error,
) -> Status {
    let push = || {
        // SAFETY: the caller gives so many bytes, and a live handle.
        let subscript = unsafe { slice(subscript, length, "subscript")? };
        // SAFETY: as before.
        unsafe { lock(key)? }.push(subscript)?;
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, push) }
}

/// Takes the last subscript away; says whether there was one.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_key_pop(key: *mut Key) -> bool {
    // SAFETY: the caller gives a live handle.
    unsafe { lock(key) }.is_ok_and(|mut key| key.pop())
}

/// How many subscripts a key has; 0 of what is no key.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_key_subscripts(key: *const Key) -> usize {
    // SAFETY: the caller gives a live handle.
    unsafe { lock(key) }.map_or(0, |key| key.subscripts().count())
}

/// A subscript of a key, by number, counted from 1, as bytes: a number in canonical form. 0 is the name.
/// They take the place of what is in `bytes` (see `ancile_bytes`).
///
/// Errors: `MISUSE` if there is no such subscript.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_key_subscript(
    key: *const Key,
    number: usize,
    bytes: *mut Bytes,
    error: *mut *mut Error,
) -> Status {
    let look = || {
        must_have(bytes, "bytes")?;
        // SAFETY: the caller gives a live handle.
        let key = unsafe { lock(key)? };
        let found = match number.checked_sub(1) {
            None => key.name().into_owned(),
            Some(before) => {
                let subscript = key.subscripts().nth(before);
                let none = || Failure::misuse(format!("the key has no subscript {number}"));
                subscript.ok_or_else(none)?.to_bytes().into_owned()
            }
        };
        // SAFETY: looked at before, and bytes of ours or none.
        unsafe { put_bytes(bytes, &found) };
        Ok(())
    };
    // SAFETY: the error's place is the caller's.
    unsafe { enter(error, look) }
}
