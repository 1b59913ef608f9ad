//! Sequences: what they are, and where they stand in the catalog.
//!
//! A sequence is a table there, with its rules as an [attribute](SEQUENCE): so its name is taken, and it comes and goes with blocks, as
//! those of tables do. No statement knows it as one. Its [numbers](numbers) are part of no transaction.

mod calls;
mod numbers;
mod wanted;

pub(crate) use calls::{Calls, call, is_function};
pub(crate) use numbers::{Drawn, Numbers, Sequence, as_value};
pub(crate) use wanted::{Origin, Wanted, take, taken_from};

use crate::catalog::search_path;
use crate::context::QueryEngine;
use crate::ddl::change;
use crate::dml::{Run, aside, qualified};
use crate::error::{invalid, unsupported};
use crate::only_call::function_name;
use crate::syntax::fold;
use datafusion::sql::sqlparser::ast::{self, DataType, Expr, ObjectName, SequenceOptions, UnaryOperator};
use oribi_engine::{Catalog, CatalogChange, Engine, SEQUENCE, Table};
use oribi_session::sql::{SqlError, SqlSession, TransactionStatus};
use oribi_types::schema::ColumnSpec;
use oribi_types::{
    Column, ColumnType, Durability, ErrorKind, Partitioning, Schema, TableDefinition, TableOptions,
};
use std::sync::Arc;

/// Which numbers a sequence gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) column_type: ColumnType,
    pub(crate) start: i64,
    pub(crate) increment: i64,
    pub(crate) min: i64,
    pub(crate) max: i64,
    pub(crate) cycles: bool,
    /// Shown, and otherwise of no meaning.
    pub(crate) cache: i64,
}

impl Rules {
    /// Those of `CREATE SEQUENCE`, or behind `AS IDENTITY`, of numbers of a type.
    ///
    /// # Errors
    /// `Invalid` (22023, 42601) for options that contradict each other.
    pub(crate) fn of(column_type: ColumnType, options: &[SequenceOptions]) -> Result<Self, SqlError> {
        let (lowest, highest) = match column_type {
            ColumnType::Int16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
            ColumnType::Int32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            ColumnType::Int64 => (i64::MIN, i64::MAX),
            _ => return Err(invalid("22023", "sequence type must be smallint, integer, or bigint")),
        };
        let (mut increment, mut min, mut max, mut start, mut cycles, mut cache) =
            (1, None, None, None, false, 1);
        for option in options {
            match option {
                SequenceOptions::IncrementBy(by, _) => increment = number(by)?,
                SequenceOptions::MinValue(value) => min = value.as_ref().map(number).transpose()?,
                SequenceOptions::MaxValue(value) => max = value.as_ref().map(number).transpose()?,
                SequenceOptions::StartWith(value, _) => start = Some(number(value)?),
                SequenceOptions::Cache(value) => cache = number(value)?,
                // The parser has it the other way round in one of its forms: what it is written as counts.
                cycle @ SequenceOptions::Cycle(_) => cycles = !cycle.to_string().contains("NO"),
            }
        }
        if increment == 0 {
            return Err(invalid("22023", "INCREMENT must not be zero"));
        }
        if cache < 1 {
            return Err(invalid("22023", format!("CACHE ({cache}) must be greater than zero")));
        }
        let ascends = increment > 0;
        let min = min.unwrap_or(if ascends { 1 } else { lowest });
        let max = max.unwrap_or(if ascends { highest } else { -1 });
        for (name, value) in [("MINVALUE", min), ("MAXVALUE", max)] {
            if !(lowest..=highest).contains(&value) {
                let message =
                    format!("{name} ({value}) is out of range for sequence data type {column_type}");
                return Err(invalid("22023", message));
            }
        }
        if min >= max {
            return Err(invalid("22023", format!("MINVALUE ({min}) must be less than MAXVALUE ({max})")));
        }
        let start = start.unwrap_or(if ascends { min } else { max });
        if start < min {
            return Err(invalid(
                "22023",
                format!("START value ({start}) cannot be less than MINVALUE ({min})"),
            ));
        }
        if start > max {
            return Err(invalid(
                "22023",
                format!("START value ({start}) cannot be greater than MAXVALUE ({max})"),
            ));
        }
        Ok(Rules { column_type, start, increment, min, max, cycles, cache })
    }

    /// As an attribute has them.
    fn to_text(self) -> String {
        let Rules { column_type, start, increment, min, max, cycles, cache } = self;
        format!("{column_type} {start} {increment} {min} {max} {cycles} {cache}")
    }

    /// # Errors
    /// `Corrupt`.
    pub(crate) fn read(text: &str) -> oribi_types::Result<Self> {
        let read = || {
            let mut words = text.split(' ');
            let column_type = match words.next()? {
                "smallint" => ColumnType::Int16,
                "integer" => ColumnType::Int32,
                "bigint" => ColumnType::Int64,
                _ => return None,
            };
            let (start, increment) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let (min, max) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let (cycles, cache) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some(Rules { column_type, start, increment, min, max, cycles, cache })
        };
        read().ok_or_else(|| oribi_types::Error::corrupt(format!("rules of a sequence: {text}")))
    }
}

/// A whole number as SQL writes it.
fn number(expr: &Expr) -> Result<i64, SqlError> {
    let text = match expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => format!("-{expr}"),
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => expr.to_string(),
        other => other.to_string(),
    };
    text.parse().map_err(|_| invalid("22023", format!("{text} is no bigint")))
}

/// The table that a sequence of these `rules` is.
pub(crate) fn definition(schema_name: &str, name: &str, rules: Rules) -> TableDefinition {
    let column = |name, column_type| ColumnSpec::new(name, column_type).not_null();
    let columns = vec![
        column("id", ColumnType::Int16),
        column("last_value", ColumnType::Int64),
        column("is_called", ColumnType::Bool),
    ];
    let schema = Schema::new(columns, &["id"]).expect("the columns of a sequence are valid");
    let mut options = TableOptions::new(Durability::Sync);
    options.attributes.insert(SEQUENCE.to_owned(), rules.to_text());
    let (schema_name, name) = (schema_name.to_owned(), name.to_owned());
    TableDefinition { schema_name, name, schema, partitioning: Partitioning::none(), options }
}

/// The sequence that `name` means.
///
/// # Errors
/// `NotFound` (42P01); 42809 for a table.
pub(crate) fn find(
    session: &SqlSession,
    engine: &Engine,
    (schema, name): (Option<&str>, &str),
) -> Result<Arc<Table>, SqlError> {
    let catalog = session.catalog(engine);
    let found = match schema {
        Some(schema) => catalog.table(schema, name).cloned(),
        None => search_path(session).iter().find_map(|schema| catalog.table(schema, name)).cloned(),
    };
    let shown = || schema.map_or_else(|| name.to_owned(), |schema| format!("{schema}.{name}"));
    let found = found.ok_or_else(|| {
        let message = format!("relation \"{}\" does not exist", shown());
        SqlError::new(ErrorKind::NotFound, message).with_sqlstate("42P01")
    })?;
    match found.sequence() {
        Some(_) => Ok(found),
        None => Err(invalid("42809", format!("\"{}\" is not a sequence", shown()))),
    }
}

/// `CREATE SEQUENCE`.
#[derive(Clone)]
pub(crate) struct Create {
    name: ObjectName,
    if_not_exists: bool,
    rules: Rules,
}

impl Create {
    /// # Errors
    /// Those of its rules; `Unsupported` for `TEMPORARY` and `OWNED BY` a column.
    pub(crate) fn plan(statement: &ast::Statement) -> Result<Option<Self>, SqlError> {
        let ast::Statement::CreateSequence {
            temporary,
            if_not_exists,
            name,
            data_type,
            sequence_options,
            owned_by,
        } = statement
        else {
            return Ok(None);
        };
        if *temporary {
            return Err(unsupported("CREATE TEMPORARY SEQUENCE"));
        }
        if owned_by.as_ref().is_some_and(|owner| !owner.to_string().eq_ignore_ascii_case("none")) {
            return Err(unsupported("OWNED BY in CREATE SEQUENCE"));
        }
        let column_type = match data_type {
            None => ColumnType::Int64,
            Some(DataType::SmallInt(_) | DataType::Int2(_)) => ColumnType::Int16,
            Some(DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_)) => ColumnType::Int32,
            Some(DataType::BigInt(_) | DataType::Int8(_)) => ColumnType::Int64,
            Some(_) => return Err(invalid("22023", "sequence type must be smallint, integer, or bigint")),
        };
        let rules = Rules::of(column_type, sequence_options)?;
        Ok(Some(Create { name: name.clone(), if_not_exists: *if_not_exists, rules }))
    }

    /// # Errors
    /// `AlreadyExists` (42P07); `NotFound` (3F000) for the schema.
    pub(crate) async fn execute(&self, run: Run<'_>) -> Result<(), SqlError> {
        let (schema, name) = crate::dml::new_table_name(run.session, run.query.engine(), &self.name)?;
        let made = change(run, CatalogChange::CreateTable(definition(&schema, &name, self.rules))).await;
        match made {
            Err(e) if e.kind() == ErrorKind::AlreadyExists && self.if_not_exists => {
                run.session.warn(format!("relation \"{name}\" already exists, skipping"));
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                let message = format!("relation \"{name}\" already exists");
                Err(SqlError::new(e.kind(), message).with_sqlstate("42P07"))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Err(SqlError::from(e).with_sqlstate("3F000")),
            made => Ok(made.map(|_| ())?),
        }
    }
}

/// `DROP SEQUENCE`.
///
/// # Errors
/// `NotFound` (42P01); 2BP01 for one that a column has its numbers from.
pub(crate) async fn drop_all(run: Run<'_>, names: &[ObjectName], if_exists: bool) -> Result<(), SqlError> {
    let mut found: Vec<Arc<Table>> = Vec::new();
    for name in names {
        let (schema, of) = qualified(name)?;
        match find(run.session, run.query.engine(), (schema.as_deref(), &of)) {
            Err(error) if error.error.kind() == ErrorKind::NotFound && if_exists => {
                run.session.warn(format!("sequence \"{name}\" does not exist, skipping"));
            }
            sequence => found.push(sequence?),
        }
    }
    let catalog = run.session.catalog(run.query.engine());
    for sequence in &found {
        check_unused(&catalog, sequence, &format!("sequence {}", sequence.name()), |_, _| false)?;
    }
    for sequence in found {
        let (schema, name) = (sequence.schema_name().to_owned(), sequence.name().to_owned());
        change(run, CatalogChange::DropTable { schema, name }).await?;
        forget(run, &sequence);
    }
    Ok(())
}

/// A sequence was dropped, unless a block does, which may undo it.
pub(crate) fn forget(run: Run<'_>, sequence: &Table) {
    if run.session.transaction() == TransactionStatus::Idle {
        run.session.forget_drawn_of(sequence.id());
    }
}

/// A name for the sequence of a column, as PostgreSQL makes it: `table_column_seq`, if that is free.
pub(crate) fn free_name(catalog: &Catalog, table: &TableDefinition, column: &str) -> String {
    let name = format!("{}_{column}_seq", table.name);
    let is_taken = |name: &str| catalog.table(&table.schema_name, name).is_some() || name == table.name;
    let mut names = std::iter::once(name.clone()).chain((1..).map(|n| format!("{name}{n}")));
    names.find(|name| !is_taken(name)).unwrap_or(name)
}

/// The sequences that go with tables, which `TRUNCATE … RESTART IDENTITY` has begin anew.
///
/// # Errors
/// `Unsupported` in a block: it would not be undone with it.
pub(crate) fn to_restart(run: Run<'_>, tables: &[Arc<Table>]) -> Result<Vec<Arc<Table>>, SqlError> {
    let catalog = run.session.catalog(run.query.engine());
    let sequences: Vec<_> = tables.iter().flat_map(|table| owned_by(&catalog, table, None)).collect();
    match sequences.is_empty() || run.session.transaction() == TransactionStatus::Idle {
        true => Ok(sequences),
        false => Err(unsupported("RESTART IDENTITY in a block")),
    }
}

/// Has sequences begin anew.
///
/// # Errors
/// `NotFound` for one that was dropped.
pub(crate) async fn restart_all(run: Run<'_>, sequences: &[Arc<Table>]) -> Result<(), SqlError> {
    for table in sequences {
        let start = Rules::read(table.sequence().unwrap_or_default())?.start;
        let sequence = run.query.numbers().of(run.query.engine(), table.id());
        let (engine, session) = (Arc::clone(run.query.engine()), Arc::clone(run.session));
        let set = move || sequence.set(&engine, &session, start, false);
        let obligation = aside(run.query.engine(), None, set).await??;
        run.query.engine().settled(obligation).await?;
    }
    Ok(())
}

/// Finds out whether a sequence may be dropped, together with `what` it goes with and the columns that `goes` says.
///
/// # Errors
/// 2BP01 if a column that stays has its numbers from it.
pub(crate) fn check_unused(
    catalog: &Catalog,
    sequence: &Table,
    what: &str,
    goes: impl Fn(&Table, &Column) -> bool,
) -> Result<(), SqlError> {
    let uses = |table: &&Arc<Table>| {
        let mut columns = table.schema_ref().columns().iter().filter(|column| !goes(table, column));
        columns.any(|column| column.sequence().is_some_and(|of| of.id == sequence.id()))
    };
    let Some(table) = catalog.all_tables().find(uses) else { return Ok(()) };
    let message = format!("cannot drop {what} because other objects depend on it");
    let (name, table) = (sequence.name(), table.name());
    Err(invalid("2BP01", message)
        .with_hint(format!("a column of table {table} has its numbers from sequence {name}")))
}

/// The sequences that go with a table, or with one of its columns.
pub(crate) fn owned_by(catalog: &Catalog, table: &Table, column: Option<&str>) -> Vec<Arc<Table>> {
    let columns = table.schema_ref().columns().iter();
    let columns = columns.filter(|of| column.is_none_or(|column| of.name == column));
    let owned = columns.filter_map(|column| column.sequence()).filter(|of| of.owned);
    owned.filter_map(|of| catalog.table_by_id(of.id).cloned()).collect()
}

/// A name as a function's argument has it: `s`, `"S"`, `public.s`.
pub(crate) fn parse_name(text: &str) -> Result<(Option<String>, String), SqlError> {
    let mut parts = crate::pg_catalog::split_name(text);
    match (parts.pop(), parts.pop(), parts.is_empty()) {
        (Some(name), schema, true) if !name.is_empty() => Ok((schema, name)),
        _ => Err(invalid("42602", format!("invalid name syntax: {text}"))),
    }
}

/// As [`find`], by a name in a text.
pub(crate) fn named(session: &SqlSession, engine: &Engine, text: &str) -> Result<Arc<Table>, SqlError> {
    let (schema, name) = parse_name(text)?;
    find(session, engine, (schema.as_deref(), &name))
}

/// The text of a literal, perhaps cast to `regclass`.
pub(crate) fn literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Nested(inner) => literal(inner),
        Expr::Cast { expr, data_type, .. } if is_regclass(data_type) => literal(expr),
        // As a cast is spelled once the statement was read.
        Expr::Function(function) if function_name(function).as_deref() == Some("regclass") => {
            match &function.args {
                ast::FunctionArguments::List(list) => match list.args.as_slice() {
                    [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr))] => literal(expr),
                    _ => None,
                },
                _ => None,
            }
        }
        Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn is_regclass(data_type: &DataType) -> bool {
    match data_type {
        DataType::Regclass => true,
        DataType::Custom(name, _) => {
            name.0.last().and_then(|part| part.as_ident()).is_some_and(|name| fold(name) == "regclass")
        }
        DataType::Text => true,
        _ => false,
    }
}

/// The next `count` numbers of a sequence.
///
/// # Errors
/// 2200H behind the last; `NotFound` for a sequence that was dropped.
pub(crate) async fn draw(
    query: &Arc<QueryEngine>,
    session: &Arc<SqlSession>,
    id: u64,
    count: usize,
) -> Result<Drawn, SqlError> {
    let sequence = query.numbers().of(query.engine(), id);
    match sequence.draw(query.engine(), session, count, false) {
        Err(error) if error.error.kind() == ErrorKind::WouldBlock => {
            let (engine, session) = (Arc::clone(query.engine()), Arc::clone(session));
            aside(query.engine(), None, move || sequence.draw(&engine, &session, count, true)).await?
        }
        drawn => drawn,
    }
}
