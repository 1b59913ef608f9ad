//! Schemas and tables: `CREATE`, `ALTER`, `DROP`, `TRUNCATE`.
//!
//! Inside of a block they are part of its transaction: its statements see what was changed, and `COMMIT` has everybody see it,
//! with the rows. Outside of one each statement is durable when it is answered. One that names several things finds all of them
//! before it changes the first. `CREATE TABLE … AS` by itself creates, fills, and drops the table again if filling fails or is
//! cancelled; others see the table meanwhile, and a process killed in between leaves it empty.

use crate::add_key::AddKey;
use crate::alter;
use crate::catalog::find_table;
use crate::context::QueryEngine;
use crate::dml::{
    self, Constant, ParameterTypes, Parameters, RowSink, Run, Scope, SourceQuery, column_type, qualified,
};
use crate::error::{invalid, unsupported};
use crate::options::{self, Options};
use crate::partitions::{self, PartitionClause};
use crate::sequences::{self, Origin, Wanted};
use crate::syntax::{Parsed, fold};
use crate::upkeep::Upkeep;
use datafusion::sql::sqlparser::ast::{
    AlterTable, AlterTableOperation, ColumnDef, ColumnOption, CreateTable, CreateTableOptions, Expr,
    IndexColumn, ObjectName, ObjectType, SchemaName, Statement, TableConstraint, Truncate,
    TruncateIdentityOption,
};
use futures::StreamExt;
use oribi_engine::{CatalogChange, DEFAULT_BUCKET, Engine, Table, Transaction};
use oribi_session::sql::{Outcome, SqlError, SqlSession, TransactionStatus};
use oribi_types::schema::{ColumnSpec, Generated, OfSequence};
use oribi_types::{
    Column, ColumnSource, ColumnType, Error, ErrorKind, Schema, TableDefinition, TableOptions, Value,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A statement about schemas or tables.
pub(crate) enum Ddl {
    CreateSchema {
        name: String,
        if_not_exists: bool,
    },
    DropSchemas {
        names: Vec<String>,
        if_exists: bool,
        cascade: bool,
    },
    CreateTable {
        create: Box<CreateTable>,
        partition: Option<PartitionClause>,
        query: Option<SourceQuery>,
    },
    DropTables {
        names: Vec<ObjectName>,
        if_exists: bool,
    },
    CreateSequence(sequences::Create),
    DropSequences {
        names: Vec<ObjectName>,
        if_exists: bool,
    },
    AlterTable {
        name: ObjectName,
        if_exists: bool,
        changes: Vec<AlterTableOperation>,
        partition: Option<PartitionClause>,
    },
    /// `ALTER TABLE … ADD PRIMARY KEY`.
    AddKey(AddKey),
    Truncate {
        names: Vec<ObjectName>,
        if_exists: bool,
        /// The tables' sequences begin anew.
        restarts: bool,
    },
    Upkeep(Upkeep),
}

impl Ddl {
    /// `None` if the statement is of another kind.
    ///
    /// # Errors
    /// `Unsupported`, naming what it is; those of a query to create a table from.
    pub(crate) async fn plan(
        scope: Scope<'_>,
        parsed: &Parsed,
        types: &mut ParameterTypes,
    ) -> Result<Option<Self>, SqlError> {
        if let Some(upkeep) = &parsed.upkeep {
            return Ok(Some(Ddl::Upkeep(upkeep.clone())));
        }
        Ok(Some(match &parsed.statement {
            Statement::CreateSchema { schema_name: SchemaName::Simple(name), if_not_exists, .. } => {
                Ddl::CreateSchema { name: schema_name(name)?, if_not_exists: *if_not_exists }
            }
            Statement::CreateTable(create) => {
                check_create(create)?;
                let query = match &create.query {
                    Some(query) => {
                        Some(SourceQuery::plan(scope, Statement::Query(query.clone()), types).await?)
                    }
                    None => None,
                };
                let (create, partition) = (Box::new(create.clone()), parsed.partition.clone());
                Ddl::CreateTable { create, partition, query }
            }
            Statement::Drop { object_type: ObjectType::Table, names, if_exists, .. } => {
                Ddl::DropTables { names: names.clone(), if_exists: *if_exists }
            }
            Statement::CreateSequence { .. } => {
                return Ok(sequences::Create::plan(&parsed.statement)?.map(Ddl::CreateSequence));
            }
            Statement::Drop { object_type: ObjectType::Sequence, names, if_exists, cascade, .. } => {
                if *cascade {
                    return Err(unsupported("DROP SEQUENCE … CASCADE"));
                }
                Ddl::DropSequences { names: names.clone(), if_exists: *if_exists }
            }
            Statement::Drop { object_type: ObjectType::Schema, names, if_exists, cascade, .. } => {
                let names = names.iter().map(schema_name).collect::<Result<_, _>>()?;
                Ddl::DropSchemas { names, if_exists: *if_exists, cascade: *cascade }
            }
            Statement::AlterTable(AlterTable { name, if_exists, operations, .. }) => {
                if let Some(added) = AddKey::plan(scope, name, *if_exists, operations, types).await? {
                    return Ok(Some(Ddl::AddKey(added)));
                }
                let (name, changes) = (name.clone(), operations.clone());
                let partition = parsed.partition.clone();
                Ddl::AlterTable { name, if_exists: *if_exists, changes, partition }
            }
            Statement::Truncate(Truncate { table_names, if_exists, partitions: None, identity, .. }) => {
                let names = table_names.iter().map(|t| t.name.clone()).collect();
                let restarts = matches!(identity, Some(TruncateIdentityOption::Restart));
                Ddl::Truncate { names, if_exists: *if_exists, restarts }
            }
            _ => return Ok(None),
        }))
    }

    /// Whether it is no part of a transaction: it is executed by itself, if it may be.
    pub(crate) fn stands_alone(&self, run: Run<'_>) -> bool {
        let Run { session, query, .. } = run;
        match self {
            // Of a series: it may be of any size.
            Ddl::CreateTable { query: Some(_), .. } | Ddl::AddKey(_) => session.modes().implicit,
            Ddl::AlterTable { partition, .. } => partition.is_some(),
            // What begins anew is not undone.
            Ddl::Truncate { restarts: true, .. } if session.modes().implicit => true,
            Ddl::Truncate { names, .. } => names.iter().any(|name| {
                let (schema, name) = qualified(name).unwrap_or_default();
                let catalog = session.catalog(query.engine());
                let table = find_table(&catalog, session, schema.as_deref(), &name);
                table.is_some_and(|table| (table.schema_name(), table.name()) == DEFAULT_BUCKET)
            }),
            _ => false,
        }
    }

    /// The command tag, unless it tells of rows that the statement writes.
    pub(crate) fn tag(&self) -> Option<&'static str> {
        Some(match self {
            Ddl::CreateSchema { .. } => "CREATE SCHEMA",
            Ddl::DropSchemas { .. } => "DROP SCHEMA",
            Ddl::CreateTable { query: None, .. } => "CREATE TABLE",
            Ddl::CreateTable { .. } => return None,
            Ddl::DropTables { .. } => "DROP TABLE",
            Ddl::CreateSequence(_) => "CREATE SEQUENCE",
            Ddl::DropSequences { .. } => "DROP SEQUENCE",
            Ddl::AlterTable { .. } | Ddl::AddKey(_) => "ALTER TABLE",
            Ddl::Upkeep(upkeep) => upkeep.tag(),
            Ddl::Truncate { .. } => "TRUNCATE TABLE",
        })
    }

    /// # Errors
    /// `AlreadyExists` (42P06, 42P07, 42701), `NotFound` (3F000, 42P01, 42703), `Invalid`, `Unsupported`.
    pub(crate) async fn execute(&self, run: Run<'_>) -> Result<Outcome, SqlError> {
        match self {
            Ddl::CreateSchema { name, if_not_exists } => create_schema(run, name, *if_not_exists).await?,
            Ddl::DropSchemas { names, if_exists, cascade } => {
                drop_schemas(run, names, *if_exists, *cascade).await?;
            }
            Ddl::CreateTable { create, partition, query } => {
                let tag = create_table(run, create, partition.as_ref(), query.as_ref()).await?;
                return Ok(Outcome::Done { tag });
            }
            Ddl::DropTables { names, if_exists } => {
                let tables = all_existing(run, names, *if_exists)?;
                drop_tables(run, tables).await?;
            }
            Ddl::CreateSequence(create) => create.execute(run).await?,
            Ddl::DropSequences { names, if_exists } => {
                sequences::drop_all(run, names, *if_exists).await?;
            }
            Ddl::AlterTable { name, if_exists, changes, partition } => {
                if let Some(table) = existing(run, name, *if_exists)? {
                    match (partition, changes.as_slice()) {
                        (None, changes) => alter::alter(run, table, changes).await?,
                        (Some(partition), [change]) => {
                            partitions::alter(run, table, change, partition).await?;
                        }
                        _ => return Err(unsupported("several changes of partitions in one ALTER TABLE")),
                    }
                }
            }
            Ddl::AddKey(added) => added.execute(run).await?,
            Ddl::Upkeep(upkeep) => upkeep.execute(run)?,
            Ddl::Truncate { names, if_exists, restarts } => {
                let tables = all_existing(run, names, *if_exists)?;
                let restarted = if *restarts { sequences::to_restart(run, &tables)? } else { Vec::new() };
                for table in tables {
                    change(run, CatalogChange::Truncate(table)).await?;
                }
                // Not before: rows that stay would be given their numbers again.
                sequences::restart_all(run, &restarted).await?;
            }
        }
        Ok(Outcome::Done { tag: self.tag().unwrap_or_default().to_owned() })
    }
}

/// Drops tables, each with the sequences that go with it.
async fn drop_tables(run: Run<'_>, tables: Vec<Arc<Table>>) -> Result<(), SqlError> {
    let catalog = run.session.catalog(run.query.engine());
    let goes = |of: &Table, _: &Column| tables.iter().any(|table| table.id() == of.id());
    for table in &tables {
        for sequence in sequences::owned_by(&catalog, table, None) {
            sequences::check_unused(&catalog, &sequence, &format!("table {}", table.name()), goes)?;
        }
    }
    for table in &tables {
        let sequences = sequences::owned_by(&catalog, table, None);
        let dropped = [table].into_iter().chain(&sequences).map(|table| {
            let (schema, name) = (table.schema_name().to_owned(), table.name().to_owned());
            CatalogChange::DropTable { schema, name }
        });
        change_all(run, dropped.collect()).await?;
        sequences.iter().for_each(|sequence| sequences::forget(run, sequence));
    }
    Ok(())
}

/// Changes the catalog: for the session's block, or else for everybody. Returns the table that was created, if one was.
pub(crate) async fn change(run: Run<'_>, change: CatalogChange) -> Result<Option<Arc<Table>>, Error> {
    match run.session.transaction() {
        TransactionStatus::Idle => blocking(run.query, move |engine| engine.change(&change)).await,
        _ => run.session.begin_transaction(run.query.engine()).change(&change),
    }
}

/// As [`change`], by several changes: all or none.
pub(crate) async fn change_all(run: Run<'_>, mut changes: Vec<CatalogChange>) -> Result<(), Error> {
    match (run.session.transaction(), changes.len()) {
        (_, 0) => Ok(()),
        (_, 1) => change(run, changes.remove(0)).await.map(|_| ()),
        (TransactionStatus::Idle, _) => {
            let transaction = run.query.engine().begin();
            changes.iter().try_for_each(|change| transaction.change(change).map(|_| ()))?;
            commit(run, &transaction).await
        }
        _ => {
            let transaction = run.session.begin_transaction(run.query.engine());
            changes.iter().try_for_each(|change| transaction.change(change).map(|_| ()))
        }
    }
}

/// Has everybody see what a statement outside of a block has changed.
async fn commit(run: Run<'_>, transaction: &Arc<Transaction>) -> Result<(), Error> {
    let committing = transaction.into_commit();
    blocking(run.query, move |engine| engine.commit_with_catalog(&committing)).await.map(|_| ())
}

/// Changes the engine's catalog on a thread that may wait for the disk.
pub(crate) async fn blocking<T: Send + 'static>(
    query: &QueryEngine,
    change: impl FnOnce(&Arc<Engine>) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let engine = Arc::clone(query.engine());
    query.runtime().change(move || change(&engine)).await
}

async fn create_schema(run: Run<'_>, name: &str, if_not_exists: bool) -> Result<(), SqlError> {
    if name.starts_with("pg_") || name == "information_schema" || name.contains('\0') {
        let message = format!("unacceptable schema name \"{name}\"");
        return Err(SqlError::new(ErrorKind::Invalid, message).with_sqlstate("42939"));
    }
    let wanted = name.to_owned();
    match change(run, CatalogChange::CreateSchema { name: wanted }).await {
        Err(e) if e.kind() == ErrorKind::AlreadyExists && if_not_exists => {
            run.session.warn(format!("schema \"{name}\" already exists, skipping"));
            Ok(())
        }
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            Err(SqlError::new(e.kind(), format!("schema \"{name}\" already exists")).with_sqlstate("42P06"))
        }
        result => Ok(result.map(|_| ())?),
    }
}

async fn drop_schemas(
    run: Run<'_>,
    names: &[String],
    if_exists: bool,
    cascade: bool,
) -> Result<(), SqlError> {
    let catalog = run.session.catalog(run.query.engine());
    let mut found = Vec::new();
    for name in names {
        if !catalog.schemas().any(|schema| schema == name) {
            if if_exists {
                run.session.warn(format!("schema \"{name}\" does not exist, skipping"));
                continue;
            }
            let message = format!("schema \"{name}\" does not exist");
            return Err(SqlError::new(ErrorKind::NotFound, message).with_sqlstate("3F000"));
        }
        if !cascade && catalog.tables(name).next().is_some() {
            let message = format!("cannot drop schema \"{name}\" because tables depend on it");
            return Err(SqlError::new(ErrorKind::Invalid, message)
                .with_sqlstate("2BP01")
                .with_hint("use DROP SCHEMA … CASCADE to drop its tables too"));
        }
        if !found.contains(name) {
            found.push(name.clone());
        }
    }
    let goes = |table: &Table, _: &Column| found.iter().any(|name| name == table.schema_name());
    for name in &found {
        for sequence in catalog.tables(name).filter(|table| table.sequence().is_some()) {
            sequences::check_unused(&catalog, sequence, &format!("schema {name}"), goes)?;
        }
    }
    for name in found {
        change(run, CatalogChange::DropSchema { name, cascade }).await?;
    }
    Ok(())
}

/// The table named; with `if_exists`, `None` and a warning if there is none.
fn existing(run: Run<'_>, name: &ObjectName, if_exists: bool) -> Result<Option<Arc<Table>>, SqlError> {
    match dml::table(run.session, run.query.engine(), name) {
        Err(e) if e.error.kind() == ErrorKind::NotFound && if_exists => {
            run.session.warn(format!("relation \"{name}\" does not exist, skipping"));
            Ok(None)
        }
        result => result.map(Some),
    }
}

/// The tables named, each once.
fn all_existing(run: Run<'_>, names: &[ObjectName], if_exists: bool) -> Result<Vec<Arc<Table>>, SqlError> {
    let mut tables = BTreeMap::new();
    for name in names {
        if let Some(table) = existing(run, name, if_exists)? {
            tables.insert(table.id(), table);
        }
    }
    Ok(tables.into_values().collect())
}

async fn create_table(
    run: Run<'_>,
    create: &CreateTable,
    partition: Option<&PartitionClause>,
    query: Option<&SourceQuery>,
) -> Result<String, SqlError> {
    let engine = run.query.engine();
    let (definition, wanted) = define(run.session, engine, create, partition, query)?;
    let name = definition.name.clone();
    let schema_name = definition.schema_name.clone();
    let created = match wanted.is_empty() {
        true => change(run, CatalogChange::CreateTable(definition)).await,
        false => create_with_sequences(run, definition, &wanted).await?,
    };
    let created = match created {
        Err(e) if e.kind() == ErrorKind::AlreadyExists && create.if_not_exists => {
            run.session.warn(format!("relation \"{name}\" already exists, skipping"));
            return Ok("CREATE TABLE".to_owned());
        }
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let message = format!("relation \"{name}\" already exists");
            return Err(SqlError::new(ErrorKind::AlreadyExists, message).with_sqlstate("42P07"));
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let message = format!("schema \"{schema_name}\" does not exist");
            return Err(SqlError::new(ErrorKind::NotFound, message).with_sqlstate("3F000"));
        }
        created => created?,
    };
    let (Some(query), Some(table)) = (query, created) else { return Ok("CREATE TABLE".to_owned()) };
    if run.session.transaction() != TransactionStatus::Idle {
        return Ok(format!("SELECT {}", fill(run, &table, query).await?));
    }
    let unfilled = Unfilled::new(run.query, &table);
    match fill(run, &table, query).await {
        Ok(rows) => {
            unfilled.keep();
            Ok(format!("SELECT {rows}"))
        }
        Err(error) => {
            unfilled.undo().await?;
            Err(error)
        }
    }
}

/// Creates a table with the sequences that its columns want: all or none. What is refused of the table itself is told as [`change`] does.
async fn create_with_sequences(
    run: Run<'_>,
    mut definition: TableDefinition,
    wanted: &[Wanted],
) -> Result<Result<Option<Arc<Table>>, Error>, SqlError> {
    let engine = run.query.engine();
    let is_alone = run.session.transaction() == TransactionStatus::Idle;
    let transaction = if is_alone { engine.begin() } else { run.session.begin_transaction(engine) };
    if transaction.catalog().table(&definition.schema_name, &definition.name).is_some() {
        let message = format!("table \"{}\" already exists", definition.name);
        return Ok(Err(Error::already_exists(message)));
    }
    for Wanted { column, origin } in wanted {
        let of = match origin {
            Origin::Named(name) => {
                let id = sequences::named(run.session, engine, name)?.id();
                OfSequence { id, owned: false, identity: None }
            }
            Origin::New { rules, identity } => {
                let name = sequences::free_name(&transaction.catalog(), &definition, column);
                let sequence = sequences::definition(&definition.schema_name, &name, *rules);
                match transaction.change(&CatalogChange::CreateTable(sequence)) {
                    Ok(Some(made)) => OfSequence { id: made.id(), owned: true, identity: *identity },
                    Ok(None) => return Err(SqlError::new(ErrorKind::Internal, "no sequence was created")),
                    Err(error) => return Ok(Err(error)),
                }
            }
        };
        definition.schema = definition.schema.with_generated(column, Some(Generated::Sequence(of)))?;
    }
    let (schema, name) = (definition.schema_name.clone(), definition.name.clone());
    let created = transaction.change(&CatalogChange::CreateTable(definition));
    if is_alone && created.is_ok() {
        match commit(run, &transaction).await {
            // Others were first.
            Err(e) if e.kind() == ErrorKind::Conflict && engine.catalog().table(&schema, &name).is_some() => {
                return Ok(Err(Error::already_exists(format!("table \"{name}\" already exists"))));
            }
            committed => committed?,
        }
    }
    Ok(created)
}

/// A table that is not filled yet, of a `CREATE TABLE … AS` or the like; dropped together with this.
pub(crate) struct Unfilled {
    query: Arc<QueryEngine>,
    table: Option<Arc<Table>>,
}

impl Unfilled {
    pub(crate) fn new(query: &Arc<QueryEngine>, table: &Arc<Table>) -> Self {
        Unfilled { query: Arc::clone(query), table: Some(Arc::clone(table)) }
    }

    pub(crate) fn keep(mut self) {
        self.table = None;
    }

    pub(crate) async fn undo(mut self) -> Result<(), Error> {
        match self.table.take() {
            Some(table) => blocking(&self.query, move |engine| drop_same(engine, &table)).await,
            None => Ok(()),
        }
    }
}

impl Drop for Unfilled {
    fn drop(&mut self) {
        let Some(table) = self.table.take() else { return };
        // The statement was cancelled: nobody waits for this.
        let engine = Arc::clone(self.query.engine());
        self.query.runtime().detach(move || {
            if let Err(error) = drop_same(&engine, &table) {
                tracing::warn!(%error, table = table.name(), "a table that was not filled stays");
            }
        });
    }
}

/// Drops `table`, unless its name has come to mean another one, or none.
fn drop_same(engine: &Engine, table: &Table) -> Result<(), Error> {
    match engine.catalog().table(table.schema_name(), table.name()) {
        Some(current) if current.id() == table.id() => engine.drop_table(table.schema_name(), table.name()),
        _ => Ok(()),
    }
}

/// Inserts the rows of `query` into a table of its columns.
pub(crate) async fn fill(run: Run<'_>, table: &Arc<Table>, query: &SourceQuery) -> Result<u64, SqlError> {
    let schema = table.schema();
    let positions: Vec<usize> = (0..schema.shown().len()).collect();
    let mut sink = RowSink::new(run.destination(), table, &schema, &positions);
    let mut batches = query.run(run).await?;
    while let Some(batch) = batches.next().await {
        sink.push(&batch?).await?;
    }
    sink.finish().await
}

fn define(
    session: &SqlSession,
    engine: &Engine,
    create: &CreateTable,
    partition: Option<&PartitionClause>,
    query: Option<&SourceQuery>,
) -> Result<(TableDefinition, Vec<Wanted>), SqlError> {
    let (schema_name, name) = dml::new_table_name(session, engine, &create.name)?;
    let options = match &create.table_options {
        CreateTableOptions::None => Options::default(),
        CreateTableOptions::With(options) => options::parse(options)?,
        other => return Err(unsupported(&other.to_string())),
    };
    let taken = create.columns.iter().map(sequences::take).collect::<Result<Vec<_>, _>>()?;
    let (definitions, wanted): (Vec<ColumnDef>, Vec<Option<Wanted>>) = taken.into_iter().unzip();
    let (columns, mut key) = match query {
        Some(query) => (columns_of(query)?, Vec::new()),
        None => columns_defined(&definitions)?,
    };
    check_column_count(columns.len())?;
    for constraint in &create.constraints {
        let TableConstraint::PrimaryKey(constraint) = constraint else {
            return Err(unsupported(&constraint.to_string()));
        };
        extend_key(&mut key, constraint.columns.iter().map(key_column).collect::<Result<_, _>>()?)?;
    }
    if let Some(columns) = &options.primary_key {
        extend_key(&mut key, columns.clone())?;
    }
    let key_names: Vec<&str> = key.iter().map(String::as_str).collect();
    if let Some(missing) = key.iter().find(|k| !columns.iter().any(|c| c.name == **k)) {
        return Err(invalid("42703", format!("column \"{missing}\" named in key does not exist")));
    }
    for (i, column) in columns.iter().enumerate() {
        if columns[..i].iter().any(|other| other.name == column.name) {
            return Err(invalid("42701", format!("column \"{}\" specified more than once", column.name)));
        }
    }
    let schema = match key_names.as_slice() {
        [] if partition.is_some() => {
            return Err(unsupported("PARTITION BY of a table without a primary key"));
        }
        [] => Schema::without_key(columns),
        key => Schema::new(columns, key),
    };
    let schema = schema.map_err(|e| SqlError::from(e).with_sqlstate("42P16"))?;
    let partitioning = partitions::define(&schema, partition)?;
    let options = options.table_options(&schema, TableOptions::new(engine.options().durability))?;
    let wanted = wanted.into_iter().flatten().collect();
    Ok((TableDefinition { schema_name, name, schema, partitioning, options }, wanted))
}

/// The most columns of a table that SQL makes, as PostgreSQL has it. Other doors may make tables with more.
const COLUMNS_MAX: usize = 1600;

/// # Errors
/// `TooLarge` (54011).
pub(crate) fn check_column_count(columns: usize) -> Result<(), SqlError> {
    if columns <= COLUMNS_MAX {
        return Ok(());
    }
    let message = format!("tables can have at most {COLUMNS_MAX} columns");
    Err(SqlError::new(ErrorKind::TooLarge, message).with_sqlstate("54011"))
}

/// Columns, and the primary key as far as columns say.
fn columns_defined(definitions: &[ColumnDef]) -> Result<(Vec<ColumnSpec>, Vec<String>), SqlError> {
    let (mut columns, mut key) = (Vec::new(), Vec::new());
    for definition in definitions {
        let (spec, in_key) = column_spec(definition)?;
        if in_key {
            extend_key(&mut key, vec![spec.name.clone()])?;
        }
        columns.push(spec);
    }
    Ok((columns, key))
}

/// A column, and whether it is the primary key.
pub(crate) fn column_spec(definition: &ColumnDef) -> Result<(ColumnSpec, bool), SqlError> {
    let mut spec = ColumnSpec::new(fold(&definition.name), column_type(&definition.data_type)?);
    let mut in_key = false;
    for option in &definition.options {
        match &option.option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => spec.nullable = false,
            ColumnOption::Default(expr) => spec.default = Some(default_value(&spec, expr)?),
            ColumnOption::PrimaryKey(_) => in_key = true,
            ColumnOption::Comment(_) | ColumnOption::Collation(_) => {}
            other => return Err(unsupported(&format!("{other} in a column"))),
        }
    }
    // A default of null is no default.
    spec.default = spec.default.filter(|value| !value.is_null());
    Ok((spec, in_key))
}

pub(crate) fn default_value(spec: &ColumnSpec, expr: &Expr) -> Result<Value, SqlError> {
    let column = pseudo_column(&spec.name, spec.column_type);
    let mut types = ParameterTypes::default();
    let constant = Constant::compile(expr, &column, &mut types)?;
    match constant {
        Some(constant @ Constant::Value(_)) => constant.value(&column, Parameters::default()),
        _ => Err(unsupported(&format!("DEFAULT {expr}")).with_hint("a default is a constant")),
    }
}

/// A column of a table that is not there yet, to compile values for.
pub(crate) fn pseudo_column(name: &str, column_type: ColumnType) -> Column {
    Column {
        id: 0,
        name: name.to_owned(),
        column_type,
        nullable: true,
        default: None,
        missing: None,
        source: ColumnSource::Slot(0),
        generated: None,
        attributes: Default::default(),
    }
}

fn columns_of(query: &SourceQuery) -> Result<Vec<ColumnSpec>, SqlError> {
    let column = |field: &Arc<arrow::datatypes::Field>| {
        let column_type = ColumnType::from_arrow(field.data_type())?;
        let is_json = field.metadata().get(oribi_types::schema::TYPE_METADATA).is_some_and(|t| t == "json");
        let column_type = if is_json { ColumnType::Json } else { column_type };
        Ok(ColumnSpec::new(field.name().clone(), column_type))
    };
    query.schema().fields().iter().map(column).collect()
}

pub(crate) fn key_column(column: &IndexColumn) -> Result<String, SqlError> {
    match &column.column.expr {
        Expr::Identifier(ident) => Ok(fold(ident)),
        other => Err(unsupported(&format!("primary key over {other}"))),
    }
}

fn extend_key(key: &mut Vec<String>, more: Vec<String>) -> Result<(), SqlError> {
    if !key.is_empty() {
        return Err(invalid("42P16", "multiple primary keys for a table are not allowed"));
    }
    *key = more;
    Ok(())
}

fn check_create(create: &CreateTable) -> Result<(), SqlError> {
    let refused = [
        (create.temporary, "CREATE TEMPORARY TABLE"),
        (create.or_replace, "CREATE OR REPLACE TABLE"),
        (create.external, "CREATE EXTERNAL TABLE"),
        (create.like.is_some() || create.clone.is_some(), "CREATE TABLE … LIKE"),
        (create.inherits.is_some() || create.partition_of.is_some(), "table inheritance"),
        (create.partition_by.is_some(), "PARTITION BY other than HASH (…) PARTITIONS n and RANGE (…) (…)"),
        (create.query.is_some() && !create.columns.is_empty(), "a column list in CREATE TABLE … AS"),
        (create.on_commit.is_some(), "ON COMMIT"),
    ];
    match refused.iter().find(|(found, _)| *found) {
        Some((_, what)) => Err(unsupported(what)),
        None => Ok(()),
    }
}

fn schema_name(name: &ObjectName) -> Result<String, SqlError> {
    match qualified(name)? {
        (None, name) => Ok(name),
        (Some(_), _) => Err(invalid("42601", format!("improper schema name {name}"))),
    }
}
