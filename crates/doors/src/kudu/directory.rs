//! Tables and tablets as clients look them up: made once for each version of the catalog, and then read from memory. A client
//! that begins to write may ask for a tablet's place a hundred times within a millisecond.

use super::{name, partitions, schema, transaction_table};
use bytes::Bytes;
use oribi_engine::{Engine, Table};
use oribi_kudu::messages::common::{Partition, PartitionSchema, Schema};
use oribi_kudu::messages::master::TableIdentifier;
use oribi_types::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// All tables at one version of the catalog.
pub(super) struct Directory {
    version: u64,
    tables: BTreeMap<String, Arc<TableEntry>>,
    by_id: HashMap<Bytes, Arc<TableEntry>>,
    tablets: HashMap<Bytes, (Arc<TableEntry>, usize)>,
    /// The [table of transactions](super::transaction_table), which is listed nowhere.
    transactions: Arc<TableEntry>,
}

pub(super) struct TableEntry {
    pub table: Arc<Table>,
    pub name: String,
    pub id: Bytes,
    /// Or why Kudu's clients cannot use it.
    shape: Result<Shape>,
}

/// What a table is made of.
pub(super) struct Shape {
    pub schema: Schema,
    pub partition_schema: PartitionSchema,
    /// In the order of their partition keys.
    pub tablets: Vec<TabletEntry>,
}

pub(super) struct TabletEntry {
    pub id: Bytes,
    /// Among the table's tablets.
    pub number: usize,
    pub partition: Partition,
}

impl TabletEntry {
    pub fn start(&self) -> &[u8] {
        self.partition.partition_key_start.as_deref().unwrap_or_default()
    }
}

impl Directory {
    /// `node_id` is part of the ids of tables and tablets, so that those of two servers differ.
    pub fn of(engine: &Engine, node_id: [u8; 16]) -> Self {
        let catalog = engine.catalog();
        let prefix = u64::from_be_bytes(*node_id.first_chunk().expect("an id has 16 bytes"));
        let id = |number: u64| Bytes::from(format!("{prefix:016x}{number:016x}"));
        let entry_of = |table: &Arc<Table>| TableEntry {
            table: table.clone(),
            name: name::show(table.schema_name(), table.name()),
            id: id(table.id()),
            shape: Shape::of(table, id),
        };
        let mut transactions = entry_of(&transaction_table::table());
        if let Ok(shape) = &mut transactions.shape {
            transaction_table::show(&mut shape.schema);
        }
        let mut directory = Directory {
            version: catalog.version(),
            tables: BTreeMap::new(),
            by_id: HashMap::new(),
            tablets: HashMap::new(),
            transactions: Arc::new(transactions),
        };
        for table in catalog.all_tables().filter(|table| table.is_shown()) {
            let entry = Arc::new(entry_of(table));
            for (i, tablet) in entry.shape.iter().flat_map(|shape| shape.tablets.iter().enumerate()) {
                directory.tablets.insert(tablet.id.clone(), (entry.clone(), i));
            }
            directory.by_id.insert(entry.id.clone(), entry.clone());
            directory.tables.insert(entry.name.clone(), entry);
        }
        directory
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// By name, in order.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableEntry>> {
        self.tables.values()
    }

    /// # Errors
    /// `NotFound`.
    pub fn table(&self, identifier: &TableIdentifier) -> Result<&Arc<TableEntry>> {
        let entry = match (&identifier.table_id, &identifier.table_name) {
            (Some(id), _) if *id == self.transactions.id => Some(&self.transactions),
            (Some(id), _) => self.by_id.get(id),
            (None, Some(name)) => self.named(name),
            (None, None) => return Err(Error::invalid("no table is named")),
        };
        entry.ok_or_else(|| {
            let id = identifier.table_id.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            let name = identifier.table_name.as_deref().unwrap_or(&id);
            Error::not_found(format!("the table does not exist: {name}"))
        })
    }

    fn named(&self, name: &str) -> Option<&Arc<TableEntry>> {
        let (schema, table) = name::parse(name);
        if name == self.transactions.name {
            return Some(&self.transactions);
        }
        self.tables.get(&name::show(schema, table))
    }

    /// # Errors
    /// `NotFound`.
    pub fn tablet(&self, id: &Bytes) -> Result<(&Arc<TableEntry>, &TabletEntry)> {
        let listed = self.tablets.get(id).map(|(entry, i)| (entry, *i));
        let found = listed.or(Some((&self.transactions, 0))).and_then(|(entry, i)| {
            let shape = entry.shape.as_ref().ok()?;
            Some((entry, shape.tablets.get(i)?))
        });
        let found = found.filter(|(_, tablet)| tablet.id == *id);
        found.ok_or_else(|| Error::not_found(format!("tablet {} not found", String::from_utf8_lossy(id))))
    }

    /// With the table of transactions, of whose tablet `ksck` asks too.
    pub fn tables_with_tablets(&self) -> impl Iterator<Item = &Arc<TableEntry>> {
        self.tables().chain([&self.transactions])
    }

    pub fn tablet_ids(&self) -> impl Iterator<Item = Bytes> {
        let of_transactions = self.transactions.shape.iter().flat_map(|shape| &shape.tablets);
        self.tablets.keys().cloned().chain(of_transactions.map(|tablet| tablet.id.clone()))
    }
}

impl TableEntry {
    /// Whether its rows are not stored, but [those of transactions](super::transaction_table).
    pub fn is_of_transactions(&self) -> bool {
        self.name == transaction_table::NAME
    }

    /// # Errors
    /// `Unsupported` for a table that Kudu cannot have.
    pub fn shape(&self) -> Result<&Shape> {
        self.shape.as_ref().map_err(Clone::clone)
    }
}

impl Shape {
    fn of(table: &Arc<Table>, id: impl Fn(u64) -> Bytes) -> Result<Self> {
        if table.schema_ref().row_id().is_some() {
            return Err(Error::unsupported(format!("table {} has no primary key", table.name())));
        }
        let (partition_schema, places) = partitions::of_table(table)?;
        let ids: Vec<u64> = table.tablet_ids().collect();
        let tablet = |(number, partition): partitions::Place| {
            let number_of = ids.get(number).copied();
            let tablet = number_of.ok_or_else(|| Error::internal("a tablet without an id"))?;
            Ok(TabletEntry { id: id(tablet), number, partition })
        };
        let tablets = places.into_iter().map(tablet).collect::<Result<Vec<_>>>()?;
        Ok(Shape { schema: schema::to_message(table.schema_ref()), partition_schema, tablets })
    }

    /// The tablets from the one that begins at or before `key` on: it may end before the key, but a client takes what lies
    /// before the first one it gets for uncovered.
    pub fn tablets_from(&self, key: &[u8]) -> &[TabletEntry] {
        let behind = self.tablets.partition_point(|tablet| tablet.start() <= key);
        &self.tablets[behind.saturating_sub(1)..]
    }
}
