//! Reading parts of a document.

use super::super::json::json_text;
use super::attribute::{self, DocumentMeta};
use super::locate::{Entries, Place, locate};
use super::path::{self, Component};
use super::{Lookup, LookupOp, Status};
use std::borrow::Cow;
use std::cell::OnceCell;

/// Answers lookups of one document, which it checks to be JSON at the first that asks for it.
pub struct Reader<'d> {
    document: &'d [u8],
    meta: DocumentMeta,
    text: OnceCell<Option<&'d str>>,
}

impl<'d> Reader<'d> {
    pub fn new(document: &'d [u8], meta: DocumentMeta) -> Self {
        Reader { document, meta, text: OnceCell::new() }
    }

    /// The value: a slice of the document, unless it was made for the answer. Empty for `Exists`.
    ///
    /// # Errors
    /// What this operation failed with; others of the same request can do better.
    pub fn look(&self, lookup: &Lookup<'_>) -> Result<Cow<'d, [u8]>, Status> {
        if lookup.op == LookupOp::GetDocument {
            let is_there = !self.document.is_empty();
            return is_there.then_some(Cow::Borrowed(self.document)).ok_or(Status::PathNotFound);
        }
        let path = path::parse(lookup.path)?;
        if !lookup.xattr {
            return answer(self.text().ok_or(Status::DocumentNotJson)?, lookup.op, &path);
        }
        let attribute = self.attribute(&path)?;
        let value = answer(&attribute, lookup.op, &path)?.into_owned();
        // None of the virtual attributes holds bytes.
        if lookup.binary { Err(Status::NotBinary) } else { Ok(Cow::Owned(value)) }
    }

    /// Whether the document is JSON.
    pub fn is_json(&self) -> bool {
        self.text().is_some()
    }

    fn text(&self) -> Option<&'d str> {
        *self.text.get_or_init(|| json_text(self.document))
    }

    /// An object that holds the virtual attribute which `path` begins with, and of its members at least the one that
    /// `path` names.
    fn attribute(&self, path: &[Component<'_>]) -> Result<String, Status> {
        let key = |component: usize| match path.get(component) {
            Some(Component::Key(key)) => Some(key.as_ref()),
            _ => None,
        };
        match key(0) {
            Some("$document") => Ok(attribute::document(&self.meta, self, self.document, key(1))),
            Some("$vbucket") => Ok(attribute::vbucket(&self.meta)),
            Some("$XTOC") => Ok(attribute::contents()),
            _ => Err(Status::UnknownVirtualXattr),
        }
    }
}

fn answer<'t>(text: &'t str, op: LookupOp, path: &[Component<'_>]) -> Result<Cow<'t, [u8]>, Status> {
    let Place::Found(found) = locate(text, path)? else { return Err(Status::PathNotFound) };
    Ok(match op {
        LookupOp::Exists => Cow::Borrowed(&[]),
        LookupOp::GetCount => {
            let count = Entries::open(text, found.value.start, path.len() + 1)?.count()?;
            Cow::Owned(count.to_string().into_bytes())
        }
        LookupOp::Get | LookupOp::GetDocument => Cow::Borrowed(&text.as_bytes()[found.value]),
    })
}
