//! What functions are called on their way to another process: by their names, if both sides have the same by that name.

use super::external;
use crate::context::QueryEngine;
use crate::functions::{by_word, measured_function, unmeasured, word_of};
use crate::number;
use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, Volatility};
use datafusion::physical_expr::ScalarFunctionExpr;
use oribi_types::Error;
use std::sync::Arc;

/// Stands before the name of a function that tells ahead how much it will make.
const MEASURED: &str = "measured ";

/// Stands before the word for a function that is an operator or a cast.
const INTERNAL: &str = "internal ";

/// # Errors
/// `Unsupported`, naming a function that answers by what only one process has: its own catalog, session and clock.
pub(crate) fn function_name(state: &SessionState, function: &ScalarUDF) -> Result<String> {
    if let Some(inner) = unmeasured(function) {
        return Ok(format!("{MEASURED}{}", function_name(state, inner)?));
    }
    let is_known = |known: &Arc<ScalarUDF>| known.as_ref() == function;
    let is_by_name =
        state.scalar_functions().get(function.name()).is_some_and(is_known) || number::is_by_name(function);
    let name = match is_by_name {
        true => Some(function.name().to_owned()),
        false => word_of(function).map(|word| format!("{INTERNAL}{word}")),
    };
    name.filter(|_| function.signature().volatility == Volatility::Immutable)
        .ok_or_else(|| stays(&format!("the function {}", function.name())))
}

/// What the function of a call is called.
///
/// # Errors
/// As [`function_name`]; and naming one that answers by the time zone of the session, if that is none of every process.
pub(crate) fn called_function(state: &SessionState, call: &ScalarFunctionExpr) -> Result<String> {
    let (function, options) = (call.fun(), call.config_options());
    let is_everywhere = options.execution.time_zone == state.config_options().execution.time_zone;
    let inner = unmeasured(function).map_or(function, Arc::as_ref);
    let answers_by_it = inner.name() == "to_unixtime" || inner.inner().with_updated_config(options).is_some();
    match !is_everywhere && answers_by_it {
        true => Err(stays(&format!("the function {} in the session's time zone", function.name()))),
        false => function_name(state, function),
    }
}

/// The function of this name, with results of this type.
///
/// # Errors
/// `NotFound`.
pub(crate) fn function(state: &SessionState, name: &str, result: &DataType) -> Result<Arc<ScalarUDF>> {
    let missing = || external(Error::not_found(format!("function {name}")));
    if let Some(inner) = name.strip_prefix(MEASURED) {
        let inner = state.scalar_functions().get(inner).and_then(measured_function);
        return inner.map(Arc::new).ok_or_else(missing);
    }
    if let Some(word) = name.strip_prefix(INTERNAL) {
        return by_word(word).map(Arc::new).ok_or_else(missing);
    }
    if let Some(function) = state.scalar_functions().get(name) {
        return Ok(Arc::clone(function));
    }
    number::by_name(name, result).map(Arc::new).ok_or_else(missing)
}

pub(crate) fn stays(what: &str) -> DataFusionError {
    external(Error::unsupported(format!("{what} does not travel to another process")))
}

impl QueryEngine {
    /// What the function of a call is called on its way.
    ///
    /// # Errors
    /// `Unsupported`, naming one that does not travel.
    pub fn called_function(&self, call: &ScalarFunctionExpr) -> Result<String> {
        called_function(self.base_state(), call)
    }

    /// What a function is called on its way.
    ///
    /// # Errors
    /// `Unsupported`, naming one that does not travel.
    pub fn function_name(&self, function: &ScalarUDF) -> Result<String> {
        function_name(self.base_state(), function)
    }

    /// # Errors
    /// `Unsupported`, naming an aggregate that every process does not have by its name.
    pub fn check_aggregate(&self, aggregate: &AggregateUDF) -> Result<()> {
        let known = self.base_state().aggregate_functions().get(aggregate.name());
        match known.is_some_and(|known| known.as_ref() == aggregate) {
            true => Ok(()),
            false => Err(stays(&format!("the aggregate {}", aggregate.name()))),
        }
    }
}
