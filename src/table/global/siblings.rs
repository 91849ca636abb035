//! Where a level of keys begins, goes on and ends, in encoded bytes.
//!
//! ```text
//! node        | components, each with its zero byte | 00 |
//! below it    | components | 01 or more ...
//! behind it   | components, their last zero byte 01 |
//! ```

/// Components of a key: all but the zero byte at its end.
pub(crate) fn components(key: &[u8]) -> &[u8] {
    &key[..key.len().saturating_sub(1)]
}

/// The components above the last one; nothing above a name.
pub(crate) fn parent(components: &[u8]) -> &[u8] {
    let inner = &components[..components.len().saturating_sub(1)];
    let end = inner.iter().rposition(|&byte| byte == 0);
    &components[..end.map_or(0, |at| at + 1)]
}

/// Writes the first bytes behind all keys that begin with these components; nothing, where there are
/// none, as keys end nowhere then.
pub(crate) fn behind<'b>(components: &[u8], buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
    buffer.clear();
    buffer.extend_from_slice(components);
    *buffer.last_mut()? = 1;
    Some(buffer)
}

/// Writes the first bytes that a key below these components may have.
pub(crate) fn below<'b>(components: &[u8], buffer: &'b mut Vec<u8>) -> &'b [u8] {
    buffer.clear();
    buffer.extend_from_slice(components);
    buffer.push(1);
    buffer
}

/// Cuts a key to one component below these ones, where it lies below them.
pub(crate) fn cut(key: &mut Vec<u8>, above: &[u8]) -> bool {
    let Some(rest) = key.strip_prefix(above) else {
        return false;
    };
    let Some(end) = rest.iter().position(|&byte| byte == 0) else {
        return false;
    };
    key.truncate(above.len() + end + 1);
    key.push(0);
    true
}
