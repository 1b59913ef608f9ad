//! Who owns the tables of a store, and what they are made of: the object [`MANIFEST`], which is only ever replaced where it is what
//! the owner has put there.
//!
//! | `STORE` of the folder knows | the store's manifest has | the folder |
//! |---|---|---|
//! | nothing | is not there | becomes the owner, term 1 |
//! | a claim | that claim | stays the owner, with the next term |
//! | nothing, or other claims | a claim | is refused: the tables are another folder's |
//! | a claim that counted | is not there | is refused: somebody has removed it |
//! | that it is being restored | | is refused: `restore` goes on |
//!
//! A claim is chosen at random and written to the folder before it is made, and each opening makes another. So of two copies of a
//! folder the one that is opened later is refused, and a folder that was restored from the store is the owner from then on: the
//! one before finds, when it tells of its next change or looks, ten seconds later at most, that it is not, and stops.

use crate::bucket::{Body, Bucket, Expected, get_small, hex, if_there};
use crate::files::StoreFiles;
use crate::patient::Patient;
use oribi_engine::Depot;
use oribi_env::{Env, read_file, write_file};
use oribi_types::{Error, ErrorKind, Result};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The store's manifest.
pub const MANIFEST: &str = "MANIFEST";
/// The folder's file that says which store its tables are kept in.
const STORE_FILE: &str = "STORE";
const FORMAT: u32 = 1;
const MANIFEST_BYTES_MAX: usize = 1 << 30;
/// Terms have room in the ids of files.
const TERM_MAX: u64 = 1 << 29;

/// The first line of the store's manifest. The second is a record of the engine's manifest that makes all of its state; empty
/// before the first was told.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Header {
    format: u32,
    term: u64,
    /// How often it was replaced.
    version: u64,
    claim: String,
    /// For people.
    owner: String,
    /// SHA-256 of the second line.
    digest: String,
}

/// The store's manifest as it is there.
struct Manifest {
    header: Header,
    /// `None` before the first was told.
    record: Option<Vec<u8>>,
    tag: String,
}

/// The folder's `STORE`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Bond {
    url: String,
    /// The claim that counts, and one that was about to be made.
    claims: Vec<String>,
    /// Whether one was ever made.
    is_owner: bool,
    is_restoring: bool,
}

/// What is known of the owner: this process, from its claim on.
struct Ownership {
    header: Header,
    tag: String,
}

pub(crate) struct Owner {
    store: Arc<Patient>,
    env: Env,
    dir: PathBuf,
    files: Arc<StoreFiles>,
    owned: Mutex<Option<Ownership>>,
}

impl Owner {
    pub fn new(store: Arc<Patient>, env: Env, dir: &Path, files: Arc<StoreFiles>) -> Self {
        Owner { store, env, dir: dir.to_owned(), files, owned: Mutex::default() }
    }

    /// Makes the folder the owner; `takes_over` what another owned. Returns what the tables are made of.
    fn claim_as(&self, takes_over: bool) -> Result<(u64, Option<Vec<u8>>)> {
        let bond = read_bond(&self.env, &self.dir)?.unwrap_or_default();
        let there = self.read()?;
        let (claims, header, record) = match &there {
            None if takes_over => return Err(Error::not_found(format!("{}: no tables", self.store.url()))),
            None if bond.is_owner => {
                return Err(Error::corrupt(format!("{} has lost its {MANIFEST}", self.store.url())));
            }
            None => (Vec::new(), None, None),
            Some(Manifest { header, record, .. }) => {
                if !takes_over && !bond.claims.contains(&header.claim) {
                    return Err(self.not_ours(header, &bond));
                }
                (vec![header.claim.clone()], Some(header), record.as_deref())
            }
        };
        if !takes_over {
            self.check_folder(&bond, record.is_some())?;
        }
        let claim = random_claim()?;
        let kept = if takes_over { Vec::new() } else { claims };
        let intent = Bond {
            url: self.store.url().to_owned(),
            claims: kept.into_iter().chain([claim.clone()]).collect(),
            is_owner: bond.is_owner && !takes_over,
            is_restoring: takes_over,
        };
        write_bond(&self.env, &self.dir, &intent)?;
        let term = header.map_or(0, |header| header.term) + 1;
        if term > TERM_MAX {
            return Err(Error::too_large("there were too many owners"));
        }
        let owner = format!("folder {}, process {}", self.dir.display(), std::process::id());
        let version = header.map_or(0, |header| header.version) + 1;
        let digest = digest_of(record.unwrap_or_default());
        let header = Header { format: FORMAT, term, version, claim: claim.clone(), owner, digest };
        let body = encode(&header, record.unwrap_or_default())?;
        let expected = there.as_ref().map_or(Expected::Nothing, |there| Expected::Tag(&there.tag));
        let put = self.store.put(MANIFEST, Body::Bytes(&body), expected);
        let tag = put.map_err(|error| match error.kind() {
            ErrorKind::Conflict => {
                Error::new(ErrorKind::Forbidden, format!("{}: another owner came first", self.store.url()))
            }
            _ => error,
        })?;
        write_bond(&self.env, &self.dir, &Bond { claims: vec![claim], is_owner: true, ..intent })?;
        *self.owned() = Some(Ownership { header, tag });
        Ok((term, there.and_then(|there| there.record)))
    }

    fn not_ours(&self, header: &Header, bond: &Bond) -> Error {
        let (url, dir) = (self.store.url(), self.dir.display());
        let (term, owner) = (header.term, &header.owner);
        let why = match bond.is_owner {
            true => format!("{dir} is a copy, or was the owner before"),
            false => format!(
                "to take its tables over as they were last told, while it is stopped: \
                              oribi restore --store {url} --data <a new folder>"
            ),
        };
        let message = format!("store {url} belongs to another owner (term {term}: {owner}); {why}");
        Error::new(ErrorKind::Forbidden, message)
    }

    /// A folder that has lost its tables does not go on as if there were none.
    fn check_folder(&self, bond: &Bond, is_told: bool) -> Result<()> {
        let has_tables = self.env.files.open(&self.dir.join("CURRENT"), false).is_ok();
        if bond.is_restoring || (is_told && !has_tables) {
            let (url, dir) = (self.store.url(), self.dir.display());
            let state = if bond.is_restoring { "was not restored to the end" } else { "has lost its tables" };
            let message = format!("folder {dir} {state}: oribi restore --store {url} --data {dir}");
            return Err(Error::corrupt(message));
        }
        Ok(())
    }

    /// Makes the folder, which has no tables, one of those that are in the store, and it the owner.
    pub fn restore(&self) -> Result<()> {
        if self.env.files.open(&self.dir.join("CURRENT"), false).is_ok() {
            return Err(Error::already_exists(format!("folder {} has tables", self.dir.display())));
        }
        self.env.files.create_dir_all(&self.dir)?;
        let (_, manifest) = self.claim_as(true)?;
        match manifest {
            Some(manifest) => oribi_engine::restore(&self.env, &self.dir, &manifest)?,
            None => tracing::warn!("nothing was told to the store yet: there are no tables"),
        }
        let bond = read_bond(&self.env, &self.dir)?.unwrap_or_default();
        write_bond(&self.env, &self.dir, &Bond { is_restoring: false, ..bond })
    }

    fn owned(&self) -> std::sync::MutexGuard<'_, Option<Ownership>> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> Result<Option<Manifest>> {
        if_there(read(&*self.store))
    }

    /// There is another owner, unless the store's manifest is one that this one has put, and was not told of. Returns its tag then.
    fn ours(&self, claim: &str) -> Result<String> {
        match self.read()? {
            Some(there) if there.header.claim == claim => Ok(there.tag),
            Some(there) => {
                let Header { term, owner, .. } = there.header;
                let message = format!("store {} has another owner (term {term}: {owner})", self.store.url());
                Err(Error::conflict(message))
            }
            None => Err(Error::conflict(format!("store {} has lost its {MANIFEST}", self.store.url()))),
        }
    }
}

impl Depot for Owner {
    fn claim(&self) -> Result<u64> {
        let (term, _) = self.claim_as(false)?;
        // From here on nobody else changes what is there.
        let kept = self.store.list(&format!("{}/", crate::files::TABLES))?;
        self.files.note_all(kept, term)?;
        tracing::info!(store = self.store.url(), term, "owns the tables");
        Ok(term)
    }

    fn publish(&self, manifest: &dyn Fn() -> Result<Vec<u8>>) -> Result<()> {
        let mut owned = self.owned();
        let ownership = owned.as_mut().ok_or_else(|| Error::internal("nobody has claimed the store"))?;
        let removed = self.files.cache.removed();
        let told = self.tell(ownership, manifest);
        match told {
            Ok(()) => self.files.cache.sweep(removed),
            Err(_) => self.files.cache.remove_later(removed),
        }
        told
    }

    fn check(&self) -> Result<()> {
        let mut owned = self.owned();
        let ownership = owned.as_mut().ok_or_else(|| Error::internal("nobody has claimed the store"))?;
        if if_there(self.store.tag(MANIFEST))?.as_ref() != Some(&ownership.tag) {
            ownership.tag = self.ours(&ownership.header.claim)?;
        }
        Ok(())
    }
}

impl Owner {
    fn tell(&self, ownership: &mut Ownership, manifest: &dyn Fn() -> Result<Vec<u8>>) -> Result<()> {
        let record = manifest()?;
        let (version, digest) = (ownership.header.version + 1, digest_of(&record));
        let header = Header { version, digest, ..ownership.header.clone() };
        let body = encode(&header, &record)?;
        let mut put = self.store.put(MANIFEST, Body::Bytes(&body), Expected::Tag(&ownership.tag));
        if put.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict) {
            ownership.tag = self.ours(&header.claim)?;
            put = self.store.put(MANIFEST, Body::Bytes(&body), Expected::Tag(&ownership.tag));
        }
        ownership.tag = put?;
        ownership.header = header;
        Ok(())
    }
}

/// What a store's manifest says of the tables: the record of the engine's manifest, for who reads files by it.
///
/// # Errors
/// `NotFound` if there is none; `Corrupt`; those of the store.
pub fn told(bucket: &dyn Bucket) -> Result<Option<Vec<u8>>> {
    read(bucket).map(|manifest| manifest.record)
}

fn read(bucket: &dyn Bucket) -> Result<Manifest> {
    let (bytes, tag) = get_small(bucket, MANIFEST, MANIFEST_BYTES_MAX)?;
    let (header, record) = decode(&bytes).map_err(|error| error.context(bucket.url()))?;
    Ok(Manifest { header, record, tag })
}

fn encode(header: &Header, record: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(header).map_err(|error| Error::internal(error.to_string()))?;
    bytes.push(b'\n');
    bytes.extend_from_slice(record);
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Result<(Header, Option<Vec<u8>>)> {
    let corrupt = |what: &str| Error::corrupt(format!("{MANIFEST}: {what}"));
    let end =
        bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| corrupt("there are no two lines"))?;
    let header: Header =
        serde_json::from_slice(&bytes[..end]).map_err(|error| corrupt(&error.to_string()))?;
    if header.format != FORMAT {
        let format = header.format;
        return Err(Error::unsupported(format!("{MANIFEST}: format {format} is not known to this version")));
    }
    let record = &bytes[end + 1..];
    if header.digest != digest_of(record) {
        return Err(corrupt("checksum mismatch"));
    }
    Ok((header, (!record.is_empty()).then(|| record.to_vec())))
}

fn digest_of(record: &[u8]) -> String {
    hex(digest(&SHA256, record).as_ref())
}

/// Which store the tables of a folder are kept in, if it is one.
///
/// # Errors
/// `Corrupt`; those of the file system.
pub fn store_of(env: &Env, dir: &Path) -> Result<Option<String>> {
    Ok(read_bond(env, dir)?.map(|bond| bond.url))
}

fn read_bond(env: &Env, dir: &Path) -> Result<Option<Bond>> {
    let path = dir.join(STORE_FILE);
    match read_file(&*env.files, &path) {
        Ok(bytes) => {
            let bond = serde_json::from_slice(&bytes);
            bond.map(Some).map_err(|error| Error::corrupt(format!("{}: {error}", path.display())))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::from(error).context(path.display())),
    }
}

fn write_bond(env: &Env, dir: &Path, bond: &Bond) -> Result<()> {
    let (files, new) = (&*env.files, dir.join(format!("{STORE_FILE}.new")));
    let _ = files.remove(&new);
    let text = serde_json::to_vec(bond).map_err(|error| Error::internal(error.to_string()))?;
    write_file(files, &new, &text)?;
    files.rename(&new, &dir.join(STORE_FILE))?;
    Ok(files.sync_dir(dir)?)
}

pub(crate) fn random_claim() -> Result<String> {
    let mut claim = [0; 16];
    let filled = SystemRandom::new().fill(&mut claim);
    filled.map_err(|_| Error::internal("the system gives no random numbers"))?;
    Ok(crate::bucket::hex(&claim))
}

/// Whether an owner of a later term has made the object.
pub(crate) fn is_of_later_term(name: &str, term: u64) -> bool {
    let file = name.rsplit('/').next().unwrap_or_default();
    let digits = file.split('.').next().unwrap_or_default();
    u64::from_str_radix(digits, 16).is_ok_and(|id| id >> 32 > term)
}
