//! Nodes of globals among the cells of a proposal's part.
//!
//! ```text
//! node  | hash of the key 8 | bytes of key 4, of value 4 | key, value, filled up to a word |
//!                           ^ start
//! seen  | bytes 8, or none: all ones | value, filled up |
//! data  | has a value 1, has descendants 2 | subtrees left out 8 | bytes of prefix 8 | prefix | ...
//! ```

/// Says that there is no value.
const ABSENT: u64 = u64::MAX;

/// A node: its encoded key, and the value that it is to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a> {
    pub(crate) hash: u64,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

fn bytes_of(cells: &[u64]) -> &[u8] {
    zerocopy::IntoBytes::as_bytes(cells)
}

/// Appends bytes, filled up to a word.
fn append(parts: [&[u8]; 2], cells: &mut Vec<u64>) {
    let start = cells.len();
    let length = parts[0].len() + parts[1].len();
    cells.resize(start + length.div_ceil(size_of::<u64>()), 0);
    let bytes: &mut [u8] = zerocopy::IntoBytes::as_mut_bytes(&mut cells[start..]);
    bytes[..parts[0].len()].copy_from_slice(parts[0]);
    bytes[parts[0].len()..length].copy_from_slice(parts[1]);
}

/// Writes a node; where it starts.
pub(crate) fn write(node: Node<'_>, cells: &mut Vec<u64>) -> u32 {
    cells.push(node.hash);
    let start = cells.len() as u32;
    cells.push(node.key.len() as u64 | (node.value.len() as u64) << 32);
    append([node.key, node.value], cells);
    start
}

/// Reads a node; `None` if the cells have none there, as in a damaged file.
pub(crate) fn read(cells: &[u64], start: u32) -> Option<Node<'_>> {
    let start = start as usize;
    let hash = *cells.get(start.checked_sub(1)?)?;
    let lengths = *cells.get(start)?;
    let bytes = bytes_of(cells.get(start + 1..)?);
    let (key, rest) = bytes.split_at_checked(lengths as u32 as usize)?;
    let value = rest.get(..(lengths >> 32) as usize)?;
    Some(Node { hash, key, value })
}

/// Writes a value that was seen, or that there was none; where.
pub(crate) fn write_seen(value: Option<&[u8]>, cells: &mut Vec<u64>) -> u32 {
    let start = cells.len() as u32;
    match value {
        None => cells.push(ABSENT),
        Some(value) => {
            cells.push(value.len() as u64);
            append([value, &[]], cells);
        }
    }
    start
}

/// Whether a value is the one that was seen.
pub(crate) fn is_as_seen(cells: &[u64], start: u32, value: Option<&[u8]>) -> bool {
    let (length, rest) = (cells[start as usize], &cells[start as usize + 1..]);
    match value {
        None => length == ABSENT,
        Some(value) => {
            length == value.len() as u64 && bytes_of(rest).get(..value.len()) == Some(value)
        }
    }
}

/// What a transaction has seen below a key, of what it has not removed itself.
pub(crate) struct Seen<'a> {
    pub(crate) has_descendants: bool,
    /// Components of subtrees that were left out.
    pub(crate) without: Vec<&'a [u8]>,
}

/// Writes what was seen below a key; where.
pub(crate) fn write_below(seen: &Seen<'_>, cells: &mut Vec<u64>) -> u32 {
    let start = cells.len() as u32;
    cells.extend([u64::from(seen.has_descendants), seen.without.len() as u64]);
    for without in &seen.without {
        cells.push(without.len() as u64);
        append([without, &[]], cells);
    }
    start
}

/// Reads what was seen below a key.
pub(crate) fn read_below(cells: &[u64], start: u32) -> Option<Seen<'_>> {
    let mut rest = cells.get(start as usize..)?;
    let mut next = || {
        let (&word, behind) = rest.split_first()?;
        rest = behind;
        Some(word)
    };
    let (has_descendants, count) = (next()? != 0, next()?);
    let mut without = Vec::new();
    for _ in 0..count {
        let (&length, behind) = rest.split_first()?;
        let length = length as usize;
        without.push(bytes_of(behind).get(..length)?);
        rest = behind.get(length.div_ceil(size_of::<u64>())..)?;
    }
    Some(Seen {
        has_descendants,
        without,
    })
}
