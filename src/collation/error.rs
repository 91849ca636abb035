//! What is wrong with a key. Nothing has been read or written when one of these is given.

use crate::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX, NUMBER_DIGITS_MAX};

/// A key, or a part of one, is not legal. Nothing has happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The encoded key has more than 2,000 bytes; use shorter or fewer subscripts.
    #[error("the key has {bytes} bytes when encoded, at most {KEY_BYTES_MAX} are possible")]
    TooLong {
        /// Its length, or a part of it that is too long already.
        bytes: usize,
    },
    /// A name is empty or longer than 255 bytes.
    #[error("a name has 1 to {NAME_BYTES_MAX} bytes, not {bytes}")]
    Name {
        /// Its length.
        bytes: usize,
    },
    /// A number has more than 18 significant digits. Give it as bytes or text to have it collate
    /// as a string, or in two subscripts.
    #[error("{number} has more than {NUMBER_DIGITS_MAX} significant digits")]
    Digits {
        /// The number.
        number: String,
    },
    /// A number is out of range: its magnitude must be at least 1E-43 and less than 1E47.
    #[error("{number} is out of range: a magnitude of 1E-43 to 1E47 is possible")]
    Range {
        /// The number.
        number: String,
    },
    /// A text is no number.
    #[error("{text:?} is not a number")]
    NotANumber {
        /// The text.
        text: String,
    },
    /// Bytes that were given as an encoded key are none.
    #[error("these bytes are not an encoded key: {what}, at byte {at}")]
    Encoding {
        /// What is wrong.
        what: &'static str,
        /// Where.
        at: usize,
    },
}
