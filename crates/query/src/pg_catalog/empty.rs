//! System tables of things that do not exist here: clients ask for them and get no rows.

use super::table::{Declaration, none};

pub const TABLES: &[Declaration] = &[
    (
        "pg_catalog",
        "pg_proc",
        "oid oid, proname name, pronamespace oid, proowner oid, prolang oid, procost float4, prorows \
         float4, provariadic oid, prosupport oid, prokind char, prosecdef bool, proleakproof bool, \
         proisstrict bool, proretset bool, provolatile char, proparallel char, pronargs int2, \
         pronargdefaults int2, prorettype oid, proargtypes oid[], proallargtypes oid[], proargmodes \
         text[], proargnames text[], proargdefaults text, prosrc text, probin text, proacl text[]",
        none,
    ),
    ("pg_catalog", "pg_description", "objoid oid, classoid oid, objsubid int4, description text", none),
    ("pg_catalog", "pg_shdescription", "objoid oid, classoid oid, description text", none),
    (
        "pg_catalog",
        "pg_collation",
        "oid oid, collname name, collnamespace oid, collowner oid, collprovider char, collisdeterministic \
         bool, collencoding int4, collcollate text, collctype text, colliculocale text, collversion text",
        none,
    ),
    ("pg_catalog", "pg_inherits", "inhrelid oid, inhparent oid, inhseqno int4, inhdetachpending bool", none),
    (
        "pg_catalog",
        "pg_policy",
        "oid oid, polname name, polrelid oid, polcmd char, polpermissive bool, polroles oid[], polqual \
         text, polwithcheck text",
        none,
    ),
    (
        "pg_catalog",
        "pg_statistic_ext",
        "oid oid, stxrelid oid, stxname name, stxnamespace oid, stxowner oid, stxstattarget int4, stxkeys \
         int2[], stxkind text[], stxexprs text",
        none,
    ),
    (
        "pg_catalog",
        "pg_publication",
        "oid oid, pubname name, pubowner oid, puballtables bool, pubinsert bool, pubupdate bool, \
         pubdelete bool, pubtruncate bool, pubviaroot bool",
        none,
    ),
    (
        "pg_catalog",
        "pg_publication_rel",
        "oid oid, prpubid oid, prrelid oid, prqual text, prattrs int2[]",
        none,
    ),
    ("pg_catalog", "pg_publication_namespace", "oid oid, pnpubid oid, pnnspid oid", none),
    ("pg_catalog", "pg_auth_members", "roleid oid, member oid, grantor oid, admin_option bool", none),
    (
        "pg_catalog",
        "pg_extension",
        "oid oid, extname name, extowner oid, extnamespace oid, extrelocatable bool, extversion text",
        none,
    ),
    ("pg_catalog", "pg_enum", "oid oid, enumtypid oid, enumsortorder float4, enumlabel name", none),
    (
        "pg_catalog",
        "pg_range",
        "rngtypid oid, rngsubtype oid, rngmultitypid oid, rngcollation oid, rngsubopc oid",
        none,
    ),
    (
        "pg_catalog",
        "pg_trigger",
        "oid oid, tgrelid oid, tgname name, tgfoid oid, tgtype int2, tgenabled char, tgisinternal bool, \
         tgconstraint oid, tgparentid oid, tableoid oid",
        none,
    ),
    (
        "pg_catalog",
        "pg_rewrite",
        "oid oid, rulename name, ev_class oid, ev_type char, ev_enabled char, is_instead bool, tableoid \
         oid",
        none,
    ),
    (
        "pg_catalog",
        "pg_language",
        "oid oid, lanname name, lanowner oid, lanispl bool, lanpltrusted bool, lanplcallfoid oid, \
         tableoid oid",
        none,
    ),
    (
        "pg_catalog",
        "pg_operator",
        "oid oid, oprname name, oprnamespace oid, oprkind char, oprleft oid, oprright oid, oprresult oid, \
         oprcode oid",
        none,
    ),
    (
        "pg_catalog",
        "pg_opclass",
        "oid oid, opcmethod oid, opcname name, opcnamespace oid, opcintype oid, opcdefault bool, tableoid \
         oid",
        none,
    ),
    (
        "pg_catalog",
        "pg_opfamily",
        "oid oid, opfmethod oid, opfname name, opfnamespace oid, tableoid oid",
        none,
    ),
    (
        "pg_catalog",
        "pg_cast",
        "oid oid, castsource oid, casttarget oid, castfunc oid, castcontext char, castmethod char",
        none,
    ),
    ("pg_catalog", "pg_aggregate", "aggfnoid oid, aggkind char, aggnumdirectargs int2", none),
    (
        "pg_catalog",
        "pg_depend",
        "classid oid, objid oid, objsubid int4, refclassid oid, refobjid oid, refobjsubid int4, deptype \
         char",
        none,
    ),
    ("pg_catalog", "pg_foreign_table", "ftrelid oid, ftserver oid, ftoptions text[]", none),
    (
        "pg_catalog",
        "pg_foreign_server",
        "oid oid, srvname name, srvowner oid, srvfdw oid, srvtype text, srvversion text, srvoptions text[]",
        none,
    ),
    (
        "pg_catalog",
        "pg_foreign_data_wrapper",
        "oid oid, fdwname name, fdwowner oid, fdwhandler oid, fdwvalidator oid, fdwoptions text[]",
        none,
    ),
    (
        "pg_catalog",
        "pg_partitioned_table",
        "partrelid oid, partstrat char, partnatts int2, partdefid oid, partattrs int2[]",
        none,
    ),
    ("pg_catalog", "pg_db_role_setting", "setdatabase oid, setrole oid, setconfig text[]", none),
    (
        "pg_catalog",
        "pg_default_acl",
        "oid oid, defaclrole oid, defaclnamespace oid, defaclobjtype char, defaclacl text[]",
        none,
    ),
    (
        "pg_catalog",
        "pg_event_trigger",
        "oid oid, evtname name, evtevent name, evtowner oid, evtfoid oid, evtenabled char, evttags text[]",
        none,
    ),
    (
        "pg_catalog",
        "pg_ts_config",
        "oid oid, cfgname name, cfgnamespace oid, cfgowner oid, cfgparser oid",
        none,
    ),
    ("pg_catalog", "pg_views", "schemaname name, viewname name, viewowner name, definition text", none),
    (
        "pg_catalog",
        "pg_matviews",
        "schemaname name, matviewname name, matviewowner name, tablespace name, hasindexes bool, \
         ispopulated bool, definition text",
        none,
    ),
    ("pg_catalog", "pg_prepared_xacts", "transaction oid, gid text, owner name, database name", none),
    (
        "pg_catalog",
        "pg_locks",
        "locktype text, database oid, relation oid, pid int4, mode text, granted bool",
        none,
    ),
    ("pg_catalog", "pg_largeobject_metadata", "oid oid, lomowner oid, lomacl text[]", none),
];
