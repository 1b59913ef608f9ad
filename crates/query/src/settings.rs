//! `SET`, `SHOW`, `RESET`, and the statements that begin and end a block.
//!
//! A setting is accepted if it has its effect, or if its value is the one that holds anyway.

use crate::block;
use crate::context::QueryEngine;
use crate::cursor;
use crate::dml::Run;
use crate::error::{invalid, unsupported};
use crate::syntax::{fold, syntax_error};
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    self, ContextModifier, Expr, Reset, Set, Statement, TransactionAccessMode, TransactionIsolationLevel,
    TransactionMode,
};
use futures::{StreamExt, stream};
use oribi_session::sql::{
    BlockModes, IDLE_IN_TRANSACTION_TIMEOUT, LOCK_TIMEOUT, Outcome, POSTGRES_VERSION, Release,
    STATEMENT_TIMEOUT, SqlError, SqlSession, TimeZone, TransactionStatus, parse_timeout,
};
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
    ("geqo", "on"),
    (IDLE_IN_TRANSACTION_TIMEOUT, "0"),
    ("in_hot_standby", "off"),
    ("integer_datetimes", "on"),
    ("intervalstyle", "postgres"),
    ("jit", "off"),
    (LOCK_TIMEOUT, "0"),
    ("max_identifier_length", "63"),
    ("row_security", "off"),
    ("search_path", "\"$user\", public"),
    ("server_encoding", "UTF8"),
    ("server_version", POSTGRES_VERSION),
    ("server_version_num", "150000"),
    ("session_replication_role", "origin"),
    ("standard_conforming_strings", "on"),
    (STATEMENT_TIMEOUT, "0"),
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

/// The spellings of a switch that stays off, of one that stays on, and of one that has nothing to switch.
const OFF: &[&str] = &["off", "false", "0", "no"];
const ON: &[&str] = &["on", "true", "1", "yes"];
const SWITCH: &[&str] = &["on", "true", "1", "yes", "off", "false", "0", "no"];

/// Time limits.
const TIMEOUTS: &[&str] = &[STATEMENT_TIMEOUT, LOCK_TIMEOUT, IDLE_IN_TRANSACTION_TIMEOUT];

/// Settings that have one possible value, or several of the same effect. `SQL_ASCII` is what clients in the C locale
/// say; output says its order of day and month although there is but ISO's.
const FIXED: &[(&str, &[&str])] = &[
    ("bytea_output", &["hex"]),
    ("client_encoding", &["utf8", "utf-8", "unicode", "sql_ascii"]),
    (
        "client_min_messages",
        &["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"],
    ),
    ("datestyle", &["iso", "iso, mdy", "iso, dmy", "iso, ymd", "mdy", "dmy", "ymd"]),
    ("default_transaction_isolation", &BlockModes::LEVELS),
    ("default_transaction_read_only", OFF),
    ("extra_float_digits", &["1", "2", "3"]),
    ("geqo", SWITCH),
    ("intervalstyle", &["postgres"]),
    ("jit", SWITCH),
    ("row_security", SWITCH),
    ("session_replication_role", &["origin", "local", "replica"]),
    ("standard_conforming_strings", ON),
    ("synchronize_seqscans", SWITCH),
    ("transaction_isolation", &["read committed", "read uncommitted"]),
    ("transaction_read_only", OFF),
    ("xmloption", &["content", "document"]),
];

/// Rails asks for one of these when it connects.
const INTERVAL_STYLES: &[&str] = &["iso_8601", "postgres_verbose", "sql_standard"];

/// Settings that a session may have made, those with a dot in their names included.
const SETTINGS_MAX: usize = 100;

/// The longest name and value together.
const SETTING_BYTES_MAX: usize = 8 << 10;

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

/// Whether a statement ends a block, and so is read in one that failed.
pub(crate) fn ends_block(statement: &Statement) -> bool {
    matches!(statement, Statement::Commit { .. } | Statement::Rollback { .. })
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
    /// As these words say; what they do not say the session's settings do.
    Begin(Vec<TransactionMode>),
    SetModes(BlockModes),
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint(String),
    ReleaseSavepoint(String),
    RollbackTo(String),
    /// Closes a cursor, or all.
    Close(Option<String>),
    /// What the door keeps is let go.
    Release(Release),
    /// Accepted, and nothing to do.
    Nothing(&'static str),
    /// `DISCARD SEQUENCES`.
    ForgetNumbers,
}

impl Control {
    /// `None` if the statement is of another kind.
    ///
    /// # Errors
    /// `Unsupported`, naming what it is.
    pub(crate) fn plan(session: &SqlSession, statement: &Statement) -> Result<Option<Self>, SqlError> {
        Ok(Some(match statement {
            Statement::Set(set) => plan_set(session, set)?,
            Statement::Reset(reset) => match &reset.reset {
                Reset::ALL => Control::ResetAll,
                Reset::ConfigurationParameter(name) => {
                    Control::Set { name: setting_name(name), value: None, local: false }
                }
            },
            Statement::ShowVariable { variable } => plan_show(session, variable)?,
            Statement::StartTransaction { modes, .. } => {
                block_modes(BlockModes::default(), modes)?;
                Control::Begin(modes.clone())
            }
            Statement::Commit { chain, .. } => Control::Commit { chain: *chain },
            Statement::Rollback { chain, savepoint: None } => Control::Rollback { chain: *chain },
            Statement::Rollback { savepoint: Some(name), .. } => Control::RollbackTo(fold(name)),
            Statement::Savepoint { name } => Control::Savepoint(fold(name)),
            Statement::ReleaseSavepoint { name } => Control::ReleaseSavepoint(fold(name)),
            Statement::Discard { object_type } => match object_type {
                ast::DiscardObject::ALL => Control::Release(Release::Everything),
                ast::DiscardObject::SEQUENCES => Control::ForgetNumbers,
                _ => Control::Nothing("DISCARD"),
            },
            Statement::Close { cursor: ast::CloseCursor::All } => Control::Close(None),
            Statement::Close { cursor: ast::CloseCursor::Specific { name } } => {
                Control::Close(Some(fold(name)))
            }
            // No channels that a session could have open. Pools say it before they hand a connection on.
            Statement::UNLISTEN { channel } if channel.value == "*" => Control::Nothing("UNLISTEN"),
            Statement::Deallocate { name, .. } => Control::Release(match fold(name).as_str() {
                "all" if name.quote_style.is_none() => Release::Statements,
                _ => Release::Statement(fold(name)),
            }),
            _ => return Ok(None),
        }))
    }

    pub(crate) fn columns(&self) -> Option<&SchemaRef> {
        match self {
            Control::Show { schema, .. } | Control::ShowAll { schema } => Some(schema),
            _ => None,
        }
    }

    /// What the door is to forget.
    pub(crate) fn releases(&self) -> Option<&Release> {
        match self {
            Control::Release(release) => Some(release),
            _ => None,
        }
    }

    /// Whether it begins or ends a block, and is the same whatever the session.
    pub(crate) fn is_of_blocks(&self) -> bool {
        matches!(self, Control::Begin(_) | Control::Commit { .. } | Control::Rollback { .. })
    }

    /// Whether it runs in a failed block too.
    pub(crate) fn ends_block(&self) -> bool {
        matches!(self, Control::Commit { .. } | Control::Rollback { .. } | Control::RollbackTo(_))
    }

    /// # Errors
    /// `Invalid` or `Unsupported` for a setting or its value; `Unsupported` for what cannot be undone.
    pub(crate) async fn execute(&self, run: Run<'_>) -> Result<Outcome, SqlError> {
        let session = run.session;
        match self {
            Control::Set { name, value, local } => {
                if *local && session.transaction() == TransactionStatus::Idle {
                    session.warn("SET LOCAL can only be used in transaction blocks");
                    return Ok(done("SET"));
                }
                note_before_change(session, name, *local);
                set(session, name, value.as_deref())?;
                Ok(done(if value.is_some() { "SET" } else { "RESET" }))
            }
            Control::ResetAll => {
                reset_all(session);
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
            Control::Begin(modes) => {
                block::begin(run.query, session, block_modes(default_modes(session), modes)?)?;
                Ok(done("BEGIN"))
            }
            Control::SetModes(modes) => {
                block::set_modes(session, *modes)?;
                Ok(done("SET"))
            }
            Control::Commit { chain } => Ok(done(block::end(run.query, session, true, *chain).await?)),
            Control::Rollback { chain } => Ok(done(block::end(run.query, session, false, *chain).await?)),
            Control::Savepoint(name) => {
                block::set_savepoint(run.query, session, name)?;
                Ok(done("SAVEPOINT"))
            }
            Control::ReleaseSavepoint(name) => {
                block::release_savepoint(session, name)?;
                Ok(done("RELEASE"))
            }
            Control::RollbackTo(name) => {
                block::roll_back_to(session, name)?;
                Ok(done("ROLLBACK"))
            }
            Control::Release(Release::Everything) => {
                if session.transaction() != TransactionStatus::Idle && !session.modes().implicit {
                    let message = "DISCARD ALL cannot run inside a transaction block";
                    return Err(invalid("25001", message.to_owned()));
                }
                reset_all(session);
                session.cursors().close_all();
                session.unlock_advisory();
                session.forget_drawn();
                Ok(done("DISCARD ALL"))
            }
            Control::Close(name) => Ok(done(cursor::close(session, name.as_deref())?)),
            Control::Release(_) => Ok(done("DEALLOCATE")),
            Control::ForgetNumbers => {
                session.forget_drawn();
                Ok(done("DISCARD SEQUENCES"))
            }
            Control::Nothing(tag) => Ok(done(tag)),
        }
    }
}

fn plan_set(session: &SqlSession, set: &Set) -> Result<Control, SqlError> {
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
            let value = match value {
                Expr::Identifier(word) if ["default", "local"].contains(&fold(word).as_str()) => None,
                value => Some(setting_text(value)?),
            };
            Ok(Control::Set { name: "timezone".into(), value, local: *local })
        }
        Set::SetNames { charset_name, .. } => {
            let value = Some(charset_name.value.clone());
            Ok(Control::Set { name: "client_encoding".into(), value, local: false })
        }
        Set::SetTransaction { modes, snapshot: None, session: true } => {
            let modes = block_modes(default_modes(session), modes)?;
            refuse_read_only(modes.read_only)?;
            let (name, value) = ("default_transaction_isolation".to_owned(), Some(modes.level().to_owned()));
            Ok(Control::Set { name, value, local: false })
        }
        Set::SetTransaction { modes, snapshot: None, session: false } => {
            Ok(Control::SetModes(block_modes(session.modes(), modes)?))
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

/// Makes a setting; without a value, takes it back.
///
/// # Errors
/// `NotFound` (42704) for one that there is not, `Invalid` (22023, 55P02) or `Unsupported` for a value that it cannot
/// have, `TooLarge` (54000).
pub(crate) fn set(session: &SqlSession, name: &str, value: Option<&str>) -> Result<(), SqlError> {
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
    if let Some((_, allowed)) = FIXED.iter().find(|(fixed, _)| *fixed == name)
        && !allowed.contains(&list(value).as_str())
    {
        match name {
            "intervalstyle" if INTERVAL_STYLES.contains(&list(value).as_str()) => {
                session.warn(format!("intervals are written in style postgres; \"{value}\" has no effect"));
            }
            _ => return Err(unsupported(&format!("setting {name} to \"{value}\""))),
        }
    }
    let malformed = |name| invalid("22023", format!("invalid value for parameter \"{name}\": \"{value}\""));
    if TIMEOUTS.contains(&name) && parse_timeout(value).is_none() {
        return Err(malformed(name));
    }
    let value = match name {
        "timezone" => match TimeZone::parse(value) {
            Some(zone) => zone.name(),
            // PostgreSQL takes any offset, and rules of POSIX.
            None if value.contains(|c: char| c.is_ascii_digit()) => {
                return Err(
                    unsupported(&format!("time zone \"{value}\"")).with_hint("give the name of a zone")
                );
            }
            None => return Err(malformed("TimeZone")),
        },
        _ => value,
    };
    let made = session.settings();
    if name.len() + value.len() > SETTING_BYTES_MAX || made.len() >= SETTINGS_MAX && !made.contains_key(name)
    {
        let message = format!(
            "a session has at most {SETTINGS_MAX} settings of at most {SETTING_BYTES_MAX} bytes each"
        );
        return Err(SqlError::new(ErrorKind::TooLarge, message).with_sqlstate("54000"));
    }
    session.set(name, value);
    Ok(())
}

/// A value in lower case, one blank behind each comma.
fn list(value: &str) -> String {
    value.split(',').map(|word| word.trim().to_lowercase()).collect::<Vec<_>>().join(", ")
}

fn reset_all(session: &SqlSession) {
    for name in session.settings().keys() {
        note_before_change(session, name, false);
        session.reset(name);
    }
}

/// What a block changes, its end may bring back.
fn note_before_change(session: &SqlSession, name: &str, local: bool) {
    if session.transaction() != TransactionStatus::Idle {
        session.note_before_change(name, local);
    }
}

/// How a block begins that does not say it.
pub(crate) fn default_modes(session: &SqlSession) -> BlockModes {
    let level = session.setting("default_transaction_isolation");
    BlockModes::default().at_level(level.as_deref().unwrap_or_default())
}

/// `modes` as a statement says them, which are otherwise as `before`.
///
/// # Errors
/// `Unsupported` for levels that PostgreSQL has not.
fn block_modes(before: BlockModes, modes: &[TransactionMode]) -> Result<BlockModes, SqlError> {
    let mut block = before;
    for mode in modes {
        match mode {
            TransactionMode::AccessMode(access) => {
                block.read_only = *access == TransactionAccessMode::ReadOnly;
            }
            TransactionMode::IsolationLevel(level) => {
                block = match level {
                    TransactionIsolationLevel::Snapshot => {
                        return Err(unsupported(&mode.to_string().to_lowercase()));
                    }
                    level => block.at_level(&level.to_string()),
                };
            }
        }
    }
    Ok(block)
}

fn refuse_read_only(read_only: bool) -> Result<(), SqlError> {
    if read_only { Err(unsupported("READ ONLY for a whole session")) } else { Ok(()) }
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
