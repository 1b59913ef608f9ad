//! Changes a share of the rows of `orders` and `lineitem` and leaves it in memory. In the end the tables hold what they held
//! before, so that answers stay the same.

use crate::import::execute;
use crate::sql::connection::Connection;
use oribi_types::Result;
use tokio::runtime::Runtime;

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

/// Updates, deletes and inserts again so many of each hundred orders, with their lineitems.
pub fn change(runtime: &Runtime, connection: &Connection, pct: u8) -> Result<()> {
    for (table, statements) in STATEMENTS {
        for statement in statements {
            let statement = statement.replace("{share}", &share(table, pct));
            runtime.block_on(execute(connection, &statement)).map_err(|e| e.context(statement))?;
        }
    }
    Ok(())
}

/// Of 32 keys of orders in a row there are the first eight, so of a hundred remainders each as often as any other.
fn share(table: &str, pct: u8) -> String {
    let column = if table == "orders" { "o_orderkey" } else { "l_orderkey" };
    format!("{column} % 100 < {pct}")
}
