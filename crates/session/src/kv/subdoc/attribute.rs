//! Virtual extended attributes: what is known of a document, in the form of JSON.
//!
//! Names and formats are those of Couchbase Server: numbers of 64 bits are strings, because JSON readers round them.

use super::Reader;
use std::fmt::Write;

/// What a document is accompanied by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocumentMeta {
    pub cas: u64,
    /// Of the write that made this version.
    pub seqno: u64,
    pub vbucket_uuid: u64,
    /// How often the document was written.
    pub revid: u64,
    /// The client's.
    pub flags: u32,
    /// Unix time; 0: never.
    pub expires_at_seconds: u64,
    /// Unix time of the last write.
    pub last_modified_seconds: u64,
    /// The hybrid clock, now, in nanoseconds since the Unix epoch.
    pub hlc_now_nanos: u64,
}

/// `$document`, of whose members only `wanted` is made if that is given: a checksum of the value is not for free.
pub fn document(meta: &DocumentMeta, reader: &Reader<'_>, value: &[u8], wanted: Option<&str>) -> String {
    let mut json = String::from("{\"$document\":{");
    let mut member = |name: &str, content: &dyn Fn() -> String| {
        if wanted.is_none_or(|wanted| wanted == name) {
            let comma = if json.ends_with('{') { "" } else { "," };
            let _ = write!(json, "{comma}\"{name}\":{}", content());
        }
    };
    member("CAS", &|| hex(meta.cas));
    member("datatype", &|| String::from(if reader.is_json() { "[\"json\"]" } else { "[\"raw\"]" }));
    member("deleted", &|| String::from("false"));
    member("exptime", &|| meta.expires_at_seconds.to_string());
    member("flags", &|| meta.flags.to_string());
    member("last_modified", &|| format!("\"{}\"", meta.last_modified_seconds));
    member("revid", &|| format!("\"{}\"", meta.revid));
    member("seqno", &|| hex(meta.seqno));
    member("value_bytes", &|| value.len().to_string());
    member("value_crc32c", &|| format!("\"0x{:08x}\"", crc32c::crc32c(value)));
    member("vbucket_uuid", &|| hex(meta.vbucket_uuid));
    json.push_str("}}");
    json
}

/// `$vbucket`: the clock.
pub fn vbucket(meta: &DocumentMeta) -> String {
    format!("{{\"$vbucket\":{{\"HLC\":{{\"mode\":\"real\",\"now\":\"{}\"}}}}}}", meta.hlc_now_nanos)
}

/// `$XTOC`: the names of the extended attributes that the document has.
pub fn contents() -> String {
    String::from("{\"$XTOC\":[]}")
}

fn hex(number: u64) -> String {
    format!("\"0x{number:016x}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::subdoc::{Lookup, Status};

    const XATTR: u8 = 0x04;
    const BINARY: u8 = 0x20;

    const META: DocumentMeta = DocumentMeta {
        cas: 0x1234_5678_9abc_def0,
        seqno: 7,
        vbucket_uuid: 0xfeed,
        revid: 3,
        flags: 0x0200_0000,
        expires_at_seconds: 1_900_000_000,
        last_modified_seconds: 1_800_000_000,
        hlc_now_nanos: 1_800_000_001_000_000_000,
    };

    fn look(document: &[u8], opcode: u8, flags: u8, path: &str) -> Result<String, Status> {
        let value = Reader::new(document, META).look(&Lookup::new(opcode, flags, path.as_bytes())?)?;
        Ok(String::from_utf8(value.into_owned()).expect("text was asked for"))
    }

    #[test]
    fn virtual_attributes_tell_about_the_document() {
        let document = br#"{"a":1}"#;
        for (path, expected) in [
            ("$document.CAS", Ok(r#""0x123456789abcdef0""#)),
            ("$document.datatype", Ok(r#"["json"]"#)),
            ("$document.datatype[0]", Ok(r#""json""#)),
            ("$document.deleted", Ok("false")),
            ("$document.exptime", Ok("1900000000")),
            ("$document.flags", Ok("33554432")),
            ("$document.last_modified", Ok(r#""1800000000""#)),
            ("$document.revid", Ok(r#""3""#)),
            ("$document.seqno", Ok(r#""0x0000000000000007""#)),
            ("$document.value_bytes", Ok("7")),
            ("$document.vbucket_uuid", Ok(r#""0x000000000000feed""#)),
            ("$document.cas", Err(Status::PathNotFound)),
            ("$document.CAS.x", Err(Status::PathMismatch)),
            ("$vbucket.HLC", Ok(r#"{"mode":"real","now":"1800000001000000000"}"#)),
            ("$XTOC", Ok("[]")),
            ("$other", Err(Status::UnknownVirtualXattr)),
            ("_sync", Err(Status::NotSupported)),
            ("user.attr", Err(Status::NotSupported)),
            ("", Err(Status::XattrInvalid)),
            ("$", Err(Status::XattrInvalid)),
            (".a", Err(Status::XattrInvalid)),
            ("sixteen_letters_", Err(Status::XattrInvalid)),
        ] {
            let found = look(document, 0xc5, XATTR, path);
            assert_eq!(found.as_deref(), expected.as_deref(), "{path}");
            assert_eq!(
                look(document, 0xc6, XATTR, path).as_deref(),
                expected.map(|_| "").as_deref(),
                "{path}"
            );
        }
        let whole = look(document, 0xc5, XATTR, "$document").unwrap();
        let whole: serde_json::Value = serde_json::from_str(&whole).unwrap();
        assert_eq!((whole.as_object().map(|o| o.len()), &whole["flags"]), (Some(11), &33554432.into()));
        let checksum = look(b"123456789", 0xc5, XATTR, "$document.value_crc32c");
        assert_eq!(checksum.as_deref(), Ok(r#""0xe3069283""#));
        assert_eq!(look(document, 0xd2, XATTR, "$document").as_deref(), Ok("11"));
        assert_eq!(look(b"nope", 0xc5, XATTR, "$document.datatype").as_deref(), Ok(r#"["raw"]"#));
        assert_eq!(look(document, 0xc5, XATTR | BINARY, "$document.flags"), Err(Status::NotBinary));
    }
}
