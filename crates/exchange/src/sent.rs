//! Plans as the owner sends them and as compute nodes read them, without nodes: what tests and a fuzzer call.

use crate::codec::{Codec, bare_state, damaged, outermost};
use crate::taken::Take;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::{DistributedCodec, DistributedExt};
use datafusion_proto::bytes::physical_plan_from_bytes_with_proto_converter;
use datafusion_proto::physical_plan::DeduplicatingProtoConverter;
use oribi_query::QueryEngine;
use prost::Message;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Of a process that sends plans to itself.
pub struct SentPlans {
    codec: Arc<Codec>,
    context: TaskContext,
}

impl SentPlans {
    pub fn new(query: &Arc<QueryEngine>) -> Self {
        let codec = Arc::new(Codec::of_owner(query));
        let state = bare_state(query.base_state().config().clone(), query.runtime_env())
            .with_distributed_user_codec_arc(Arc::clone(&codec) as _)
            .build();
        SentPlans { codec, context: TaskContext::from(&state) }
    }

    /// # Errors
    /// `Unsupported`, naming what does not travel.
    pub fn encode(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
        self.codec.encode(plan)
    }

    /// As datafusion-distributed does it with a plan that a node is sent: with a list of codecs, of which the first is its own. A
    /// panic is an error, as it is to who sends a plan. What is no node of ours is refused here, and there left to DataFusion.
    ///
    /// # Errors
    /// `Corrupt`, or DataFusion's for a plan that is none.
    pub fn decode(&self, bytes: &[u8]) -> Result<Arc<dyn ExecutionPlan>> {
        outermost(bytes)?;
        let codecs = DistributedCodec::new_combined_with_user(self.context.session_config());
        let converter = DeduplicatingProtoConverter::default();
        let read =
            || physical_plan_from_bytes_with_proto_converter(bytes, &self.context, &codecs, &converter);
        catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(damaged()))
    }
}

/// Whether a node that is sent this ticket looks for the task whose rows it asks for.
pub fn asks_for_rows(ticket: &[u8]) -> bool {
    Take::decode(ticket).is_ok_and(|take| take.into_request().is_ok())
}
