//! Collections: how `bucket.scope.collection` names a table.
//!
//! A bucket is a schema. Its collection `_default._default` is the table `kv`; a collection C of the scope `_default`
//! is the table C, and one of another scope S is the table `S.C`.

use oribi_engine::{Catalog, Table};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of the scope, and of the collection, that clients name if they name none.
pub const DEFAULT: &str = "_default";
/// The table of a schema that is its default collection.
pub const DEFAULT_TABLE: &str = "kv";

/// Ids below belong to the protocol, which gives 0 to the default collection.
const FIRST_ID: u64 = 8;

/// The id of a table as a collection; `None` if it has outgrown 32 bits.
pub fn id(table: &Table) -> Option<u32> {
    if table.name() == DEFAULT_TABLE {
        return Some(0);
    }
    u32::try_from(table.id() + FIRST_ID).ok()
}

/// The table of a collection of `bucket`.
pub fn table<'c>(catalog: &'c Catalog, bucket: &str, id: u32) -> Option<&'c Arc<Table>> {
    if id == 0 {
        return catalog.table(bucket, DEFAULT_TABLE);
    }
    let table = catalog.table_by_id(u64::from(id).checked_sub(FIRST_ID)?)?;
    (table.schema_name() == bucket && table.is_shown()).then_some(table)
}

/// The tables of a bucket; sequences and drafts are none.
fn shown<'c>(catalog: &'c Catalog, bucket: &str) -> impl Iterator<Item = &'c Arc<Table>> {
    catalog.tables(bucket).filter(|table| table.is_shown())
}

/// Scope and collection of a table.
fn names(table: &Table) -> (&str, &str) {
    match table.name() {
        DEFAULT_TABLE => (DEFAULT, DEFAULT),
        name => name.split_once('.').unwrap_or((DEFAULT, name)),
    }
}

/// Ids of scopes, of which there are no objects here: a hash of the name.
pub fn scope_id(name: &str) -> u32 {
    if name == DEFAULT {
        return 0;
    }
    // FNV-1a
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash | FIRST_ID as u32
}

/// What there is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    Scope,
    Collection,
    /// The path is no `scope.collection`.
    Path,
}

/// Whether `scope` has any collection; `_default` always is there.
pub fn has_scope(catalog: &Catalog, bucket: &str, scope: &str) -> bool {
    scope == DEFAULT || shown(catalog, bucket).any(|table| names(table).0 == scope)
}

/// Finds the collection that `path` names in `bucket`: `scope.collection`, either of which may be empty for
/// `_default`.
pub fn find<'c>(catalog: &'c Catalog, bucket: &str, path: &str) -> Result<&'c Arc<Table>, Missing> {
    let (scope, collection) = path.split_once('.').ok_or(Missing::Path)?;
    let wanted = (or_default(scope), or_default(collection));
    if wanted.1.contains('.') {
        return Err(Missing::Path);
    }
    if !has_scope(catalog, bucket, wanted.0) {
        return Err(Missing::Scope);
    }
    shown(catalog, bucket).find(|table| names(table) == wanted).ok_or(Missing::Collection)
}

fn or_default(name: &str) -> &str {
    if name.is_empty() { DEFAULT } else { name }
}

/// Scopes and collections of `bucket`, as JSON.
pub fn manifest(catalog: &Catalog, bucket: &str) -> String {
    let mut scopes: BTreeMap<&str, Vec<Value>> = BTreeMap::from([(DEFAULT, Vec::new())]);
    for table in shown(catalog, bucket) {
        let (scope, name) = names(table);
        let Some(id) = id(table) else { continue };
        let mut shown =
            Map::from_iter([("name".into(), name.into()), ("uid".into(), format!("{id:x}").into())]);
        if let Some(ttl_ms) = table.options().ttl_ms {
            shown.insert("maxTTL".into(), ttl_ms.div_ceil(1000).into());
        }
        scopes.entry(scope).or_default().push(shown.into());
    }
    let scopes: Vec<Value> = scopes
        .into_iter()
        .map(|(name, collections)| {
            json!({ "name": name, "uid": format!("{:x}", scope_id(name)), "collections": collections })
        })
        .collect();
    json!({ "uid": format!("{:x}", catalog.version()), "scopes": scopes }).to_string()
}

/// Splits the id of a collection off `key`: LEB128, in its shortest form.
pub fn split_id(key: &[u8]) -> Option<(u32, &[u8])> {
    // The default collection, and any of the first 127.
    if let [byte @ ..0x80, rest @ ..] = key {
        return Some((u32::from(*byte), rest));
    }
    let mut id = 0u64;
    for (i, byte) in key.iter().take(5).enumerate() {
        id |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            let shortest = *byte != 0;
            return Some((u32::try_from(id).ok().filter(|_| shortest)?, &key[i + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_in_their_shortest_form() {
        assert_eq!(split_id(b"\x00key"), Some((0, &b"key"[..])));
        assert_eq!(split_id(b"\x7f"), Some((127, &b""[..])));
        assert_eq!(split_id(b"\x80\x01k"), Some((128, &b"k"[..])));
        assert_eq!(split_id(b"\xff\xff\xff\xff\x0fk"), Some((u32::MAX, &b"k"[..])));
        for wrong in [&b""[..], b"\x80", b"\x80\x00k", b"\xff\xff\xff\xff\x1fk", b"\xff\xff\xff\xff\xff\x01k"]
        {
            assert_eq!(split_id(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn ids_of_scopes_keep_clear_of_the_protocols() {
        assert_eq!(scope_id("_default"), 0);
        assert!(scope_id("inventory") >= FIRST_ID as u32);
        assert_ne!(scope_id("inventory"), scope_id("tenant"));
    }
}
