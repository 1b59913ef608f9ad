//! `sum` and `avg` with PostgreSQL's types, which never wrap around.
//!
//! Of `bigint` both are `numeric`, and so is `avg` of any integer: they are summed as decimals. Where the type of a sum has
//! ten digits more than its argument no number of rows can fill it, and nothing is checked; else each addition is.

mod accumulators;
mod adding;
mod beside_distinct;
mod groups;

pub(crate) use beside_distinct::rules;

use super::decimal::{DIGITS_MAX, Shape};
use super::operators::{digits_of, integer_type, type_name};
use super::{error, planned};
use accumulators::{Distinct, Single, Sliding};
use adding::{Decimals, Doubles, Integers, Reals, RoomyDecimals};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};
use groups::Groups;
use std::sync::Arc;

pub(super) fn aggregates() -> Vec<AggregateUDF> {
    let total = |name, average| {
        let signature = Signature::user_defined(Volatility::Immutable);
        AggregateUDF::new_from_impl(Total { name, average, signature })
    };
    vec![total("sum", false), total("avg", true)]
}

/// `sum` or `avg`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Total {
    name: &'static str,
    average: bool,
    signature: Signature,
}

impl Total {
    fn missing(&self, argument: &DataType) -> datafusion::common::DataFusionError {
        let message = format!("function {}({}) does not exist", self.name, type_name(argument));
        planned(error("42883", message))
    }
}

/// Runs `$body` with the kind of addition that sums of `$argument` need as `$adding`.
macro_rules! dispatch {
    ($argument:expr, $adding:ident => $body:expr) => {
        match $argument {
            DataType::Int32 => {
                type $adding = Integers;
                $body
            }
            DataType::Float32 => {
                type $adding = Reals;
                $body
            }
            DataType::Float64 => {
                type $adding = Doubles;
                $body
            }
            DataType::Decimal128(precision, _) if precision + 10 <= DIGITS_MAX => {
                type $adding = RoomyDecimals;
                $body
            }
            DataType::Decimal128(..) => {
                type $adding = Decimals;
                $body
            }
            other => exec_err!("no sum of {other}"),
        }
    };
}

impl AggregateUDFImpl for Total {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [argument] = arguments else {
            let message = format!("function {} takes one argument", self.name);
            return Err(planned(error("42883", message)));
        };
        Ok(vec![match (argument, integer_type(argument)) {
            (_, Some(integer)) if self.average || integer == DataType::Int64 => {
                DataType::Decimal128(digits_of(&integer), 0)
            }
            (_, Some(_)) => DataType::Int32,
            (DataType::Float32, _) if self.average => DataType::Float64,
            (DataType::Float32 | DataType::Float64 | DataType::Decimal128(..), _) => argument.clone(),
            (DataType::Null, _) => DataType::Float64,
            _ => return Err(self.missing(argument)),
        }])
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let argument = self.coerce_types(arguments)?.swap_remove(0);
        Ok(match Shape::of(&argument) {
            None => summed(&argument),
            Some(shape) if self.average => shape.average().data_type(),
            Some(shape) => Shape { precision: shape.precision + 10, ..shape }.data_type(),
        })
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let argument = args.expr_fields[0].data_type();
        let types = Types::new(argument, args.return_field.data_type(), self.average);
        if args.is_distinct {
            return dispatch!(argument, Adding => Ok(Box::new(Distinct::<Adding>::new(types)) as Box<dyn Accumulator>));
        }
        dispatch!(argument, Adding => Ok(Box::new(Single::<Adding>::new(types)) as Box<dyn Accumulator>))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let argument = args.expr_fields[0].data_type();
        let types = Types::new(argument, args.return_field.data_type(), self.average);
        dispatch!(argument, Adding => Ok(Box::new(Sliding::<Adding>::new(types)) as Box<dyn Accumulator>))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let argument = args.input_fields[0].data_type();
        let types = Types::new(argument, args.return_field.data_type(), self.average);
        let name = |what: &str| format_state_name(args.name, what);
        if args.is_distinct {
            let item = Field::new_list_field(types.argument, true);
            return Ok(vec![Arc::new(Field::new_list(name("distinct"), item, false))]);
        }
        let sum = Arc::new(Field::new(name("sum"), types.sum, true));
        if !self.average {
            return Ok(vec![sum]);
        }
        Ok(vec![sum, Arc::new(Field::new(name("count"), DataType::Int64, true))])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let argument = args.expr_fields[0].data_type();
        let types = Types::new(argument, args.return_field.data_type(), self.average);
        if self.average {
            return dispatch!(argument, Adding => Ok(Box::new(Groups::<Adding, true>::new(types)) as Box<dyn GroupsAccumulator>));
        }
        dispatch!(argument, Adding => Ok(Box::new(Groups::<Adding, false>::new(types)) as Box<dyn GroupsAccumulator>))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// What values of a type are taken for when they are added.
fn summed(argument: &DataType) -> DataType {
    if argument == &DataType::Int32 { DataType::Int64 } else { argument.clone() }
}

/// The types of an aggregate.
#[derive(Clone, Debug)]
struct Types {
    /// Of the values, as they are added.
    argument: DataType,
    /// Of the sum, which for an average is not the result.
    sum: DataType,
    result: DataType,
    average: bool,
}

impl Types {
    fn new(argument: &DataType, result: &DataType, average: bool) -> Self {
        let sum = match Shape::of(argument) {
            Some(shape) => Shape { precision: shape.precision + 10, ..shape }.data_type(),
            None => summed(argument),
        };
        Types { argument: summed(argument), sum, result: result.clone(), average }
    }
}
