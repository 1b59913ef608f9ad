//! What lists and errors of S3 say. Elements that are looked for have no attributes, and are not nested in their like.

use crate::bucket::Listed;
use oribi_types::{Error, Result};

pub(super) struct Page {
    pub objects: Vec<Listed>,
    /// By which the next one is asked for.
    pub next: Option<String>,
}

/// A page of `ListObjectsV2`.
///
/// # Errors
/// `Invalid`.
pub(super) fn page(text: &str) -> Result<Page> {
    let invalid = || Error::invalid("the store's list is not one of S3");
    if !text.contains("<ListBucketResult") {
        return Err(invalid());
    }
    let objects = elements(text, "Contents").map(|object| {
        let name = first(object, "Key").ok_or_else(invalid)?;
        let bytes = first(object, "Size").and_then(|size| size.parse().ok()).ok_or_else(invalid)?;
        Ok(Listed { name, bytes })
    });
    let objects = objects.collect::<Result<_>>()?;
    let is_cut = first(text, "IsTruncated").is_some_and(|cut| cut == "true");
    let next = first(text, "NextContinuationToken").filter(|token| is_cut && !token.is_empty());
    if is_cut && next.is_none() {
        return Err(invalid());
    }
    Ok(Page { objects, next })
}

/// The text of the first element of this name.
pub(super) fn first(text: &str, name: &str) -> Option<String> {
    elements(text, name).next().map(unescape)
}

fn elements<'t>(text: &'t str, name: &str) -> impl Iterator<Item = &'t str> {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = text;
    std::iter::from_fn(move || {
        let from = rest.find(&begin)? + begin.len();
        let len = rest[from..].find(&end)?;
        let element = &rest[from..from + len];
        rest = &rest[from + len + end.len()..];
        Some(element)
    })
}

/// The five names of XML, and numbers.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find(';').unwrap_or(0);
        let number = |digits: &str| match digits.strip_prefix('x') {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => digits.parse().ok(),
        };
        let char = match rest.get(1..end).unwrap_or_default() {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            named => named.strip_prefix('#').and_then(number).and_then(char::from_u32),
        };
        out.push(char.unwrap_or('&'));
        rest = if char.is_some() { &rest[end + 1..] } else { &rest[1..] };
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read() {
        let text = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3\"><IsTruncated>true</IsTruncated>\
                    <Contents><Key>a&amp;b/&#x63;</Key><ETag>&quot;x&quot;</ETag><Size>12</Size></Contents>\
                    <Contents><Key>d</Key><Size>0</Size></Contents>\
                    <NextContinuationToken>t+1</NextContinuationToken></ListBucketResult>";
        let page = page(text).unwrap();
        let listed = |name: &str, bytes| Listed { name: name.to_owned(), bytes };
        assert_eq!(page.objects, [listed("a&b/c", 12), listed("d", 0)]);
        assert_eq!(page.next.unwrap(), "t+1");
    }

    #[test]
    fn what_is_no_page_is_refused() {
        assert!(page("").is_err());
        assert!(page("<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>").is_err());
        assert!(page("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>").is_err());
        assert_eq!(unescape("&&;&bogus;&#xffffffff;é&"), "&&;&bogus;&#xffffffff;é&");
    }
}
