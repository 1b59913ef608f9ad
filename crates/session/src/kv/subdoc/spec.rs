//! The operations of a request, and what a request may ask for before any document is looked at.

use super::{OPERATIONS_MAX, PATH_BYTES_MAX, Status};

/// Flags of an operation, as they go over the wire.
mod flag {
    /// Missing objects on the way are created.
    pub const MKDIR_P: u8 = 0x01;
    pub const XATTR: u8 = 0x04;
    /// The value is a macro.
    pub const EXPAND: u8 = 0x10;
    /// The value is bytes, stored in base64.
    pub const BINARY: u8 = 0x20;
}
use flag::{BINARY, EXPAND, MKDIR_P, XATTR};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupOp {
    Get,
    Exists,
    /// How many elements an array has, or members an object.
    GetCount,
    GetDocument,
}

impl LookupOp {
    pub fn from_opcode(opcode: u8) -> Option<Self> {
        Some(match opcode {
            0x00 => LookupOp::GetDocument,
            0xc5 => LookupOp::Get,
            0xc6 => LookupOp::Exists,
            0xd2 => LookupOp::GetCount,
            _ => return None,
        })
    }

    fn flags(self) -> u8 {
        match self {
            LookupOp::Get => XATTR | BINARY,
            LookupOp::Exists | LookupOp::GetCount => XATTR,
            LookupOp::GetDocument => 0,
        }
    }

    fn scope(self) -> Scope {
        match self {
            LookupOp::Get | LookupOp::Exists => Scope::Part,
            LookupOp::GetCount => Scope::PartOrRoot,
            LookupOp::GetDocument => Scope::Document,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutateOp {
    /// Adds a member that is not there yet.
    DictAdd,
    /// Adds or replaces a member.
    DictUpsert,
    /// Removes a member or an element.
    Delete,
    /// Replaces a member or an element.
    Replace,
    ArrayPushLast,
    ArrayPushFirst,
    /// Inserts elements before the one that the path names, or after the last.
    ArrayInsert,
    /// Adds a scalar to an array of scalars unless it is there.
    ArrayAddUnique,
    /// Adds to an integer, or adds a member that is one.
    Counter,
    SetDocument,
    DeleteDocument,
}

impl MutateOp {
    pub fn from_opcode(opcode: u8) -> Option<Self> {
        Some(match opcode {
            0x01 => MutateOp::SetDocument,
            0x04 => MutateOp::DeleteDocument,
            0xc7 => MutateOp::DictAdd,
            0xc8 => MutateOp::DictUpsert,
            0xc9 => MutateOp::Delete,
            0xca => MutateOp::Replace,
            0xcb => MutateOp::ArrayPushLast,
            0xcc => MutateOp::ArrayPushFirst,
            0xcd => MutateOp::ArrayInsert,
            0xce => MutateOp::ArrayAddUnique,
            0xcf => MutateOp::Counter,
            _ => return None,
        })
    }

    fn flags(self) -> u8 {
        match self {
            MutateOp::DictAdd | MutateOp::DictUpsert => MKDIR_P | XATTR | EXPAND | BINARY,
            MutateOp::ArrayPushLast | MutateOp::ArrayPushFirst => MKDIR_P | XATTR | EXPAND,
            MutateOp::ArrayAddUnique | MutateOp::Counter => MKDIR_P | XATTR,
            MutateOp::Replace => XATTR | EXPAND | BINARY,
            MutateOp::ArrayInsert => XATTR | EXPAND,
            MutateOp::Delete => XATTR,
            MutateOp::SetDocument | MutateOp::DeleteDocument => 0,
        }
    }

    fn scope(self) -> Scope {
        match self {
            MutateOp::ArrayPushLast | MutateOp::ArrayPushFirst | MutateOp::ArrayAddUnique => {
                Scope::PartOrRoot
            }
            MutateOp::SetDocument | MutateOp::DeleteDocument => Scope::Document,
            _ => Scope::Part,
        }
    }

    fn takes_value(self) -> bool {
        !matches!(self, MutateOp::Delete | MutateOp::DeleteDocument)
    }
}

/// What a path may name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Something below the root.
    Part,
    /// That, or with an empty path the root.
    PartOrRoot,
    /// The document, with an empty path, whether it is JSON or not.
    Document,
}

/// One operation that reads.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'r> {
    pub(super) op: LookupOp,
    pub(super) path: &'r [u8],
    /// The path begins with the name of a virtual attribute.
    pub(super) xattr: bool,
    pub(super) binary: bool,
}

impl<'r> Lookup<'r> {
    /// # Errors
    /// What the request as a whole is refused with. The path's syntax is not looked at yet.
    pub fn new(opcode: u8, flags: u8, path: &'r [u8]) -> Result<Self, Status> {
        let op = LookupOp::from_opcode(opcode).ok_or(Status::InvalidCombination)?;
        check_path(op.scope(), op.flags(), flags, path)?;
        let xattr = flags & XATTR != 0;
        if xattr && !is_virtual(path)? {
            return Err(Status::NotSupported);
        }
        Ok(Lookup { op, path, xattr, binary: flags & BINARY != 0 })
    }

    pub fn op(&self) -> LookupOp {
        self.op
    }
}

/// One operation that writes.
#[derive(Clone, Copy, Debug)]
pub struct Mutation<'r> {
    pub(super) op: MutateOp,
    pub(super) path: &'r [u8],
    pub(super) value: &'r [u8],
    /// Whether objects that are missing on the way are created; also implied by requests that may create the document.
    pub create_path: bool,
}

impl<'r> Mutation<'r> {
    /// # Errors
    /// What the request as a whole is refused with. Neither the path's syntax nor the value is looked at yet.
    pub fn new(opcode: u8, flags: u8, path: &'r [u8], value: &'r [u8]) -> Result<Self, Status> {
        /// Replaces the document by one of its extended attributes.
        const REPLACE_BODY_WITH_XATTR: u8 = 0xd3;
        if opcode == REPLACE_BODY_WITH_XATTR {
            return Err(Status::NotSupported);
        }
        let op = MutateOp::from_opcode(opcode).ok_or(Status::InvalidCombination)?;
        check_path(op.scope(), op.flags(), flags, path)?;
        if flags & XATTR != 0 {
            return Err(if is_virtual(path)? { Status::VirtualXattrReadOnly } else { Status::NotSupported });
        }
        if op.takes_value() == value.is_empty() {
            return Err(Status::Invalid);
        }
        Ok(Mutation { op, path, value, create_path: flags & MKDIR_P != 0 })
    }

    pub fn op(&self) -> MutateOp {
        self.op
    }
}

/// # Errors
/// What a request with these operations is refused with.
pub fn check_lookups(lookups: &[Lookup<'_>]) -> Result<(), Status> {
    check_count(lookups.len())?;
    if lookups.is_sorted_by_key(|lookup| !lookup.xattr) { Ok(()) } else { Err(Status::XattrOrder) }
}

/// # Errors
/// What a request with these operations is refused with.
pub fn check_mutations(mutations: &[Mutation<'_>]) -> Result<(), Status> {
    check_count(mutations.len())?;
    let deletes = mutations.iter().any(|mutation| mutation.op == MutateOp::DeleteDocument);
    if deletes && mutations.len() > 1 { Err(Status::InvalidCombination) } else { Ok(()) }
}

fn check_count(operations: usize) -> Result<(), Status> {
    if (1..=OPERATIONS_MAX).contains(&operations) { Ok(()) } else { Err(Status::InvalidCombination) }
}

fn check_path(scope: Scope, allowed: u8, flags: u8, path: &[u8]) -> Result<(), Status> {
    if flags & !allowed != 0 || path.len() > PATH_BYTES_MAX {
        return Err(Status::Invalid);
    }
    let of_xattr = flags & (EXPAND | BINARY);
    if of_xattr != 0 && (flags & XATTR == 0 || of_xattr == EXPAND | BINARY) {
        return Err(Status::XattrInvalidFlags);
    }
    let fits = match scope {
        // An attribute without a name has a status of its own.
        Scope::Part => !path.is_empty() || flags & XATTR != 0,
        Scope::PartOrRoot => true,
        Scope::Document => path.is_empty(),
    };
    if fits { Ok(()) } else { Err(Status::Invalid) }
}

/// Whether the attribute that the path begins with is a virtual one.
///
/// # Errors
/// `XattrInvalid` if that is no name of an attribute.
fn is_virtual(path: &[u8]) -> Result<bool, Status> {
    const NAME_BYTES_MAX: usize = 15;
    let name = path.split(|b| matches!(b, b'.' | b'[')).next().unwrap_or_default();
    let is_text = std::str::from_utf8(path).is_ok() && !path.contains(&0);
    let is_name = match name {
        [] | [b'$' | b'_'] => false,
        [b'$' | b'_', ..] => true,
        [first, ..] => !first.is_ascii_punctuation() && !first.is_ascii_control(),
    };
    if is_text && is_name && name.len() <= NAME_BYTES_MAX {
        Ok(name.starts_with(b"$"))
    } else {
        Err(Status::XattrInvalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_refused_as_a_whole() {
        use Status::*;
        let long = "a".repeat(PATH_BYTES_MAX + 1);
        for (opcode, flags, path, status) in [
            (0xc5, 0x08, "a", Invalid),
            (0xc5, MKDIR_P, "a", Invalid),
            (0xc5, BINARY, "a", XattrInvalidFlags),
            (0xc5, 0, long.as_str(), Invalid),
            (0x00, XATTR, "", Invalid),
            (0xc7, 0, "a", InvalidCombination),
            (0x02, 0, "a", InvalidCombination),
        ] {
            assert_eq!(
                Lookup::new(opcode, flags, path.as_bytes()).err(),
                Some(status),
                "{opcode:x} {flags:x}"
            );
        }
        for (opcode, flags, path, value, status) in [
            (0xc7, XATTR, "$document.flags", "1", VirtualXattrReadOnly),
            (0xc7, XATTR, "user.attr", "1", NotSupported),
            (0xc8, XATTR | EXPAND, "user.cas", "\"${Mutation.CAS}\"", NotSupported),
            (0xc8, XATTR | EXPAND | BINARY, "user.cas", "1", XattrInvalidFlags),
            (0xc8, EXPAND, "a", "\"${Mutation.CAS}\"", XattrInvalidFlags),
            (0xd3, XATTR, "user", "", NotSupported),
            (0xc5, 0, "a", "", InvalidCombination),
            (0xc7, 0, "a", "", Invalid),
            (0xc9, 0, "a", "1", Invalid),
            (0x01, 0, "a", "1", Invalid),
            (0x04, 0, "", "1", Invalid),
            (0xc7, 0, long.as_str(), "1", Invalid),
        ] {
            let refused = Mutation::new(opcode, flags, path.as_bytes(), value.as_bytes()).err();
            assert_eq!(refused, Some(status), "{opcode:x} {flags:x}");
        }

        let body = Lookup::new(0xc5, 0, b"a").unwrap();
        let attribute = Lookup::new(0xc5, XATTR, b"$document").unwrap();
        assert_eq!(check_lookups(&[attribute, body]), Ok(()));
        assert_eq!(check_lookups(&[body, attribute]), Err(XattrOrder));
        assert_eq!(check_lookups(&[body; 16]), Ok(()));
        assert_eq!(check_lookups(&[body; 17]), Err(InvalidCombination));
        assert_eq!(check_lookups(&[]), Err(InvalidCombination));
        let set = Mutation::new(0x01, 0, b"", b"1").unwrap();
        let delete = Mutation::new(0x04, 0, b"", b"").unwrap();
        assert_eq!(check_mutations(&[set; 16]), Ok(()));
        assert_eq!(check_mutations(&[delete]), Ok(()));
        for refused in [&[][..], &[set; 17], &[set, delete], &[delete, delete]] {
            assert_eq!(check_mutations(refused), Err(InvalidCombination));
        }
    }
}
