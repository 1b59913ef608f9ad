//! `SET`, `SHOW`, `RESET`, and what `BEGIN … COMMIT` means while there are no transactions.
//!
//! Every statement is atomic by itself. Inside a block, each statement sees the newest data (PostgreSQL's read
//! committed), and **one** statement may change data; it is applied when it runs. A second one is refused, because the
//! two could not be undone together, and so is a `ROLLBACK` after the first.

use crate::context::QueryEngine;
use crate::dml::Run;
use crate::syntax::{fold, syntax_error};
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    self, ContextModifier, Expr, Reset, Set, Statement, TransactionAccessMode, TransactionIsolationLevel,
    TransactionMode,
};
use futures::{StreamExt, stream};
use oribi_session::sql::{Outcome, POSTGRES_VERSION, SqlError, SqlSession, TransactionStatus};
use oribi_types::ErrorKind;
use std::sync::Arc;

/// Settings that clients ask for or set, with their defaults.
const SETTINGS: &[(&str, &str)] = &[
    ("application_name", ""),
    ("bytea_output", "hex"),
    ("client_encoding", "UTF8"),
    ("client_min_messages", "notice"),
    ("datestyle", "ISO, MDY"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("extra_float_digits", "1"),
    ("idle_in_transaction_session_timeout", "0"),
    ("in_hot_standby", "off"),
    ("integer_datetimes", "on"),
    ("intervalstyle", "postgres"),
    ("lock_timeout", "0"),
    ("max_identifier_length", "63"),
    ("row_security", "off"),
    ("search_path", "\"$user\", public"),
    ("server_encoding", "UTF8"),
    ("server_version", POSTGRES_VERSION),
    ("server_version_num", "150000"),
    ("session_replication_role", "origin"),
    ("standard_conforming_strings", "on"),
    ("statement_timeout", "0"),
    ("synchronize_seqscans", "on"),
    ("timezone", "UTC"),
    ("transaction_isolation", "read committed"),
    ("transaction_read_only", "off"),
    ("xmloption", "content"),
];

/// Settings that describe the server.
const READ_ONLY: &[&str] = &[
    "in_hot_standby",
    "integer_datetimes",
    "max_identifier_length",
    "server_encoding",
    "server_version",
    "server_version_num",
];

/// Settings that have one possible value, or several spellings of it.
const FIXED: &[(&str, &[&str])] = &[
    ("bytea_output", &["hex"]),
    ("client_encoding", &["utf8", "utf-8", "unicode"]),
    ("standard_conforming_strings", &["on", "true", "1", "yes"]),
    ("default_transaction_isolation", &["read committed", "read uncommitted"]),
    ("transaction_isolation", &["read committed", "read uncommitted"]),
    ("default_transaction_read_only", &["off", "false", "0", "no"]),
    ("transaction_read_only", &["off", "false", "0", "no"]),
    ("timezone", &["utc", "etc/utc", "gmt", "etc/gmt", "z", "zulu", "uct", "0", "+00:00", "default"]),
];

/// The value of a setting; `None` if there is none of the name.
pub(crate) fn value(session: &SqlSession, name: &str) -> Option<String> {
    let name = canonical(name);
    session.setting(&name).or_else(|| {
        SETTINGS.iter().find(|(known, _)| *known == name).map(|(_, default)| (*default).to_owned())
    })
}

/// All settings with their values.
pub(crate) fn all(session: &SqlSession) -> Vec<(String, String)> {
    let mut settings: std::collections::BTreeMap<String, String> =
        SETTINGS.iter().map(|(name, default)| ((*name).to_owned(), (*default).to_owned())).collect();
    settings.extend(session.settings());
    settings.into_iter().collect()
}

/// A statement about the session.
pub(crate) enum Control {
    Set {
        name: String,
        value: Option<String>,
        local: bool,
    },
    ResetAll,
    Show {
        name: String,
        schema: SchemaRef,
    },
    ShowAll {
        schema: SchemaRef,
    },
    Begin {
        read_only: bool,
    },
    Commit,
    Rollback,
    /// Accepted, and nothing to do.
    Nothing(&'static str),
}

impl Control {
    /// `None` if the statement is of another kind.
    ///
    /// # Errors
    /// `Unsupported`, naming what it is.
    pub(crate) fn plan(session: &SqlSession, statement: &Statement) -> Result<Option<Self>, SqlError> {
        Ok(Some(match statement {
            Statement::Set(set) => plan_set(set)?,
            Statement::Reset(reset) => match &reset.reset {
                Reset::ALL => Control::ResetAll,
                Reset::ConfigurationParameter(name) => {
                    Control::Set { name: setting_name(name), value: None, local: false }
                }
            },
            Statement::ShowVariable { variable } => plan_show(session, variable)?,
            Statement::StartTransaction { modes, .. } => Control::Begin { read_only: check_modes(modes)? },
            Statement::Commit { chain: false, .. } => Control::Commit,
            Statement::Rollback { chain: false, savepoint: None } => Control::Rollback,
            Statement::Commit { .. } | Statement::Rollback { .. } => {
                return Err(unsupported("AND CHAIN and savepoints"));
            }
            Statement::Savepoint { .. } | Statement::ReleaseSavepoint { .. } => {
                return Err(unsupported("savepoints"));
            }
            Statement::Discard { object_type } => match object_type {
                ast::DiscardObject::ALL => Control::ResetAll,
                _ => Control::Nothing("DISCARD"),
            },
            Statement::Deallocate { .. } => Control::Nothing("DEALLOCATE"),
            _ => return Ok(None),
        }))
    }

    pub(crate) fn columns(&self) -> Option<&SchemaRef> {
        match self {
            Control::Show { schema, .. } | Control::ShowAll { schema } => Some(schema),
            _ => None,
        }
    }

    /// Whether it runs in a failed block too.
    pub(crate) fn ends_block(&self) -> bool {
        matches!(self, Control::Commit | Control::Rollback)
    }

    /// # Errors
    /// `Invalid` or `Unsupported` for a setting or its value; `Unsupported` for what cannot be undone.
    pub(crate) fn execute(&self, run: Run<'_>) -> Result<Outcome, SqlError> {
        let session = run.session;
        match self {
            Control::Set { name, value, local } => {
                if *local {
                    session.warn("SET LOCAL holds for the session");
                }
                set(session, name, value.as_deref())?;
                Ok(done(if value.is_some() { "SET" } else { "RESET" }))
            }
            Control::ResetAll => {
                session.settings().keys().for_each(|name| session.reset(name));
                Ok(done("RESET"))
            }
            Control::Show { name, schema } => {
                let value = value(session, name).ok_or_else(|| unknown(name))?;
                rows(schema, vec![vec![value]])
            }
            Control::ShowAll { schema } => {
                let (names, values) = all(session).into_iter().unzip();
                rows(schema, vec![names, values])
            }
            Control::Begin { read_only } => {
                if *read_only {
                    session.warn("READ ONLY is not enforced");
                }
                match session.transaction() {
                    TransactionStatus::Idle => {
                        session.set_transaction(TransactionStatus::Open { wrote: false })
                    }
                    _ => session.warn("there is already a transaction in progress"),
                }
                Ok(done("BEGIN"))
            }
            Control::Commit | Control::Rollback => end(session, matches!(self, Control::Commit)),
            Control::Nothing(tag) => Ok(done(tag)),
        }
    }
}

/// Ends a block. What was applied stays, and the client must not believe otherwise.
fn end(session: &SqlSession, commit: bool) -> Result<Outcome, SqlError> {
    let status = session.transaction();
    session.set_transaction(TransactionStatus::Idle);
    match status {
        TransactionStatus::Idle => session.warn("there is no transaction in progress"),
        TransactionStatus::Failed { wrote: false } => return Ok(done("ROLLBACK")),
        TransactionStatus::Open { wrote: true } if commit => {}
        TransactionStatus::Open { wrote: true } | TransactionStatus::Failed { wrote: true } => {
            let message = "cannot roll back: the block's write was applied when it ran";
            return Err(SqlError::new(ErrorKind::Unsupported, message)
                .with_hint("transactions are not supported yet; the block has ended and the write stands"));
        }
        TransactionStatus::Open { wrote: false } => {}
    }
    Ok(done(if commit { "COMMIT" } else { "ROLLBACK" }))
}

/// Whether a statement may run in the session's block, given whether it `writes`.
///
/// # Errors
/// 25P02 in a failed block; 0A000 for a second write.
pub(crate) fn admit(session: &SqlSession, writes: bool) -> Result<(), SqlError> {
    match session.transaction() {
        TransactionStatus::Failed { .. } => {
            let message = "current transaction is aborted, commands ignored until end of transaction block";
            Err(SqlError::new(ErrorKind::Invalid, message).with_sqlstate("25P02"))
        }
        TransactionStatus::Open { wrote: true } if writes => {
            let message = "a transaction of more than one writing statement is not supported yet";
            Err(SqlError::new(ErrorKind::Unsupported, message).with_hint(
                "commit after each writing statement, or use autocommit; the first write was applied",
            ))
        }
        _ => Ok(()),
    }
}

/// Notes in the session's block how a statement ended.
pub(crate) fn note(session: &SqlSession, writes: bool, succeeded: bool) {
    session.set_transaction(match (session.transaction(), succeeded) {
        (TransactionStatus::Open { wrote }, true) => {
            if writes && !wrote {
                session.warn("transactions are not supported yet: the write is applied already");
            }
            TransactionStatus::Open { wrote: wrote || writes }
        }
        (TransactionStatus::Open { wrote }, false) => TransactionStatus::Failed { wrote },
        (other, _) => other,
    });
}

fn plan_set(set: &Set) -> Result<Control, SqlError> {
    match set {
        Set::SingleAssignment { scope, hivevar: false, variable, values } => {
            let value = match values.as_slice() {
                [Expr::Identifier(word)] if fold(word) == "default" => None,
                values => Some(values.iter().map(setting_text).collect::<Result<Vec<_>, _>>()?.join(", ")),
            };
            let local = matches!(scope, Some(ContextModifier::Local));
            Ok(Control::Set { name: setting_name(variable), value, local })
        }
        Set::SetTimeZone { local, value } => {
            let value = Some(setting_text(value)?);
            Ok(Control::Set { name: "timezone".into(), value, local: *local })
        }
        Set::SetNames { charset_name, .. } => {
            let value = Some(charset_name.value.clone());
            Ok(Control::Set { name: "client_encoding".into(), value, local: false })
        }
        Set::SetTransaction { modes, snapshot: None, .. } => {
            check_modes(modes)?;
            Ok(Control::Nothing("SET"))
        }
        other => Err(unsupported(&other.to_string())),
    }
}

/// The text of a setting's value: quoted, or a bare word or number.
fn setting_text(expr: &Expr) -> Result<String, SqlError> {
    match expr {
        Expr::Identifier(ident) => Ok(match ident.quote_style {
            Some(_) => format!("\"{}\"", ident.value),
            None => ident.value.clone(),
        }),
        Expr::Value(value) => Ok(match &value.value {
            ast::Value::Number(digits, _) => digits.clone(),
            ast::Value::Boolean(v) => if *v { "on" } else { "off" }.to_owned(),
            other => {
                other.clone().into_string().ok_or_else(|| syntax_error(format!("{expr} is not a setting")))?
            }
        }),
        Expr::UnaryOp { .. } => Ok(expr.to_string()),
        _ => Err(syntax_error(format!("{expr} is not a setting"))),
    }
}

fn plan_show(session: &SqlSession, variable: &[ast::Ident]) -> Result<Control, SqlError> {
    let words: Vec<String> = variable.iter().map(|w| w.value.to_lowercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let name = match words.as_slice() {
        ["all"] => {
            let schema = schema(&["name", "setting"]);
            return Ok(Control::ShowAll { schema });
        }
        ["time", "zone"] => "timezone".to_owned(),
        ["transaction", "isolation", "level"] => "transaction_isolation".to_owned(),
        words => canonical(&words.join(".")),
    };
    if value(session, &name).is_none() {
        return Err(unknown(&name));
    }
    Ok(Control::Show { schema: schema(&[&name]), name })
}

fn set(session: &SqlSession, name: &str, value: Option<&str>) -> Result<(), SqlError> {
    if READ_ONLY.contains(&name) {
        let message = format!("parameter \"{name}\" cannot be changed");
        return Err(SqlError::new(ErrorKind::Invalid, message).with_sqlstate("55P02"));
    }
    if !name.contains('.') && !SETTINGS.iter().any(|(known, _)| *known == name) {
        return Err(unknown(name));
    }
    let Some(value) = value else {
        session.reset(name);
        return Ok(());
    };
    let fixed = FIXED.iter().find(|(fixed, _)| *fixed == name);
    if let Some((_, allowed)) = fixed
        && !allowed.contains(&value.to_lowercase().as_str())
    {
        if name != "timezone" {
            return Err(unsupported(&format!("setting {name} to \"{value}\"")));
        }
        session.warn(format!("timestamps are in UTC; time zone \"{value}\" has no effect"));
    }
    session.set(name, value);
    Ok(())
}

/// There is one isolation level. Returns whether a block is to be read-only.
fn check_modes(modes: &[TransactionMode]) -> Result<bool, SqlError> {
    let mut read_only = false;
    for mode in modes {
        match mode {
            TransactionMode::AccessMode(access) => read_only = *access == TransactionAccessMode::ReadOnly,
            TransactionMode::IsolationLevel(
                TransactionIsolationLevel::ReadCommitted | TransactionIsolationLevel::ReadUncommitted,
            ) => {}
            other => return Err(unsupported(&other.to_string().to_lowercase())),
        }
    }
    Ok(read_only)
}

fn setting_name(name: &ast::ObjectName) -> String {
    let parts = name.0.iter().filter_map(|p| p.as_ident()).map(|i| i.value.to_lowercase());
    canonical(&parts.collect::<Vec<_>>().join("."))
}

fn canonical(name: &str) -> String {
    name.to_lowercase()
}

fn unknown(name: &str) -> SqlError {
    SqlError::new(ErrorKind::NotFound, format!("unrecognized configuration parameter \"{name}\""))
        .with_sqlstate("42704")
}

fn unsupported(what: &str) -> SqlError {
    SqlError::new(ErrorKind::Unsupported, format!("{what} is not supported"))
}

fn done(tag: &str) -> Outcome {
    Outcome::Done { tag: tag.to_owned() }
}

fn schema(names: &[&str]) -> SchemaRef {
    let fields: Vec<Field> = names.iter().map(|name| Field::new(*name, DataType::Utf8, false)).collect();
    Arc::new(Schema::new(fields))
}

fn rows(schema: &SchemaRef, columns: Vec<Vec<String>>) -> Result<Outcome, SqlError> {
    let arrays = columns.into_iter().map(|column| Arc::new(StringArray::from(column)) as ArrayRef).collect();
    let batch = RecordBatch::try_new(Arc::clone(schema), arrays).map_err(|e| QueryEngine::error(e.into()))?;
    Ok(Outcome::Rows(stream::iter([Ok(batch)]).boxed()))
}
