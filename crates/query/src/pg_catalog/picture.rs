//! What the system tables show: the schemas and tables of one statement's catalog, with the oids that PostgreSQL's
//! clients know them by.

use super::relations::literal;
use super::table::{SystemTable, system_tables};
use crate::catalog::{database_name, search_path};
use crate::context::StatementView;
use crate::queries::Queries;
use crate::sequences::Rules;
use crate::settings;
use oribi_engine::Engine;
use oribi_types::{Column, TableDefinition};
use std::sync::Arc;

/// Oids of PostgreSQL itself.
pub const PG_CATALOG: i64 = 11;
pub const PUBLIC: i64 = 2200;
pub const INFORMATION_SCHEMA: i64 = 13_000;
pub const OWNER: i64 = 10;
pub const DATABASE: i64 = 5;

/// System tables are numbered from here, user tables from the next: two oids each, the second for the primary key.
const SYSTEM_TABLES: i64 = 12_000;
const USER_TABLES: i64 = 16_384;
/// Schemas besides the well-known ones are numbered by a hash of their names, so that a name keeps its oid.
const SCHEMAS: i64 = 1 << 31;

pub struct Picture {
    pub database: String,
    pub user: String,
    pub path: Vec<String>,
    pub namespaces: Vec<Namespace>,
    pub tables: Vec<UserTable>,
    pub sequences: Vec<UserSequence>,
    /// The session's settings with their values.
    pub settings: Vec<(String, String)>,
    /// For what is asked of the engine when it is looked at; `None` in tests.
    pub engine: Option<Arc<Engine>>,
    pub queries: Option<Arc<Queries>>,
    /// Its cursors, and whether each is held.
    pub cursors: Vec<(String, bool)>,
}

pub struct Namespace {
    pub oid: i64,
    pub name: String,
}

pub struct UserTable {
    pub oid: i64,
    pub namespace: i64,
    pub definition: Arc<TableDefinition>,
    pub estimated_rows: u64,
}

pub struct UserSequence {
    /// Of its table.
    pub id: u64,
    pub oid: i64,
    pub namespace: i64,
    pub schema_name: String,
    pub name: String,
    pub rules: Rules,
}

impl Picture {
    pub fn new(view: &StatementView) -> Picture {
        let mut picture = Picture::of_schemas(view.catalog.schemas());
        picture.database = database_name(&view.session).to_owned();
        picture.user = view.session.user.clone();
        picture.path = search_path(&view.session);
        picture.settings = settings::all(&view.session);
        picture.engine = Some(Arc::clone(&view.engine));
        picture.queries = Some(Arc::clone(&view.queries));
        picture.cursors = view.session.cursors().names();
        for schema in view.catalog.schemas() {
            for table in view.catalog.tables(schema).filter(|table| !table.is_draft()) {
                if let Some(rules) = table.sequence() {
                    picture.add_sequence(table.id(), &table.definition(), rules);
                    continue;
                }
                picture.add(table.id(), table.definition(), table.estimated_rows());
            }
        }
        picture
    }

    /// A catalog of empty schemas.
    pub fn of_schemas<'a>(names: impl Iterator<Item = &'a str>) -> Picture {
        let known = [("pg_catalog", PG_CATALOG), ("information_schema", INFORMATION_SCHEMA)];
        let mut namespaces: Vec<Namespace> =
            known.into_iter().map(|(name, oid)| Namespace { oid, name: name.to_owned() }).collect();
        for name in names {
            let mut oid = if name == "public" { PUBLIC } else { SCHEMAS + i64::from(hash(name)) };
            while namespaces.iter().any(|n| n.oid == oid) {
                oid += 1;
            }
            namespaces.push(Namespace { oid, name: name.to_owned() });
        }
        let path = vec!["pg_catalog".to_owned(), "public".to_owned()];
        Picture {
            database: "oribi".to_owned(),
            user: "oribi".to_owned(),
            path,
            namespaces,
            tables: Vec::new(),
            sequences: Vec::new(),
            settings: Vec::new(),
            engine: None,
            queries: None,
            cursors: Vec::new(),
        }
    }

    pub fn add(&mut self, id: u64, definition: Arc<TableDefinition>, estimated_rows: u64) {
        if let Some(namespace) = self.namespaces.iter().find(|n| n.name == definition.schema_name) {
            let oid = USER_TABLES + 2 * id as i64;
            self.tables.push(UserTable { oid, namespace: namespace.oid, definition, estimated_rows });
        }
    }

    fn add_sequence(&mut self, id: u64, definition: &TableDefinition, rules: &str) {
        let namespace = self.namespace_oid(&definition.schema_name);
        if let (Some(namespace), Ok(rules)) = (namespace, Rules::read(rules)) {
            let (schema_name, name) = (definition.schema_name.clone(), definition.name.clone());
            let oid = USER_TABLES + 2 * id as i64;
            self.sequences.push(UserSequence { id, oid, namespace, schema_name, name, rules });
        }
    }

    /// The sequence that a column has its numbers from.
    pub fn sequence_of(&self, column: &Column) -> Option<&UserSequence> {
        let of = column.sequence()?;
        self.sequences.iter().find(|sequence| sequence.id == of.id)
    }

    /// What an insert stores that leaves a column out, as SQL writes it.
    pub fn default_of(&self, column: &Column) -> Option<String> {
        if column.sequence().is_some_and(|of| of.identity.is_some()) {
            return None;
        }
        if let Some(sequence) = self.sequence_of(column) {
            let (schema, name) = (&sequence.schema_name, quote(&sequence.name));
            let name = if self.is_visible(sequence.oid) { name } else { format!("{}.{name}", quote(schema)) };
            return Some(format!("nextval('{}'::regclass)", name.replace('\'', "''")));
        }
        column.default.as_ref().map(|value| literal(value, column))
    }

    pub fn namespace_oid(&self, name: &str) -> Option<i64> {
        self.namespaces.iter().find(|n| n.name == name).map(|n| n.oid)
    }

    pub fn namespace_name(&self, oid: i64) -> Option<&str> {
        self.namespaces.iter().find(|n| n.oid == oid).map(|n| n.name.as_str())
    }

    /// The tables that have a primary key.
    pub fn keyed(&self) -> impl Iterator<Item = &UserTable> {
        self.tables.iter().filter(|table| table.has_key())
    }

    /// PostgreSQL's system tables with their oids and those of their schemas.
    pub fn system(&self) -> impl Iterator<Item = (i64, i64, &'static SystemTable)> {
        system_tables().iter().enumerate().filter_map(|(i, table)| {
            let namespace = match table.schema {
                "pg_catalog" => PG_CATALOG,
                "information_schema" => INFORMATION_SCHEMA,
                _ => return None,
            };
            Some((SYSTEM_TABLES + i as i64, namespace, table))
        })
    }

    /// Schema and name of a table or of its primary key.
    pub fn relation(&self, oid: i64) -> Option<(&str, String)> {
        if let Some((_, _, table)) = self.system().find(|(system, _, _)| *system == oid) {
            return Some((table.schema, table.name.to_owned()));
        }
        if let Some(sequence) = self.sequences.iter().find(|sequence| sequence.oid == oid) {
            return Some((&sequence.schema_name, sequence.name.clone()));
        }
        let table = self.tables.iter().find(|t| t.oid == oid || t.has_key() && t.key_oid() == oid)?;
        let name = if table.oid == oid { table.definition.name.clone() } else { table.key_name() };
        Some((&table.definition.schema_name, name))
    }

    /// The oid of the table that `name`, perhaps with a schema, means.
    pub fn find(&self, name: &str) -> Option<i64> {
        let parts: Vec<String> = split_name(name);
        let (schema, name) = match parts.as_slice() {
            [name] => (None, name),
            [schema, name] | [_, schema, name] => (Some(schema), name),
            _ => return None,
        };
        let in_schema = |schema: &str| {
            let user = self.tables.iter().filter(|t| t.definition.schema_name == schema);
            let user = user.flat_map(|t| {
                let key = t.has_key().then(|| (t.key_oid(), t.key_name()));
                [(t.oid, t.definition.name.clone())].into_iter().chain(key)
            });
            let system = self.system().filter(|(_, _, t)| t.schema == schema);
            let system = system.map(|(oid, _, t)| (oid, t.name.to_owned()));
            let sequences = self.sequences.iter().filter(|s| s.schema_name == schema);
            let sequences = sequences.map(|s| (s.oid, s.name.clone()));
            user.chain(sequences).chain(system).find(|(_, candidate)| candidate == name).map(|(oid, _)| oid)
        };
        match schema {
            Some(schema) => in_schema(schema),
            None => self.path.iter().find_map(|schema| in_schema(schema)),
        }
    }

    /// Whether the table's name alone finds it.
    pub fn is_visible(&self, oid: i64) -> bool {
        self.relation(oid).is_some_and(|(_, name)| self.find(&quote(&name)) == Some(oid))
    }
}

impl UserTable {
    /// The oid of its primary key, as an index and as a constraint.
    pub fn key_oid(&self) -> i64 {
        self.oid + 1
    }

    pub fn key_name(&self) -> String {
        format!("{}_pkey", self.definition.name)
    }

    pub fn has_key(&self) -> bool {
        self.definition.schema.row_id().is_none()
    }

    /// Names of the key columns, in key order; none of a table without a primary key.
    pub fn key_columns(&self) -> impl Iterator<Item = &str> {
        self.definition.schema.key_columns().filter(|_| self.has_key()).map(|c| c.name.as_str())
    }
}

/// `a."B c"` to its parts; what is not quoted is lower case.
pub fn split_name(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    let mut chars = name.trim().chars().peekable();
    while let Some(c) = chars.next() {
        let part = parts.last_mut().expect("there is always a part");
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => part.extend(chars.next()),
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            c if quoted => part.push(c),
            c => part.extend(c.to_lowercase()),
        }
    }
    parts
}

/// A name as SQL writes it.
pub fn quote(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// FNV-1a, below 2^30.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193)) >> 2
}
