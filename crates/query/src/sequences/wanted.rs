//! Columns that want their numbers from a sequence, as their definitions say it: `serial`, `GENERATED … AS IDENTITY`,
//! `DEFAULT nextval('s')`.

use super::{Rules, literal};
use crate::error::{invalid, unsupported};
use crate::only_call::function_name;
use crate::syntax::fold;
use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, ColumnOptionDef, DataType, Expr, FunctionArg, FunctionArgExpr,
    FunctionArguments, GeneratedAs,
};
use oribi_session::sql::SqlError;
use oribi_types::ColumnType;
use oribi_types::schema::Identity;

/// A column, and where its numbers come from.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) column: String,
    pub(crate) origin: Origin,
}

#[derive(Clone)]
pub(crate) enum Origin {
    /// A sequence of its own, which is to be made.
    New { rules: Rules, identity: Option<Identity> },
    /// One of this name.
    Named(String),
}

/// The definition without what it says of a sequence.
///
/// # Errors
/// `Unsupported` for other columns that are generated; `Invalid` for one with two sequences, or of a type that has no numbers.
pub(crate) fn take(definition: &ColumnDef) -> Result<(ColumnDef, Option<Wanted>), SqlError> {
    let mut plain = definition.clone();
    let mut origin = None;
    if let Some(data_type) = serial(&definition.data_type) {
        plain.data_type = data_type;
        let rules = Rules::of(crate::dml::column_type(&plain.data_type)?, &[])?;
        origin = Some(Origin::New { rules, identity: None });
    }
    let column = fold(&definition.name);
    let twice = || invalid("42601", format!("multiple default values specified for column \"{column}\""));
    let mut options = Vec::new();
    for option in &definition.options {
        let more = match &option.option {
            ColumnOption::Generated { generated_as, sequence_options, generation_expr: None, .. } => {
                let identity = match generated_as {
                    GeneratedAs::Always => Identity::Always,
                    GeneratedAs::ByDefault => Identity::ByDefault,
                    GeneratedAs::ExpStored => {
                        return Err(unsupported(&format!("{} in a column", option.option)));
                    }
                };
                let column_type = crate::dml::column_type(&plain.data_type)?;
                if !matches!(column_type, ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64) {
                    return Err(invalid(
                        "22023",
                        "identity column type must be smallint, integer, or bigint",
                    ));
                }
                let rules = Rules::of(column_type, sequence_options.as_deref().unwrap_or_default())?;
                Origin::New { rules, identity: Some(identity) }
            }
            ColumnOption::Default(expr) => match taken_from(expr)? {
                Some(name) => Origin::Named(name.to_owned()),
                None if origin.is_some() => return Err(twice()),
                None => {
                    options.push(option.clone());
                    continue;
                }
            },
            ColumnOption::Null if origin.is_some() => {
                let message = format!("conflicting NULL/NOT NULL declarations for column \"{column}\"");
                return Err(invalid("42601", message));
            }
            _ => {
                options.push(option.clone());
                continue;
            }
        };
        if origin.replace(more).is_some() {
            return Err(twice());
        }
    }
    if matches!(origin, Some(Origin::New { .. })) {
        options.push(ColumnOptionDef { name: None, option: ColumnOption::NotNull });
    }
    plain.options = options;
    Ok((plain, origin.map(|origin| Wanted { column, origin })))
}

/// The type of the numbers of a `serial`.
fn serial(data_type: &DataType) -> Option<DataType> {
    let DataType::Custom(name, modifiers) = data_type else { return None };
    let [name] = name.0.as_slice() else { return None };
    let name = fold(name.as_ident()?);
    match name.as_str() {
        _ if !modifiers.is_empty() => None,
        "smallserial" | "serial2" => Some(DataType::SmallInt(None)),
        "serial" | "serial4" => Some(DataType::Integer(None)),
        "bigserial" | "serial8" => Some(DataType::BigInt(None)),
        _ => None,
    }
}

/// The name of the sequence, if `expr` is `nextval('…')`.
///
/// # Errors
/// `Unsupported` for a name that is computed.
pub(crate) fn taken_from(expr: &Expr) -> Result<Option<&str>, SqlError> {
    let Expr::Function(function) = expr else { return Ok(None) };
    if function_name(function).as_deref() != Some("nextval") {
        return Ok(None);
    }
    let computed =
        || unsupported("nextval of a sequence whose name is computed, as part of another statement");
    let FunctionArguments::List(list) = &function.args else { return Err(computed()) };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] = list.args.as_slice() else {
        return Err(invalid("42883", "function nextval takes the name of a sequence"));
    };
    literal(argument).map(Some).ok_or_else(computed)
}
