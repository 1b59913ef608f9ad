//! Batches of long rows are short.
//!
//! A batch has 8,192 rows, whatever they weigh; of long rows, which a scan knows by the pages that they lie in, it has as many
//! as come to [`BATCH_BYTES`]. A scan gathers what passes its conditions up to so many rows or bytes, and a filter
//! above a range of keys is told to gather no more than that hands on, and so are all operators of a plan that has no other scans
//! ([`batch_rows`]). Nor are such rows read ahead, by a task of its own, to share them out among threads: thousands of plans that
//! were polled once would each have some, before anybody [counts](crate::unread) them.

use crate::provider::{RangeSource, TableSource};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::source::{DataSource, DataSourceExec};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use std::sync::Arc;

/// Of rows that are longer than 1 KiB, batches of 8,192 would have more.
pub(crate) const BATCH_BYTES: u64 = 8 << 20;

/// How many rows of `row_bytes` bytes a batch has that would have `rows` otherwise.
pub(crate) fn rows_of(row_bytes: u64, rows: usize) -> usize {
    rows.min((BATCH_BYTES / row_bytes.max(1)).max(1) as usize)
}

/// How many rows a batch of `plan` may have, by its scans; any number if it has none, or joins what they give.
pub fn batch_rows(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let rows = |source: &Arc<dyn DataSource>| {
        let table = source.downcast_ref::<TableSource>().map(TableSource::batch_rows);
        let range = source.downcast_ref::<RangeSource>().map(RangeSource::batch_rows);
        table.or(range).unwrap_or(usize::MAX)
    };
    sources(plan).into_iter().flatten().map(rows).min().unwrap_or(usize::MAX)
}

/// Whether all that `plan` hands on is read, as it goes, from [short](RangeSource::is_short) ranges of keys.
pub(crate) fn reads_short_ranges(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let short = |source: &Arc<dyn DataSource>| {
        source.downcast_ref::<RangeSource>().is_some_and(RangeSource::is_short)
    };
    let sources = sources(plan).filter(|sources| !sources.is_empty());
    plan.pipeline_behavior() == EmissionType::Incremental
        && sources.is_some_and(|sources| sources.into_iter().all(short))
}

/// What the rows of `plan` come from; `None` if rows of several sources are joined.
fn sources(plan: &Arc<dyn ExecutionPlan>) -> Option<Vec<&Arc<dyn DataSource>>> {
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
        return Some(vec![scan.data_source()]);
    }
    let children = plan.children();
    if children.len() > 1 && plan.downcast_ref::<UnionExec>().is_none() {
        return None;
    }
    let mut found = Vec::new();
    for child in children {
        found.extend(sources(child)?);
    }
    Some(found)
}

/// `plan`, fitted to rows that are long: filters gather no larger batches than the scans below them make, of `rows` rows
/// otherwise, and nothing shares out long rows, or those of short ranges, that one thread reads.
///
/// # Errors
/// None are expected.
pub(crate) fn fitted(plan: Arc<dyn ExecutionPlan>, rows: usize) -> Result<Arc<dyn ExecutionPlan>> {
    let fit = |plan: Arc<dyn ExecutionPlan>| {
        if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            let few = batch_rows(filter.input());
            if few < rows {
                let told: Arc<dyn ExecutionPlan> = Arc::new(filter.with_batch_size(few)?);
                return Ok(Transformed::yes(told));
            }
        } else if let Some(input) = shared_out(&plan)
            && (batch_rows(input) < rows || reads_short_ranges(input))
        {
            return Ok(Transformed::yes(Arc::clone(input)));
        }
        Ok(Transformed::no(plan))
    };
    plan.transform_up(fit).data()
}

/// What `plan` shares out among threads, whatever the rows are; `None` if it does something else.
fn shared_out(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let repartition = plan.downcast_ref::<RepartitionExec>()?;
    matches!(repartition.partitioning(), Partitioning::RoundRobinBatch(_)).then(|| repartition.input())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{QueryEngine, QueryOptions};
    use crate::dml::{ParameterTypes, Parameters, Run, Scope, SourceQuery};
    use crate::syntax;
    use futures::StreamExt;
    use oribi_engine::{Engine, EngineOptions};
    use oribi_env::Env;
    use oribi_session::sql::{Outcome, SqlEngine, SqlSession};

    struct Db {
        query: Arc<QueryEngine>,
        session: Arc<SqlSession>,
        _dir: tempfile::TempDir,
    }

    impl Db {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let engine = Engine::open(Env::real(), dir.path(), EngineOptions::default()).unwrap();
            let options = QueryOptions { threads: 2, ..QueryOptions::default() };
            let query = QueryEngine::new(engine, options).unwrap();
            Db { query, session: SqlSession::new("tester", "oribi"), _dir: dir }
        }

        async fn run(&self, sql: &str) {
            let prepared = self.query.prepare(&self.session, sql, &[]).await.unwrap();
            if let Outcome::Rows(rows) = prepared.execute(&self.session, &[]).await.unwrap() {
                rows.for_each(|batch| async move { drop(batch.unwrap()) }).await;
            }
        }

        async fn plan(&self, sql: &str) -> Arc<dyn ExecutionPlan> {
            let sql: Arc<str> = sql.into();
            let statement = syntax::parse(&sql).unwrap().statement;
            let scope = Scope { query: &self.query, session: &self.session, sql: &sql };
            let source = SourceQuery::plan(scope, statement, &mut ParameterTypes::new(&[])).await.unwrap();
            let parameters = Parameters::default();
            let run = Run { query: &self.query, session: &self.session, parameters, narrowed: None };
            let (view, plan) = source.begin(run).await.unwrap();
            self.query.plan_physical(view, plan).await.unwrap().plan
        }
    }

    #[tokio::test]
    async fn what_takes_long_is_no_short_range() {
        let db = Db::new();
        db.run("create table t (k integer primary key, v text)").await;
        db.run("insert into t select n, 'a' from generate_series(1, 100000) as s(n)").await;
        for (short, sql) in [
            (true, "select v from t where k = 7 and v like 'x%'"),
            (true, "select lower(v) from t where k between 7 and 90"),
            (true, "select v from t where k between 7 and 90 limit 3"),
            (false, "select v from t where v like 'x%'"),
            // Many rows may have to be read for one.
            (false, "select v from t where v like 'x%' order by k limit 1"),
            (false, "select max(v) from t where k between 7 and 90"),
            (false, "select v from t where k between 7 and 90 order by v"),
            (false, "select a.v from t a join t b on a.k = b.k where a.k < 5 and b.k < 5"),
            (false, "select 'a'"),
        ] {
            assert_eq!(reads_short_ranges(&db.plan(sql).await), short, "{sql}");
        }
    }

    fn shares_out(plan: &Arc<dyn ExecutionPlan>) -> bool {
        shared_out(plan).is_some() || plan.children().into_iter().any(shares_out)
    }

    #[tokio::test]
    async fn long_rows_are_not_read_ahead_to_share_them_out() {
        let db = Db::new();
        for (table, bytes) in [("short", 100), ("long", 100_000)] {
            db.run(&format!("create table {table} (k integer primary key, v text)")).await;
            let rows = format!("select n, repeat('a', {bytes}) from generate_series(1, 100) as s(n)");
            db.run(&format!("insert into {table} {rows}")).await;
            db.query.engine().flush(&db.query.engine().table("public", table).unwrap()).unwrap();
        }
        for sql in [
            "select * from long where v like 'a%'",
            "select v, count(*) from long where v like 'a%' group by v",
            "select a.k from long a join long b on a.v = b.v where a.v like 'a%'",
            "select v from short where k = 7 and v like 'a%'",
        ] {
            assert!(!shares_out(&db.plan(sql).await), "{sql}");
        }
    }

    #[tokio::test]
    async fn plans_over_short_rows_have_batches_of_the_usual_size() {
        let db = Db::new();
        db.run("create table t (k integer primary key, v text)").await;
        db.run("insert into t select n, repeat('a', 900) from generate_series(1, 9000) as s(n)").await;
        let usual = |rows: usize| rows >= 8192;
        assert!(usual(batch_rows(&db.plan("select * from t where v like 'a%'").await)));
        db.query.engine().flush(&db.query.engine().table("public", "t").unwrap()).unwrap();
        assert!(usual(batch_rows(&db.plan("select * from t where v like 'a%'").await)));
        db.run("insert into t select n, repeat('a', 100000) from generate_series(9001, 9100) as s(n)").await;
        assert!(!usual(batch_rows(&db.plan("select * from t where v like 'a%'").await)));
        assert!(usual(batch_rows(&db.plan("select k from t").await)));
    }
}
