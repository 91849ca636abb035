//! Nodes of globals, as dumps have them.
//!
//! ```text
//! {"table":"globals","schema":{"globals":{"routing":"name_and_first"}}}
//! {"table":"globals","global":["city","AT",1010,"-.5",{"base64":"/w=="}],"value":"Wien"}
//! ```
//! A key is its name and its subscripts. Integers of up to 64 bits are JSON numbers. Other numbers are
//! strings in canonical form: a subscript that looks like a canonical number is that number, so that no
//! string can be meant. Names, strings and values that are no UTF-8 are objects with their Base64.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;

use ancile::{GlobalKey, GlobalKeyRef, Routing, Subscript};
use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// How a set is routed, in a dump.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RoutingEntry {
    NameAndFirst,
    Prefix(u16),
    FullKey,
}

impl From<Routing> for RoutingEntry {
    fn from(routing: Routing) -> Self {
        match routing {
            Routing::NameAndFirst => Self::NameAndFirst,
            Routing::Prefix(subscripts) => Self::Prefix(subscripts),
            Routing::FullKey => Self::FullKey,
        }
    }
}

impl From<RoutingEntry> for Routing {
    fn from(entry: RoutingEntry) -> Self {
        match entry {
            RoutingEntry::NameAndFirst => Self::NameAndFirst,
            RoutingEntry::Prefix(subscripts) => Self::Prefix(subscripts),
            RoutingEntry::FullKey => Self::FullKey,
        }
    }
}

impl fmt::Display for RoutingEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameAndFirst => f.write_str("name and first subscript"),
            Self::Prefix(subscripts) => write!(f, "name and first {subscripts} subscripts"),
            Self::FullKey => f.write_str("the whole key"),
        }
    }
}

/// Writes the line of a node.
pub(crate) fn write_node(
    out: &mut impl Write,
    table: &str,
    key: GlobalKeyRef<'_>,
    value: &[u8],
) -> Result<()> {
    // A damaged file is told here, and not dumped as another key.
    let key = key.to_key()?;
    out.write_all(b"{\"table\":")?;
    serde_json::to_writer(&mut *out, table)?;
    out.write_all(b",\"global\":[")?;
    write_bytes(out, &key.name())?;
    for subscript in &key {
        out.write_all(b",")?;
        match subscript.to_i64() {
            Some(integer) => write!(out, "{integer}")?,
            None => write_bytes(out, &subscript.to_bytes())?,
        }
    }
    out.write_all(b"],\"value\":")?;
    write_bytes(out, value)?;
    Ok(out.write_all(b"}\n")?)
}

fn write_bytes(out: &mut impl Write, bytes: &[u8]) -> Result<()> {
    match std::str::from_utf8(bytes) {
        Ok(text) => serde_json::to_writer(out, text)?,
        Err(_) => write!(out, "{{\"base64\":\"{}\"}}", STANDARD.encode(bytes))?,
    }
    Ok(())
}

/// The key that a line names.
pub(crate) fn read_key(parts: &[Json]) -> Result<GlobalKey> {
    let Some((name, subscripts)) = parts.split_first() else {
        bail!("\"global\" has no name");
    };
    let mut key = GlobalKey::new(read_bytes(name).context("the name")?)?;
    for (number, json) in subscripts.iter().enumerate() {
        let at = || format!("subscript {}", number + 1);
        let subscript = match json {
            Json::Number(integer) => match (integer.as_i64(), integer.as_u64()) {
                (Some(integer), _) => Subscript::from(integer),
                (_, Some(integer)) => Subscript::from(integer),
                _ => bail!("{}: {json} is no integer: others are strings", at()),
            },
            other => Subscript::from(read_bytes(other).with_context(at)?),
        };
        key.push(subscript).with_context(at)?;
    }
    Ok(key)
}

/// The bytes of a name, a string or a value.
pub(crate) fn read_bytes(json: &Json) -> Result<Cow<'_, [u8]>> {
    match json {
        Json::String(text) => Ok(Cow::Borrowed(text.as_bytes())),
        Json::Object(marked) if marked.len() == 1 => match marked.get("base64") {
            Some(Json::String(text)) => {
                let bytes = STANDARD.decode(text);
                Ok(Cow::Owned(
                    bytes.with_context(|| format!("{json} is no Base64"))?,
                ))
            }
            _ => bail!("{json} is neither a string nor {{\"base64\": STRING}}"),
        },
        _ => bail!("{json} is neither a string nor {{\"base64\": STRING}}"),
    }
}
