//! What `pg_catalog` says about the server: its database, its users, its access methods.

use super::picture::{DATABASE, OWNER};
use super::relations::{KEY_METHOD, TABLE_METHOD};
use super::table::{Declaration, row};

pub const TABLES: &[Declaration] = &[
    (
        "pg_catalog",
        "pg_database",
        "oid oid, datname name, datdba oid 10, encoding int4 6, datlocprovider char c, datistemplate bool false, \
         datallowconn bool true, datconnlimit int4 -1, datfrozenxid oid 0, datminmxid oid 0, dattablespace oid 1663, \
         datcollate text C, datctype text C, daticulocale text, datcollversion text, datacl text[]",
        |picture| vec![row! { oid: DATABASE, datname: picture.database.as_str() }],
    ),
    (
        "pg_catalog",
        "pg_roles",
        "rolname name, rolsuper bool true, rolinherit bool true, rolcreaterole bool true, rolcreatedb bool true, \
         rolcanlogin bool true, rolreplication bool false, rolconnlimit int4 -1, rolpassword text, \
         rolvaliduntil text, rolbypassrls bool true, rolconfig text[], oid oid 10",
        |picture| vec![row! { rolname: picture.user.as_str() }],
    ),
    (
        "pg_catalog",
        "pg_authid",
        "oid oid 10, rolname name, rolsuper bool true, rolinherit bool true, rolcreaterole bool true, \
         rolcreatedb bool true, rolcanlogin bool true, rolreplication bool false, rolbypassrls bool true, \
         rolconnlimit int4 -1, rolpassword text, rolvaliduntil text",
        |picture| vec![row! { rolname: picture.user.as_str() }],
    ),
    (
        "pg_catalog",
        "pg_user",
        "usename name, usesysid oid 10, usecreatedb bool true, usesuper bool true, userepl bool false, \
         usebypassrls bool true, passwd text, valuntil text, useconfig text[]",
        |picture| vec![row! { usename: picture.user.as_str(), usesysid: OWNER }],
    ),
    ("pg_catalog", "pg_am", "oid oid, amname name, amhandler oid 0, amtype char", |_| {
        vec![
            row! { oid: TABLE_METHOD, amname: "oribi", amtype: "t" },
            row! { oid: KEY_METHOD, amname: "btree", amtype: "i" },
        ]
    }),
    (
        "pg_catalog",
        "pg_tablespace",
        "oid oid, spcname name, spcowner oid 10, spcacl text[], spcoptions text[]",
        |_| vec![row! { oid: 1663_i64, spcname: "pg_default" }],
    ),
    (
        "pg_catalog",
        "pg_cursors",
        "name text, statement text, is_holdable bool, is_binary bool false, is_scrollable bool false, \
         creation_time text",
        |picture| {
            let cursors = picture.cursors.iter();
            cursors.map(|(name, is_held)| row! { name: name.as_str(), is_holdable: *is_held }).collect()
        },
    ),
    (
        "pg_catalog",
        "pg_settings",
        "name text, setting text, unit text, category text, short_desc text, extra_desc text, context text user, \
         vartype text string, source text default, min_val text, max_val text, enumvals text[], boot_val text, \
         reset_val text, sourcefile text, sourceline int4, pending_restart bool false",
        |picture| {
            let settings = picture.settings.iter();
            settings.map(|(name, value)| row! { name: name.as_str(), setting: value.as_str() }).collect()
        },
    ),
];
