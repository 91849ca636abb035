//! Values behind opaque pointers, and what else is passed by pointers.
//!
//! A value lies behind a word that tells its kind, and that is cleared when it is freed. So a handle of
//! another kind is told from the right one, and one that was freed often is; that is no promise, as
//! memory that was freed may be anything.

#![expect(unsafe_code, reason = "values are reached by pointers that C keeps")]

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

use crate::status::Failure;

/// A kind of handle: an opaque type of the header, which is never made.
pub(crate) trait Handle {
    /// What its pointers lead to.
    type Value;
    /// The word before it.
    const TAG: u64;
    /// What sentences call it.
    const NAME: &'static str;
}

#[repr(C)]
struct Tagged<T> {
    tag: u64,
    value: T,
}

/// Bytes that the library has given: freed with `ancile_bytes_free`, or given to the next call that
/// writes to them, which frees them itself. To begin, `{0}`.
#[repr(C)]
pub struct Bytes {
    /// The bytes, and a NUL behind them, so that a text is a string of C; null if there are none.
    pub data: *mut u8,
    /// How many, the NUL not counted.
    pub length: usize,
}

/// Puts a value behind a pointer.
pub(crate) fn give<H: Handle>(value: H::Value) -> *mut H {
    let tag = H::TAG;
    Box::into_raw(Box::new(Tagged { tag, value })).cast()
}

/// The value of a handle.
///
/// # Safety
/// The pointer is null or was given by [`give`], of any kind, and its value lives for `'a`.
pub(crate) unsafe fn borrow<'a, H: Handle + 'a>(handle: *const H) -> Result<&'a H::Value, Failure> {
    if handle.is_null() || !handle.cast::<u64>().is_aligned() {
        return Err(Failure::misuse(format!("no {} was given", H::NAME)));
    }
    let tagged = handle.cast::<Tagged<H::Value>>();
    // SAFETY: handles of all kinds begin with their tag.
    if unsafe { handle.cast::<u64>().read_volatile() } != H::TAG {
        let message = format!("what was given is no {}, or was freed", H::NAME);
        return Err(Failure::misuse(message));
    }
    // SAFETY: the tag says that it is of this kind, and it lives.
    Ok(unsafe { &(*tagged).value })
}

/// Frees a handle; what is none of this kind is left alone.
///
/// # Safety
/// As of [`borrow`], and nobody uses the value any more.
pub(crate) unsafe fn release<H: Handle>(handle: *mut H) {
    // SAFETY: the same promise.
    if unsafe { borrow(handle.cast_const()) }.is_err() {
        return;
    }
    let tagged = handle.cast::<Tagged<H::Value>>();
    // SAFETY: it is of this kind, was made by a box, and nobody else uses it.
    unsafe {
        handle.cast::<u64>().write_volatile(0);
        drop(Box::from_raw(tagged));
    }
}

/// A slice of the caller's.
///
/// # Safety
/// The pointer is null or leads to so many values, which nobody changes for `'a`.
pub(crate) unsafe fn slice<'a, T>(
    start: *const T,
    count: usize,
    name: &str,
) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    check(start, count, name)?;
    // SAFETY: not null, aligned, of a size that can be, and the caller's for `'a`.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// A slice of the caller's that is written.
///
/// # Safety
/// The pointer is null or leads to so many initialised values, which nobody else uses for `'a`.
pub(crate) unsafe fn slice_mut<'a, T>(
    start: *mut T,
    count: usize,
    name: &str,
) -> Result<&'a mut [T], Failure> {
    if count == 0 {
        return Ok(&mut []);
    }
    check(start, count, name)?;
    // SAFETY: not null, aligned, of a size that can be, and the caller's for `'a`.
    Ok(unsafe { std::slice::from_raw_parts_mut(start, count) })
}

fn check<T>(start: *const T, count: usize, name: &str) -> Result<(), Failure> {
    let is_possible = count <= isize::MAX as usize / size_of::<T>().max(1);
    if start.is_null() || !start.is_aligned() || !is_possible {
        let message = format!("{name} is null, not aligned, or longer than can be");
        return Err(Failure::misuse(message));
    }
    Ok(())
}

/// A string of C.
///
/// # Safety
/// The pointer is null or leads to bytes that end with a NUL and that nobody changes for `'a`.
pub(crate) unsafe fn text<'a>(start: *const c_char, name: &str) -> Result<&'a str, Failure> {
    check(start, 1, name)?;
    // SAFETY: not null, and the caller says that it ends with a NUL.
    let text = unsafe { CStr::from_ptr(start) };
    text.to_str()
        .map_err(|_| Failure::misuse(format!("{name} is not UTF-8")))
}

/// Whether a result can be written, which has to be known before anything happens.
pub(crate) fn must_have<T>(place: *mut T, name: &str) -> Result<(), Failure> {
    check(place.cast_const(), 1, name)
}

/// Writes a result where the caller wants it; null is for what nobody wants to know.
///
/// # Safety
/// The pointer is null or may be written.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller says so of what is not null.
        unsafe { place.write(value) };
    }
}

/// Gives bytes in the place of those that are there.
///
/// # Safety
/// The pointer is null, or leads to bytes that are `{0}` or were given by this.
pub(crate) unsafe fn put_bytes(place: *mut Bytes, bytes: &[u8]) {
    if place.is_null() {
        return;
    }
    // SAFETY: not null; what is there is ours, or nothing.
    unsafe { ancile_bytes_free(place) };
    let mut copy = Vec::with_capacity(bytes.len() + 1);
    copy.extend_from_slice(bytes);
    copy.push(0);
    let data = Box::into_raw(copy.into_boxed_slice()).cast::<u8>();
    let length = bytes.len();
    // SAFETY: not null, and the caller's to be written.
    unsafe { place.write(Bytes { data, length }) };
}

/// Frees bytes, which are `{0}` then; null is nothing to free.
///
/// # Safety
/// See the head of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ancile_bytes_free(bytes: *mut Bytes) {
    // SAFETY: null, or the caller's.
    let Some(bytes) = (unsafe { bytes.as_mut() }) else {
        return;
    };
    let data = std::mem::replace(&mut bytes.data, null_mut());
    let length = std::mem::take(&mut bytes.length);
    if !data.is_null() {
        let slice = std::ptr::slice_from_raw_parts_mut(data, length + 1);
        // SAFETY: made by `put_bytes` of a boxed slice of this length, the NUL included.
        drop(unsafe { Box::from_raw(slice) });
    }
}
