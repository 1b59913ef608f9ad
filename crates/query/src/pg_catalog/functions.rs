//! Functions about the catalog and the session. They run row by row: system tables are small.

use super::picture::{Picture, quote};
use super::relations::{index_definition, key_definition};
use super::types;
use crate::carried::{Carried, Carry};
use crate::context::StatementView;
use crate::settings;
use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use oribi_session::sql::POSTGRES_VERSION;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// What the functions and system tables of one statement look at.
pub(crate) struct Scope {
    view: Option<Arc<StatementView>>,
    picture: OnceLock<Picture>,
}

impl Scope {
    pub(crate) fn new(view: &Arc<StatementView>) -> Arc<Self> {
        Arc::new(Scope { view: Some(Arc::clone(view)), picture: OnceLock::new() })
    }

    /// That of the statement whose options these are.
    ///
    /// # Errors
    /// Internal, if they are no statement's.
    pub fn of_statement(options: &ConfigOptions) -> Result<&Arc<Self>> {
        let carried = options.extensions.get::<Carried<Arc<Scope>>>();
        carried
            .map(|carried| &carried.0)
            .ok_or_else(|| internal_datafusion_err!("the options of no statement"))
    }

    #[cfg(test)]
    pub fn of(picture: Picture) -> Arc<Self> {
        Arc::new(Scope { view: None, picture: picture.into() })
    }

    /// Drawn when it is first looked at: most statements never do.
    pub fn picture(&self) -> &Picture {
        self.picture.get_or_init(|| match &self.view {
            Some(view) => Picture::new(view),
            None => Picture::of_schemas(std::iter::empty()),
        })
    }

    fn setting(&self, name: &str) -> Option<String> {
        self.view.as_ref().and_then(|view| settings::value(&view.session, name))
    }
}

impl Carry for Arc<Scope> {
    const NAME: &'static str = "oribi_statement";
}

/// The functions, for all statements.
pub fn functions() -> impl Iterator<Item = ScalarUDF> {
    let function = |(name, returns, body): &(&'static str, Returns, Body)| {
        ScalarUDF::new_from_impl(CatalogFunction {
            name,
            returns: *returns,
            body: *body,
            signature: Signature::one_of(
                vec![TypeSignature::Nullary, TypeSignature::VariadicAny],
                Volatility::Stable,
            ),
        })
    };
    FUNCTIONS.iter().map(function)
}

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().map(|(name, ..)| *name)
}

#[derive(Clone, Copy, Debug)]
enum Returns {
    Text,
    Bool,
    Int4,
    Int8,
    TextArray,
    /// A number for a name and a name for a number, as PostgreSQL's `reg…` types are.
    Reg,
}

type Body = fn(&Scope, &[ScalarValue]) -> Answer;

/// A function's value for one row; nothing fails, unknown things are null.
enum Answer {
    Text(Option<String>),
    Bool(Option<bool>),
    Int(Option<i64>),
    Texts(Vec<String>),
}

const FUNCTIONS: &[(&str, Returns, Body)] = &[
    ("version", Returns::Text, |_, _| text(&format!("PostgreSQL {POSTGRES_VERSION}"))),
    ("current_database", Returns::Text, |scope, _| text(&scope.picture().database)),
    ("current_catalog", Returns::Text, |scope, _| text(&scope.picture().database)),
    ("current_user", Returns::Text, |scope, _| text(&scope.picture().user)),
    ("current_role", Returns::Text, |scope, _| text(&scope.picture().user)),
    ("session_user", Returns::Text, |scope, _| text(&scope.picture().user)),
    ("user", Returns::Text, |scope, _| text(&scope.picture().user)),
    ("current_schema", Returns::Text, |scope, _| {
        Answer::Text(schemas(scope.picture(), false).into_iter().next())
    }),
    ("current_schemas", Returns::TextArray, |scope, args| {
        Answer::Texts(schemas(
            scope.picture(),
            matches!(args.first(), Some(ScalarValue::Boolean(Some(true)))),
        ))
    }),
    ("current_setting", Returns::Text, |scope, args| {
        Answer::Text(string(args, 0).and_then(|name| scope.setting(&name)))
    }),
    ("pg_backend_pid", Returns::Int4, |_, _| Answer::Int(Some(i64::from(std::process::id())))),
    ("pg_is_in_recovery", Returns::Bool, |_, _| Answer::Bool(Some(false))),
    ("pg_my_temp_schema", Returns::Int8, |_, _| Answer::Int(Some(0))),
    ("pg_is_other_temp_schema", Returns::Bool, |_, _| Answer::Bool(Some(false))),
    ("pg_table_is_visible", Returns::Bool, |scope, args| {
        Answer::Bool(int(args, 0).map(|oid| scope.picture().is_visible(oid)))
    }),
    ("pg_type_is_visible", Returns::Bool, known),
    ("pg_function_is_visible", Returns::Bool, known),
    ("pg_operator_is_visible", Returns::Bool, known),
    ("pg_opclass_is_visible", Returns::Bool, known),
    ("pg_opfamily_is_visible", Returns::Bool, known),
    ("pg_collation_is_visible", Returns::Bool, known),
    ("pg_statistics_obj_is_visible", Returns::Bool, known),
    ("pg_ts_config_is_visible", Returns::Bool, known),
    ("has_database_privilege", Returns::Bool, allowed),
    ("has_schema_privilege", Returns::Bool, allowed),
    ("has_table_privilege", Returns::Bool, allowed),
    ("has_column_privilege", Returns::Bool, allowed),
    ("has_any_column_privilege", Returns::Bool, allowed),
    ("has_function_privilege", Returns::Bool, allowed),
    ("has_sequence_privilege", Returns::Bool, allowed),
    ("pg_has_role", Returns::Bool, allowed),
    ("pg_get_userbyid", Returns::Text, |scope, args| {
        Answer::Text(int(args, 0).map(|_| scope.picture().user.clone()))
    }),
    ("format_type", Returns::Text, |_, args| Answer::Text(types::format(int(args, 0), int(args, 1)))),
    ("pg_get_expr", Returns::Text, |_, args| Answer::Text(string(args, 0))),
    ("pg_get_indexdef", Returns::Text, |scope, args| {
        let table = scope.picture().keyed().find(|t| Some(t.key_oid()) == int(args, 0));
        // The second argument asks for one column of the index; 0 for all.
        Answer::Text(table.and_then(|t| match int(args, 1) {
            None | Some(0) => Some(index_definition(t)),
            Some(n) => usize::try_from(n - 1).ok().and_then(|n| t.key_columns().nth(n)).map(quote),
        }))
    }),
    ("pg_get_constraintdef", Returns::Text, |scope, args| {
        let table = scope.picture().keyed().find(|t| Some(t.key_oid()) == int(args, 0));
        Answer::Text(table.map(key_definition))
    }),
    ("pg_get_viewdef", Returns::Text, unknown),
    ("pg_get_ruledef", Returns::Text, unknown),
    ("pg_get_triggerdef", Returns::Text, unknown),
    ("pg_get_functiondef", Returns::Text, unknown),
    ("pg_get_function_result", Returns::Text, unknown),
    ("pg_get_function_arguments", Returns::Text, unknown),
    ("pg_get_function_identity_arguments", Returns::Text, unknown),
    ("pg_get_partkeydef", Returns::Text, unknown),
    ("pg_get_serial_sequence", Returns::Text, |scope, args| {
        let (Some(table), Some(column)) = (string(args, 0), string(args, 1)) else {
            return Answer::Text(None);
        };
        let picture = scope.picture();
        let oid = picture.find(&table);
        let table = picture.tables.iter().find(|t| Some(t.oid) == oid);
        let column = table.and_then(|t| t.definition.schema.shown().iter().find(|c| c.name == column));
        let owned = column.filter(|column| column.sequence().is_some_and(|of| of.owned));
        let sequence = owned.and_then(|column| picture.sequence_of(column));
        Answer::Text(sequence.map(|s| format!("{}.{}", quote(&s.schema_name), quote(&s.name))))
    }),
    ("pg_get_statisticsobjdef_columns", Returns::Text, unknown),
    ("obj_description", Returns::Text, unknown),
    ("col_description", Returns::Text, unknown),
    ("shobj_description", Returns::Text, unknown),
    ("pg_relation_is_publishable", Returns::Bool, |_, _| Answer::Bool(Some(false))),
    ("pg_encoding_to_char", Returns::Text, |_, _| text("UTF8")),
    ("pg_char_to_encoding", Returns::Int4, |_, _| Answer::Int(Some(6))),
    ("getdatabaseencoding", Returns::Text, |_, _| text("UTF8")),
    ("pg_size_pretty", Returns::Text, |_, args| Answer::Text(int(args, 0).map(size))),
    ("pg_relation_size", Returns::Int8, |_, _| Answer::Int(None)),
    ("pg_table_size", Returns::Int8, |_, _| Answer::Int(None)),
    ("pg_total_relation_size", Returns::Int8, |_, _| Answer::Int(None)),
    ("pg_indexes_size", Returns::Int8, |_, _| Answer::Int(None)),
    ("pg_database_size", Returns::Int8, |_, _| Answer::Int(None)),
    ("pg_tablespace_location", Returns::Text, |_, _| text("")),
    ("quote_ident", Returns::Text, |_, args| Answer::Text(string(args, 0).map(|name| quote(&name)))),
    ("array_upper", Returns::Int4, |_, args| {
        Answer::Int(match args.first() {
            Some(ScalarValue::List(list)) if !args[0].is_null() && int(args, 1) == Some(1) => {
                Some(i64::from(list.value_length(0))).filter(|length| *length > 0)
            }
            _ => None,
        })
    }),
    ("to_regclass", Returns::Int8, |scope, args| {
        Answer::Int(string(args, 0).and_then(|name| scope.picture().find(&name)))
    }),
    ("to_regtype", Returns::Int8, |_, args| {
        Answer::Int(string(args, 0).and_then(|name| types::by_name(&name)).map(|t| t.oid))
    }),
    ("regclass", Returns::Reg, |scope, args| {
        let picture = scope.picture();
        let shown = |oid| {
            let Some((schema, name)) = picture.relation(oid) else { return oid.to_string() };
            let qualified = format!("{}.{}", quote(schema), quote(&name));
            if picture.is_visible(oid) { quote(&name) } else { qualified }
        };
        reg(args, shown, |name| picture.find(name))
    }),
    ("regtype", Returns::Reg, |_, args| {
        reg(
            args,
            |oid| types::format(Some(oid), None).unwrap_or_default(),
            |name| types::by_name(name).map(|t| t.oid),
        )
    }),
    ("regnamespace", Returns::Reg, |scope, args| {
        let picture = scope.picture();
        let shown = |oid: i64| picture.namespace_name(oid).map_or_else(|| oid.to_string(), quote);
        reg(args, shown, |name| picture.namespace_oid(name.trim_matches('"')))
    }),
    ("regrole", Returns::Reg, |scope, args| {
        let user = &scope.picture().user;
        reg(args, |_| quote(user), |name| (name == user).then_some(super::picture::OWNER))
    }),
    ("regproc", Returns::Reg, |_, args| {
        reg(args, |oid| if oid == 0 { "-".into() } else { oid.to_string() }, |_| None)
    }),
];

fn text(value: &str) -> Answer {
    Answer::Text(Some(value.to_owned()))
}

fn unknown(_: &Scope, _: &[ScalarValue]) -> Answer {
    Answer::Text(None)
}

fn known(_: &Scope, args: &[ScalarValue]) -> Answer {
    Answer::Bool(int(args, 0).map(|_| true))
}

/// Nobody is asked who they are, so everybody may do everything.
fn allowed(_: &Scope, _: &[ScalarValue]) -> Answer {
    Answer::Bool(Some(true))
}

/// The schemas of the search path that exist.
fn schemas(picture: &Picture, implicit: bool) -> Vec<String> {
    let exists =
        |name: &&String| picture.namespace_oid(name).is_some() && (implicit || *name != "pg_catalog");
    picture.path.iter().filter(exists).cloned().collect()
}

/// A number as its name, a name (or a number in text) as its number.
fn reg(args: &[ScalarValue], shown: impl Fn(i64) -> String, read: impl Fn(&str) -> Option<i64>) -> Answer {
    match args.first() {
        Some(value) if is_text(&value.data_type()) => {
            Answer::Int(string(args, 0).and_then(|name| name.parse().ok().or_else(|| read(&name))))
        }
        _ => Answer::Text(int(args, 0).map(shown)),
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn int(args: &[ScalarValue], i: usize) -> Option<i64> {
    match args.get(i)?.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(n)) => n,
        _ => None,
    }
}

fn string(args: &[ScalarValue], i: usize) -> Option<String> {
    match args.get(i)?.cast_to(&DataType::Utf8) {
        Ok(ScalarValue::Utf8(text)) => text,
        _ => None,
    }
}

/// Bytes as PostgreSQL shows them.
fn size(bytes: i64) -> String {
    let mut value = bytes;
    for unit in ["bytes", "kB", "MB", "GB", "TB"] {
        if value.abs() < 10 * 1024 || unit == "TB" {
            return format!("{value} {unit}");
        }
        value = (value + 512) / 1024;
    }
    unreachable!("the last unit takes everything")
}

#[derive(Debug)]
struct CatalogFunction {
    name: &'static str,
    returns: Returns,
    body: Body,
    signature: Signature,
}

/// A name is a function.
impl PartialEq for CatalogFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for CatalogFunction {}

impl Hash for CatalogFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl CatalogFunction {
    fn call(&self, scope: &Scope, args: &[ScalarValue]) -> ScalarValue {
        match ((self.body)(scope, args), self.returns) {
            (Answer::Text(text), _) => ScalarValue::Utf8(text),
            (Answer::Bool(b), _) => ScalarValue::Boolean(b),
            (Answer::Int(n), Returns::Int4) => ScalarValue::Int32(n.map(|n| n as i32)),
            (Answer::Int(n), _) => ScalarValue::Int64(n),
            (Answer::Texts(texts), _) => {
                let items: Vec<_> = texts.into_iter().map(|t| ScalarValue::Utf8(Some(t))).collect();
                ScalarValue::List(ScalarValue::new_list_nullable(&items, &DataType::Utf8))
            }
        }
    }
}

impl ScalarUDFImpl for CatalogFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        Ok(match self.returns {
            Returns::Text => DataType::Utf8,
            Returns::Bool => DataType::Boolean,
            Returns::Int4 => DataType::Int32,
            Returns::Int8 => DataType::Int64,
            Returns::TextArray => DataType::new_list(DataType::Utf8, true),
            Returns::Reg if args.first().is_some_and(is_text) => DataType::Int64,
            Returns::Reg => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scope = Scope::of_statement(&args.config_options)?;
        let row = |i: usize| {
            let value = |arg: &ColumnarValue| match arg {
                ColumnarValue::Scalar(value) => Ok(value.clone()),
                ColumnarValue::Array(array) => ScalarValue::try_from_array(array, i),
            };
            args.args.iter().map(value).collect::<Result<Vec<_>>>()
        };
        if args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_))) {
            return Ok(ColumnarValue::Scalar(self.call(scope, &row(0)?)));
        }
        if args.number_rows == 0 {
            return Ok(ColumnarValue::Array(arrow::array::new_empty_array(args.return_type())));
        }
        let values =
            (0..args.number_rows).map(|i| Ok(self.call(scope, &row(i)?))).collect::<Result<Vec<_>>>()?;
        Ok(ColumnarValue::Array(ScalarValue::iter_to_array(values)?))
    }
}
