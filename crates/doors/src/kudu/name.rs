//! Names of tables: Kudu has one name, the engine a schema and a name in it.
//!
//! What stands before the first dot is the schema: `default.loadgen_auto_1` is table `loadgen_auto_1` in schema `default`, and
//! Impala's `impala::shop.orders` is table `orders` in schema `impala::shop`. A name without a dot is in schema `public`, and
//! a table there is shown without it. So a name comes back as it was given, but `public.t`, which comes back as `t`.

use oribi_engine::PUBLIC_SCHEMA;

/// The schema and the name in it.
pub(super) fn parse(kudu: &str) -> (&str, &str) {
    match kudu.split_once('.') {
        Some((schema, name)) if !schema.is_empty() && !name.is_empty() => (schema, name),
        _ => (PUBLIC_SCHEMA, kudu),
    }
}

/// What Kudu's clients see.
pub(super) fn show(schema: &str, name: &str) -> String {
    if schema == PUBLIC_SCHEMA && parse(name) == (PUBLIC_SCHEMA, name) {
        return name.to_owned();
    }
    format!("{schema}.{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back() {
        for name in ["t", "default.loadgen_auto_1", "impala::shop.orders", "a.b.c", ".t", "t.", "", "ä.ö"] {
            let (schema, table) = parse(name);
            assert_eq!(show(schema, table), name);
        }
        assert_eq!(parse("public.t"), parse("t"));
        assert_eq!(parse("impala::shop.orders"), ("impala::shop", "orders"));
    }

    #[test]
    fn every_table_has_a_name_of_its_own() {
        for (schema, table) in
            [("public", "t"), ("public", "a.b"), ("public", ".b"), ("a", "b.c"), ("a", "t")]
        {
            assert_eq!(parse(&show(schema, table)), (schema, table));
        }
    }
}
