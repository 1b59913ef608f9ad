//! Is a value JSON?
//!
//! Values are bytes; whether they are JSON is found out when somebody asks, never stored.

use serde::de::IgnoredAny;

/// Whether `value` is one JSON value (RFC 8259) and nothing else, in UTF-8.
///
/// Time and memory are linear in `value`, however deep it nests: nothing recurses over it.
pub fn is_json(value: &[u8]) -> bool {
    json_text(value).is_some()
}

/// `value` as text, if it is JSON.
pub(super) fn json_text(value: &[u8]) -> Option<&str> {
    // Ignored strings are not checked for their encoding.
    let text = std::str::from_utf8(value).ok()?;
    // serde_json keeps the brackets that are open on the heap when it ignores a value.
    serde_json::from_str::<IgnoredAny>(text).is_ok().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_one_whole_value() {
        for json in ["1", " \"a\\u00e4\" ", "null", "-1.5e-30", "[]", "{\"a\":[1,{}]}", "1e999", "\"ä\""] {
            assert!(is_json(json.as_bytes()), "{json}");
        }
        for other in
            ["", " ", "1 2", "01", "+1", "nul", "'a'", "[1,]", "{a:1}", "{\"a\":1}}", "\"\\x\"", "\"\n\""]
        {
            assert!(!is_json(other.as_bytes()), "{other}");
        }
        assert!(!is_json(b"\"\xff\""));
        assert!(!is_json(b"\xef\xbb\xbf{}"));
    }

    #[test]
    fn nesting_is_not_recursion() {
        let depth = 2_000_000;
        let mut text = "[".repeat(depth);
        assert!(!is_json(text.as_bytes()));
        text.push_str(&"]".repeat(depth));
        assert!(is_json(text.as_bytes()));
    }
}
