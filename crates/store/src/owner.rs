//! Who owns the tables of a store, and what they are made of: the object [`MANIFEST`], which is only ever replaced where it is what
//! the owner has put there.
//!
//! | `STORE` of the folder knows | the store's manifest has | the folder |
//! |---|---|---|
//! | no claim that counted | is not there, nor are objects of tables | becomes the owner, term 1 |
//! | no claim that counted | is not there, but objects of tables are | is refused: the store has lost it |
//! | a claim | that claim | stays the owner, with the next term |
//! | nothing, or other claims | a claim | is refused: the tables are another folder's |
//! | a claim that counted | is not there | is refused: somebody has removed it |
//! | that it is being restored | | is refused: `restore` goes on |
//!
//! A claim is chosen at random and written to the folder before it is made, and each opening makes another. So of two copies of a
//! folder the one that is opened later is refused, and a folder that was restored from the store is the owner from then on: the
//! one before finds, when it tells of its next change or looks, ten seconds later at most, that it is not, and stops.
//!
//! A request of which nobody was told may come through at any later time, as long as what it expects is there. So a claim is
//! remembered until another has counted, which is made on the same manifest or a later one: that is when it cannot count any more.

use crate::bucket::{Body, Bucket, Expected, get_small, hex, if_there, random_text};
use crate::files::StoreFiles;
use crate::patient::Patient;
use oribi_engine::{Claimed, Depot};
use oribi_env::{Env, read_file, write_file};
use oribi_types::{Error, ErrorKind, Result};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The store's manifest.
pub const MANIFEST: &str = "MANIFEST";
/// The folder's file that says which store its tables are kept in.
const STORE_FILE: &str = "STORE";
const FORMAT: u32 = 1;
const MANIFEST_BYTES_MAX: usize = 1 << 30;
/// Terms have room in the ids of files.
const TERM_MAX: u64 = 1 << 29;
/// How often the manifest may change under an owner by requests of his own that come through late: each does so once.
const LATE_MAX: usize = 16;

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
    /// The claim that counts, and those that were made after it, of which nobody knows whether they do.
    claims: Vec<String>,
    /// Whether one has ever counted.
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
    /// One tells at a time: what an earlier one tells is not told after what a later one does.
    telling: Mutex<()>,
    owned: Mutex<Option<Ownership>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Owner {
    pub fn new(store: Arc<Patient>, env: Env, dir: &Path, files: Arc<StoreFiles>) -> Self {
        let (telling, owned) = (Mutex::default(), Mutex::default());
        Owner { store, env, dir: dir.to_owned(), files, telling, owned }
    }

    /// Makes the folder the owner; `takes_over` what another owned.
    fn claim_as(&self, takes_over: bool) -> Result<Claimed> {
        for _ in 0..LATE_MAX {
            if let Some(claimed) = self.try_claim(takes_over)? {
                // Nobody else has requests under way that count.
                self.store.remove_leftovers()?;
                return Ok(claimed);
            }
        }
        Err(Error::unavailable(format!("{}: its {MANIFEST} changes all the time", self.store.url())))
    }

    /// `None` if a claim that this folder made before has come through meanwhile.
    fn try_claim(&self, takes_over: bool) -> Result<Option<Claimed>> {
        let bond = read_bond(&self.env, &self.dir)?.unwrap_or_default();
        let there = self.find_manifest(&bond, takes_over)?;
        let (header, record) =
            there.as_ref().map_or((None, None), |there| (Some(&there.header), there.record.as_deref()));
        if !takes_over {
            self.check_folder(&bond, record.is_some())?;
        }
        let claim = random_text()?;
        let mut intent = Bond {
            url: self.store.url().to_owned(),
            claims: bond.claims,
            is_owner: bond.is_owner && !takes_over,
            is_restoring: takes_over,
        };
        intent.claims.push(claim.clone());
        write_bond(&self.env, &self.dir, &intent)?;
        let header = self.next_header(header, &claim, record.unwrap_or_default())?;
        let body = encode(&header, record.unwrap_or_default())?;
        let expected = there.as_ref().map_or(Expected::Nothing, |there| Expected::Tag(&there.tag));
        let tag = match self.store.put(MANIFEST, Body::Bytes(&body), expected) {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                let is_ours = |there: &Manifest| intent.claims.contains(&there.header.claim);
                if self.read()?.as_ref().is_some_and(is_ours) {
                    return Ok(None);
                }
                let message = format!("{}: another owner came first", self.store.url());
                return Err(Error::new(ErrorKind::Forbidden, message));
            }
            put => put?,
        };
        write_bond(&self.env, &self.dir, &Bond { claims: vec![claim], is_owner: true, ..intent })?;
        let claimed = Claimed { term: header.term, told: there.and_then(|there| there.record) };
        *lock(&self.owned) = Some(Ownership { header, tag });
        Ok(Some(claimed))
    }

    /// The store's manifest, if the folder may go on from it; `None` where the store is empty.
    fn find_manifest(&self, bond: &Bond, takes_over: bool) -> Result<Option<Manifest>> {
        let url = self.store.url();
        if !bond.url.is_empty() && bond.url != url {
            let (dir, before) = (self.dir.display(), &bond.url);
            return Err(Error::invalid(format!(
                "the tables of folder {dir} are kept in {before}, not in {url}"
            )));
        }
        // Before the manifest, which is there before any object, and never removed.
        let has_objects =
            !bond.is_owner && !self.store.list(&format!("{}/", crate::files::TABLES))?.is_empty();
        match self.read()? {
            None if has_objects || bond.is_owner => {
                Err(Error::corrupt(format!("{url} has lost its {MANIFEST}")))
            }
            None if takes_over => Err(Error::not_found(format!("{url}: no tables"))),
            None => Ok(None),
            Some(there) if takes_over || bond.claims.contains(&there.header.claim) => Ok(Some(there)),
            Some(there) => Err(self.not_ours(&there.header, bond)),
        }
    }

    fn next_header(&self, before: Option<&Header>, claim: &str, record: &[u8]) -> Result<Header> {
        let term = before.map_or(0, |header| header.term) + 1;
        if term > TERM_MAX {
            return Err(Error::too_large("there were too many owners"));
        }
        Ok(Header {
            format: FORMAT,
            term,
            version: before.map_or(0, |header| header.version) + 1,
            claim: claim.to_owned(),
            owner: format!("folder {}, process {}", self.dir.display(), std::process::id()),
            digest: digest_of(record),
        })
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
        let (url, dir) = (self.store.url(), self.dir.display());
        if bond.is_restoring {
            return Err(Error::corrupt(format!(
                "folder {dir} was not restored to the end: oribi restore --store {url} --data {dir}"
            )));
        }
        if is_told && !oribi_engine::is_begun(&self.env, &self.dir)? {
            return Err(Error::corrupt(format!(
                "folder {dir} has lost its tables; to go on from what was told to the store, without what only the log has: \
                 oribi restore --store {url} --data <a new folder>"
            )));
        }
        Ok(())
    }

    /// Makes the folder, which is empty, one of those that are in the store, and it the owner.
    pub fn restore(&self) -> Result<()> {
        let bond = read_bond(&self.env, &self.dir)?.unwrap_or_default();
        if !(bond.is_restoring && oribi_engine::is_begun(&self.env, &self.dir)?) {
            oribi_engine::restore(&self.env, &self.dir, || {
                let told = self.claim_as(true)?.told;
                if told.is_none() {
                    tracing::warn!("nothing was told to the store yet: there are no tables");
                }
                Ok(told)
            })?;
        }
        // All is there, by this restore or by one that ended here; unless somebody has taken it over since.
        let bond = read_bond(&self.env, &self.dir)?.unwrap_or_default();
        match self.read()? {
            Some(there) if bond.claims.contains(&there.header.claim) => {}
            Some(there) => return Err(self.not_ours(&there.header, &bond)),
            None => return Err(Error::corrupt(format!("{} has lost its {MANIFEST}", self.store.url()))),
        }
        write_bond(&self.env, &self.dir, &Bond { is_restoring: false, ..bond })
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
    fn claim(&self) -> Result<Claimed> {
        let claimed = self.claim_as(false)?;
        let term = claimed.term;
        // From here on nobody else changes what is there.
        let kept = self.store.list(&format!("{}/", crate::files::TABLES))?;
        self.files.note_all(kept, term)?;
        tracing::info!(store = self.store.url(), term, "owns the tables");
        Ok(claimed)
    }

    fn publish(&self, manifest: &dyn Fn() -> Result<Vec<u8>>) -> Result<()> {
        let _telling = lock(&self.telling);
        let cache = &self.files.cache;
        // Before the manifest is asked for: it names none of these.
        let removed = cache.removed();
        match manifest().and_then(|record| self.tell(&record)) {
            Ok(()) => cache.note_unnamed(removed),
            Err(error) => {
                cache.remove_later(removed);
                return Err(error);
            }
        }
        cache.sweep();
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let mut owned = lock(&self.owned);
        let ownership = ownership(&mut owned)?;
        if if_there(self.store.tag(MANIFEST))?.as_ref() != Some(&ownership.tag) {
            ownership.tag = self.ours(&ownership.header.claim)?;
        }
        Ok(())
    }

    fn tend(&self, is_full: bool) {
        let cache = &self.files.cache;
        cache.sweep();
        cache.evict(0);
        if is_full {
            cache.evict_some();
        }
    }
}

fn ownership<'o>(owned: &'o mut MutexGuard<'_, Option<Ownership>>) -> Result<&'o mut Ownership> {
    owned.as_mut().ok_or_else(|| Error::internal("nobody has claimed the store"))
}

impl Owner {
    fn tell(&self, record: &[u8]) -> Result<()> {
        let mut owned = lock(&self.owned);
        let ownership = ownership(&mut owned)?;
        let (version, digest) = (ownership.header.version + 1, digest_of(record));
        let header = Header { version, digest, ..ownership.header.clone() };
        let body = encode(&header, record)?;
        for _ in 0..LATE_MAX {
            match self.store.put(MANIFEST, Body::Bytes(&body), Expected::Tag(&ownership.tag)) {
                // What was told before may have come through late.
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    ownership.tag = self.ours(&header.claim)?;
                }
                put => {
                    (ownership.tag, ownership.header) = (put?, header);
                    return Ok(());
                }
            }
        }
        Err(Error::unavailable(format!("{}: its {MANIFEST} changes all the time", self.store.url())))
    }
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

/// The term of the owner who has made an object; 0 for a file from before the folder had a store.
pub(crate) fn term_of(name: &str) -> Option<u64> {
    let file = name.rsplit('/').next().unwrap_or_default();
    let mut parts = file.split('.');
    let id = parts.next().unwrap_or_default();
    // Marks on rows of a file may be a later owner's.
    let digits = if file.ends_with(".marks") { parts.next().unwrap_or_default() } else { id };
    u64::from_str_radix(digits, 16).ok().map(|id| id >> 32)
}
