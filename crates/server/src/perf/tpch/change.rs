//! Changes rows of `orders` and `lineitem`: a share of them before queries run, or `lineitem`'s all the while. In the end, and at
//! any time in the second case, the tables hold what they held before, so that answers stay the same.

use super::answer;
use crate::import::execute;
use crate::sql::connection::Connection;
use oribi_types::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

/// What is done to each table, `{share}` being the condition that chooses the rows.
const STATEMENTS: [(&str, [&str; 5]); 2] = [
    (
        "orders",
        [
            "create table tpch_changed (primary key (o_orderkey)) as select * from orders where {share}",
            "update orders set o_totalprice = o_totalprice + 1 where {share}",
            "delete from orders where {share}",
            "insert into orders select * from tpch_changed",
            "drop table tpch_changed",
        ],
    ),
    (
        "lineitem",
        [
            "create table tpch_changed (primary key (l_orderkey, l_linenumber)) as select * from lineitem where {share}",
            "update lineitem set l_quantity = l_quantity + 1 where {share}",
            "delete from lineitem where {share}",
            "insert into lineitem select * from tpch_changed",
            "drop table tpch_changed",
        ],
    ),
];

/// Updates, deletes and inserts again so many of each hundred orders, with their lineitems, and leaves that in memory.
pub fn change(runtime: &Runtime, connection: &Connection, pct: u8) -> Result<()> {
    for (table, statements) in STATEMENTS {
        for statement in statements {
            let statement = statement.replace("{share}", &share(table, pct));
            runtime.block_on(execute(connection, &statement)).map_err(|e| e.context(statement))?;
        }
    }
    Ok(())
}

/// Has rows updated one range of keys after the other, so many a second, until it is ended.
pub struct Updates {
    rows: Arc<AtomicU64>,
    task: JoinHandle<Result<()>>,
}

/// Updates a second.
const STATEMENTS_A_SECOND: u64 = 10;

impl Updates {
    pub fn begin(runtime: &Runtime, connection: Connection, rows_a_second: u64) -> Result<Self> {
        let last = runtime.block_on(answer(&connection, "select max(l_orderkey) from lineitem"))?;
        let last = last.value().and_then(|last| last.parse().ok());
        let last: u64 = last.ok_or_else(|| Error::invalid("lineitem has no rows"))?;
        // Of four keys of orders there is one, with four lineitems.
        let keys = rows_a_second.div_ceil(STATEMENTS_A_SECOND);
        let rows = Arc::new(AtomicU64::new(0));
        let updated = Arc::clone(&rows);
        let task = runtime.spawn(async move {
            let mut ticks = interval(Duration::from_secs(1) / STATEMENTS_A_SECOND as u32);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for first in (0..=last).step_by(keys.max(1) as usize).cycle() {
                ticks.tick().await;
                let range = format!("l_orderkey >= {first} and l_orderkey < {}", first + keys);
                execute(
                    &connection,
                    &format!("update lineitem set l_quantity = l_quantity + 0 where {range}"),
                )
                .await?;
                updated.fetch_add(keys, Relaxed);
            }
            Ok(())
        });
        Ok(Updates { rows, task })
    }

    /// How many rows were updated, about.
    ///
    /// # Errors
    /// That of the statement which failed.
    pub fn end(self, runtime: &Runtime) -> Result<u64> {
        if self.task.is_finished() {
            let ended = runtime.block_on(self.task).map_err(|e| Error::internal(e.to_string()))?;
            ended.map_err(|e| e.context("updates"))?;
        } else {
            self.task.abort();
        }
        Ok(self.rows.load(Relaxed))
    }
}

/// Of 32 keys of orders in a row there are the first eight, so of a hundred remainders each as often as any other.
fn share(table: &str, pct: u8) -> String {
    let column = if table == "orders" { "o_orderkey" } else { "l_orderkey" };
    format!("{column} % 100 < {pct}")
}
