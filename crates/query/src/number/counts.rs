//! Functions that count rows and elements: without a sign in DataFusion, here with the integers that PostgreSQL answers.

use arrow::array::ArrayRef;
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    ColumnarValue, LimitEffect, PartitionEvaluator, ReversedUDWF, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_plan::PhysicalExpr;
use std::ops::Range;
use std::sync::Arc;

/// Puts ours in the place of DataFusion's.
///
/// # Errors
/// None are expected.
pub(super) fn register(state: &mut SessionState) -> Result<()> {
    for (name, data_type) in [
        ("row_number", DataType::Int64),
        ("rank", DataType::Int64),
        ("dense_rank", DataType::Int64),
        ("ntile", DataType::Int32),
    ] {
        let inner = state.udwf(name)?;
        state.register_udwf(Arc::new(WindowUDF::new_from_impl(Rank { inner, data_type })))?;
    }
    let item = |data_type| DataType::List(Arc::new(Field::new_list_field(data_type, true)));
    for (name, theirs, ours) in [
        ("array_length", DataType::UInt64, DataType::Int32),
        ("cardinality", DataType::UInt64, DataType::Int32),
        ("array_position", DataType::UInt64, DataType::Int32),
        ("array_positions", item(DataType::UInt64), item(DataType::Int32)),
    ] {
        let inner = state.udf(name)?;
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(Count { inner, theirs, ours })))?;
    }
    Ok(())
}

/// A count of elements, or a place among them.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Count {
    inner: Arc<ScalarUDF>,
    theirs: DataType,
    ours: DataType,
}

impl ScalarUDFImpl for Count {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(arguments)
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.ours.clone())
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        args.return_field = Arc::new(args.return_field.as_ref().clone().with_data_type(self.theirs.clone()));
        self.inner.invoke_with_args(args)?.cast_to(&self.ours, None)
    }
}

/// A number of a row.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Rank {
    inner: Arc<WindowUDF>,
    data_type: DataType,
}

impl WindowUDFImpl for Rank {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs<'_>) -> Result<Box<dyn PartitionEvaluator>> {
        let inner = self.inner.inner().partition_evaluator(args)?;
        Ok(Box::new(Ranking { inner, data_type: self.data_type.clone() }))
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.inner.inner().field(args)?;
        Ok(Arc::new(field.as_ref().clone().with_data_type(self.data_type.clone())))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.inner().sort_options()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(arguments)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.inner.inner().reverse_expr() {
            ReversedUDWF::Identical => ReversedUDWF::Identical,
            _ => ReversedUDWF::NotSupported,
        }
    }

    fn limit_effect(&self, arguments: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(arguments)
    }
}

#[derive(Debug)]
struct Ranking {
    inner: Box<dyn PartitionEvaluator>,
    data_type: DataType,
}

impl Ranking {
    fn cast(&self, ranks: &ArrayRef) -> Result<ArrayRef> {
        Ok(cast(ranks, &self.data_type)?)
    }
}

impl PartitionEvaluator for Ranking {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, row: usize, rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(row, rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let ranks = self.inner.evaluate_all(values, rows)?;
        self.cast(&ranks)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.inner.evaluate(values, range)?.cast_to(&self.data_type)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        self.cast(&self.inner.evaluate_all_with_rank(rows, ranks)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
