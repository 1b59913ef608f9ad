//! `SELECT nextval('s')`, `currval`, `lastval` and `setval`, as statements of their own: their arguments are a query, for each row of which
//! the function is called. Elsewhere these functions are refused, but for `nextval` as the value or the default of a column.

use super::{find, parse_name};
use crate::dml::{ParameterTypes, Room, Run, Scope, SourceQuery, aside};
use crate::error::{invalid, unsupported};
use crate::only_call::OnlyCall;
use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, SelectItem, SetExpr, Statement, Value,
};
use futures::{StreamExt, stream};
use oribi_engine::{Obligation, Table};
use oribi_session::sql::{Outcome, SqlError};
use oribi_types::ErrorKind;
use std::sync::Arc;

/// What an answer takes, while it is gathered and once it is.
const ANSWER_BYTES: usize = 2 * size_of::<Option<i64>>() + size_of::<i64>();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Next,
    Current,
    Last,
    Set,
}

impl Action {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "nextval" => Action::Next,
            "currval" => Action::Current,
            "lastval" => Action::Last,
            "setval" => Action::Set,
            _ => return None,
        })
    }
}

/// A planned statement.
pub(crate) struct Calls {
    action: Action,
    /// A row of arguments for each call.
    arguments: SourceQuery,
    count: usize,
    columns: SchemaRef,
}

/// Whether a function is about sequences.
pub(crate) fn is_function(name: &str) -> bool {
    Action::of(name).is_some()
}

/// What a query calls that selects nothing but one of the functions.
fn called(statement: &Statement) -> Option<(Action, OnlyCall<'_>)> {
    let call = OnlyCall::of(statement)?;
    Some((Action::of(&call.name)?, call))
}

/// The same with its arguments in place of the function, if it is such a query.
pub(crate) fn call(statement: &Statement) -> Option<Statement> {
    let (_, OnlyCall { args, .. }) = called(statement)?;
    let item = |(i, arg): (usize, &FunctionArg)| {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg else { return None };
        let text = |text: &str| Expr::value(Value::SingleQuotedString(text.to_owned()));
        let expr = super::literal(expr).filter(|_| i == 0).map_or_else(|| expr.clone(), text);
        Some(SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', format!("a{i}")) })
    };
    let one = SelectItem::UnnamedExpr(Expr::value(Value::Null));
    let items: Vec<SelectItem> = args.iter().enumerate().map(item).collect::<Option<_>>()?;
    let mut statement = statement.clone();
    let Statement::Query(query) = &mut statement else { return None };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    select.projection = if items.is_empty() { vec![one] } else { items };
    Some(statement)
}

impl Calls {
    /// `None` if the statement is another.
    ///
    /// # Errors
    /// 42883 for another number of arguments; those of planning these.
    pub(crate) async fn plan(
        scope: Scope<'_>,
        statement: &Statement,
        types: &mut ParameterTypes,
    ) -> Result<Option<Self>, SqlError> {
        let Some((action, only)) = called(statement) else { return Ok(None) };
        let count = only.args.len();
        let is_wanted = match action {
            Action::Next | Action::Current => count == 1,
            Action::Last => count == 0,
            Action::Set => (2..=3).contains(&count),
        };
        if !is_wanted {
            return Err(invalid("42883", "no function of sequences takes so many arguments"));
        }
        let arguments =
            call(statement).ok_or_else(|| unsupported("a named argument of a function of sequences"))?;
        let arguments = SourceQuery::plan(scope, arguments, types).await?;
        let field = Field::new(only.column(), DataType::Int64, true);
        let columns = Arc::new(Schema::new(vec![field]));
        Ok(Some(Calls { action, arguments, count, columns }))
    }

    pub(crate) fn columns(&self) -> &SchemaRef {
        &self.columns
    }

    pub(crate) fn query(&self) -> &SourceQuery {
        &self.arguments
    }

    /// What it is called where nothing may be written.
    pub(crate) fn writes(&self) -> Option<&'static str> {
        match self.action {
            Action::Next => Some("nextval()"),
            Action::Set => Some("setval()"),
            Action::Current | Action::Last => None,
        }
    }

    /// # Errors
    /// 42P01, 42809 for a name that is no sequence's; 55000 for `currval` and `lastval` before `nextval`; 2200H, 22003.
    pub(crate) async fn execute(&self, run: Run<'_>) -> Result<Outcome, SqlError> {
        let mut rows = self.arguments.run(run).await?;
        let (mut answers, mut obligation) = (Vec::new(), Obligation::default());
        let room = Room::new(run.query);
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            let names = column(&batch, 0, &DataType::Utf8)?;
            let names = names.as_any().downcast_ref::<arrow::array::StringArray>();
            for row in 0..batch.num_rows() {
                let name = names.filter(|names| !names.is_null(row)).map(|names| names.value(row));
                answers.push(self.answer(run, &batch, row, name, &mut obligation).await?);
            }
            room.reserve(answers.len() * ANSWER_BYTES)?;
        }
        run.query.engine().settled(obligation).await?;
        let answers: ArrayRef = Arc::new(Int64Array::from(answers));
        let batch = RecordBatch::try_new(Arc::clone(&self.columns), vec![answers]);
        let batch = batch.map_err(|error| SqlError::from(oribi_types::Error::from(error)))?;
        // They are counted until the client has taken them.
        let counted = move |batch| {
            let _room = &room;
            Ok(batch)
        };
        Ok(Outcome::Rows(Box::pin(stream::iter([batch]).map(counted))))
    }

    async fn answer(
        &self,
        run: Run<'_>,
        batch: &RecordBatch,
        row: usize,
        name: Option<&str>,
        obligation: &mut Obligation,
    ) -> Result<Option<i64>, SqlError> {
        if self.action == Action::Last {
            let none = || invalid("55000", "lastval is not yet defined in this session");
            let (number, told) = run.session.last_drawn().ok_or_else(none)?;
            obligation.merge(told);
            return Ok(Some(number));
        }
        // A function of null is null.
        let Some(name) = name else { return Ok(None) };
        let table = named(run, name)?;
        match self.action {
            Action::Current => {
                let message =
                    format!("currval of sequence \"{}\" is not yet defined in this session", table.name());
                let none = || invalid("55000", message);
                let (number, told) = run.session.drawn(table.id()).ok_or_else(none)?;
                obligation.merge(told);
                Ok(Some(number))
            }
            Action::Next => {
                let drawn = super::draw(run.query, run.session, table.id(), 1).await?;
                obligation.merge(drawn.obligation);
                Ok(drawn.numbers.first().copied())
            }
            Action::Set | Action::Last => {
                let value = column(batch, 1, &DataType::Int64)?;
                let value = value
                    .as_any()
                    .downcast_ref::<Int64Array>()
                    .filter(|v| !v.is_null(row))
                    .map(|v| v.value(row));
                let is_called = match self.count {
                    3 => {
                        let column = column(batch, 2, &DataType::Boolean)?;
                        let flags = column.as_any().downcast_ref::<arrow::array::BooleanArray>();
                        flags.filter(|flags| !flags.is_null(row)).map(|flags| flags.value(row))
                    }
                    _ => Some(true),
                };
                let (Some(value), Some(is_called)) = (value, is_called) else { return Ok(None) };
                let sequence = run.query.numbers().of(run.query.engine(), table.id());
                let (engine, session) = (Arc::clone(run.query.engine()), Arc::clone(run.session));
                let set = move || sequence.set(&engine, &session, value, is_called);
                obligation.merge(aside(run.query.engine(), None, set).await??);
                Ok(Some(value))
            }
        }
    }
}

fn named(run: Run<'_>, name: &str) -> Result<Arc<Table>, SqlError> {
    let (schema, name) = parse_name(name)?;
    find(run.session, run.query.engine(), (schema.as_deref(), &name))
}

fn column(batch: &RecordBatch, position: usize, data_type: &DataType) -> Result<ArrayRef, SqlError> {
    let wrong = |e: arrow::error::ArrowError| {
        SqlError::from(oribi_types::Error::new(ErrorKind::Invalid, e.to_string()))
    };
    cast(batch.column(position), data_type).map_err(wrong)
}
