//! Files as the engine sees them, of which the folder is a cache: one reader fetches what it lacks, and nobody waits for that who
//! does not read it; what is nowhere is damage, and never taken to be absent; what may go goes where there is no room.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::*;
use oribi_env::{Clock, Env, File, Files, RealFiles, Space};
use oribi_store::{Body, Bucket, Expected, Listed, Sink, Store};
use oribi_types::{Error, ErrorKind, Result};
use std::any::Any;
use std::io::Result as IoResult;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

/// Nobody waits for ever for a test.
const LONG: Duration = Duration::from_secs(60);

const FIRST: &str = "tables/7/0000000100000001.parquet";
const SECOND: &str = "tables/7/0000000100000002.parquet";

/// A store that the folder owns, with two files that are kept and not in the folder.
fn with_two_files(bucket: &Arc<Memory>, env: &Env, dir: &Path, cache_bytes_max: u64) -> Store {
    let store = store_of(bucket, env, dir, cache_bytes_max);
    store.depot().claim().unwrap();
    let files = store.env().files;
    for (name, byte) in [(FIRST, 1), (SECOND, 2)] {
        let (path, new) = (dir.join(name), dir.join(format!("{name}.tmp")));
        let file = files.create(&new).unwrap();
        file.write_at(&[byte; 1000], 0).unwrap();
        files.keep(&new, &path).unwrap();
        files.rename(&new, &path).unwrap();
        std::fs::remove_file(&path).unwrap();
    }
    store
}

fn read(file: &dyn File) -> Result<u8> {
    let mut byte = [0];
    file.read_at(&mut byte, 500)?;
    Ok(byte[0])
}

#[test]
fn what_somebody_has_removed_from_the_folder_is_fetched() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let store = with_two_files(&bucket, &Env::real(), dir.path(), 1 << 30);
    let file = store.env().files.open(&dir.path().join(FIRST), false).unwrap();
    assert_eq!(read(&*file).unwrap(), 1);
    assert_eq!((store.stats().fetches, store.stats().cache_bytes), (1, 2000));
}

#[test]
fn one_of_those_who_need_a_file_fetches_it_and_nobody_else_waits() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let store = with_two_files(&bucket, &Env::real(), dir.path(), 1 << 30);
    let gate = bucket.gate("get", FIRST);
    let (told, ends) = mpsc::channel();
    for _ in 0..3 {
        let (files, path, told) = (store.env().files, dir.path().join(FIRST), told.clone());
        std::thread::spawn(move || {
            let byte = read(&*files.open(&path, false).unwrap()).unwrap();
            told.send(byte).unwrap();
        });
    }
    gate.wait_for_one();
    let (files, first, second) = (store.env().files, dir.path().join(FIRST), dir.path().join(SECOND));
    let (done, is_done) = mpsc::channel();
    let depot = store.depot();
    std::thread::spawn(move || {
        let open = files.open(&first, false).unwrap();
        assert_eq!(open.len().unwrap(), 1000);
        assert_eq!(read(&*files.open(&second, false).unwrap()).unwrap(), 2);
        drop(open);
        files.remove(&first).unwrap();
        assert!(files.open(&first, false).is_err(), "it is removed for whoever opens it");
        depot.publish(&|| Ok(b"{}".to_vec())).unwrap();
        depot.tend(true);
        done.send(()).unwrap();
    });
    is_done.recv_timeout(LONG).expect("who fetches holds up nobody");
    gate.open();
    for _ in 0..3 {
        assert_eq!(ends.recv_timeout(LONG).unwrap(), 1, "whoever has it open reads it");
    }
    assert_eq!((gate.came(), store.stats().fetches), (1, 2));
    store.depot().tend(false);
    assert!(!bucket.names().contains(&FIRST.to_owned()), "nobody has it open");
}

#[test]
fn what_is_nowhere_is_damage() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let store = with_two_files(&bucket, &Env::real(), dir.path(), 1 << 30);
    let file = store.env().files.open(&dir.path().join(FIRST), false).unwrap();
    bucket.lose(FIRST);
    let error = read(&*file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("the store has lost tables/7/"), "{error}");
    bucket.set(FIRST, b"short");
    let error = read(&*file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("the store has 5 bytes of 1000"), "{error}");
}

#[test]
fn once_a_store_was_given_up_nobody_tries_for_long() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let store = with_two_files(&bucket, &Env::real(), dir.path(), 1 << 30);
    let file = store.env().files.open(&dir.path().join(FIRST), false).unwrap();
    bucket.is_down.store(true, SeqCst);
    assert_eq!(read(&*file).unwrap_err().kind(), ErrorKind::Unavailable);
    for _ in 0..3 {
        let before = bucket.requests();
        assert_eq!(read(&*file).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(bucket.requests() - before, 1);
    }
    bucket.is_down.store(false, SeqCst);
    assert_eq!(read(&*file).unwrap(), 1);
    assert_eq!(store.stats().failing_micros, 0);
}

#[test]
fn while_one_tries_whether_a_store_answers_nobody_else_waits() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let store = with_two_files(&bucket, &Env::real(), dir.path(), 1 << 30);
    let files = store.env().files;
    let [first, second] = [FIRST, SECOND].map(|name| files.open(&dir.path().join(name), false).unwrap());
    bucket.is_down.store(true, SeqCst);
    assert_eq!(read(&*first).unwrap_err().kind(), ErrorKind::Unavailable);
    let gate = bucket.gate("get", FIRST);
    let probing = std::thread::spawn(move || read(&*first));
    gate.wait_for_one();
    let before = bucket.requests();
    let error = read(&*second).unwrap_err();
    assert_eq!((error.kind(), bucket.requests()), (ErrorKind::Unavailable, before));
    assert!(error.to_string().contains(&format!("store memory does not give {SECOND}")), "{error}");
    assert!(error.to_string().contains("a fault of the test's"), "{error}");
    bucket.is_down.store(false, SeqCst);
    gate.open();
    assert_eq!(probing.join().unwrap().unwrap(), 1);
    assert_eq!(read(&*second).unwrap(), 2);
}

/// Files of the folder `dir` that this process has open.
fn open_descriptors(dir: &Path) -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    links.filter(|link| link.starts_with(dir)).count()
}

#[test]
fn what_nobody_has_open_is_not_open() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let store = with_two_files(&bucket, &Env::real(), dir.path(), 1 << 30);
    let open = || store.env().files.open(&dir.path().join(FIRST), false).unwrap();
    let (one, other) = (open(), open());
    assert_eq!((read(&*one).unwrap(), read(&*other).unwrap()), (1, 1));
    drop(one);
    assert_eq!(open_descriptors(dir.path()), 1);
    drop(other);
    assert_eq!(open_descriptors(dir.path()), 0);
    assert_eq!((read(&*open()).unwrap(), store.stats().fetches), (1, 1), "it is here still");
}

/// As files are on a disk that has so many bytes left, and is full for so long.
struct Cramped {
    free: AtomicU64,
    /// Until a file is removed that is not a new one.
    is_full: AtomicBool,
    /// As long as it is set, nothing is written.
    takes_nothing: AtomicBool,
}

impl Cramped {
    fn new(free: u64) -> Arc<Self> {
        let (is_full, takes_nothing) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Cramped { free: AtomicU64::new(free), is_full, takes_nothing })
    }
}

impl Files for Cramped {
    fn create_dir_all(&self, path: &Path) -> IoResult<()> {
        RealFiles.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> IoResult<Vec<String>> {
        RealFiles.list(dir)
    }

    fn create(&self, path: &Path) -> IoResult<Arc<dyn File>> {
        match path.to_string_lossy().ends_with(".fetched.tmp") && self.is_full.load(SeqCst) {
            true => Err(std::io::ErrorKind::StorageFull.into()),
            false => {
                let file = RealFiles.create(path)?;
                if self.takes_nothing.load(SeqCst) { RealFiles.open(path, false) } else { Ok(file) }
            }
        }
    }

    fn open(&self, path: &Path, write: bool) -> IoResult<Arc<dyn File>> {
        RealFiles.open(path, write)
    }

    fn rename(&self, from: &Path, to: &Path) -> IoResult<()> {
        RealFiles.rename(from, to)
    }

    fn remove(&self, path: &Path) -> IoResult<()> {
        RealFiles.remove(path)?;
        self.is_full.store(false, SeqCst);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> IoResult<()> {
        RealFiles.sync_dir(dir)
    }

    fn space(&self, _: &Path) -> IoResult<Option<Space>> {
        Ok(Some(Space { total: 10_000, free: self.free.load(SeqCst) }))
    }

    fn lock(&self, path: &Path, text: &str) -> IoResult<Box<dyn Any + Send + Sync>> {
        RealFiles.lock(path, text)
    }
}

#[test]
fn where_the_disk_is_full_the_cache_makes_room() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let cramped = Cramped::new(5000);
    let env = Env { files: cramped.clone(), ..Env::real() };
    let store = with_two_files(&bucket, &env, dir.path(), 1 << 30);
    let files = store.env().files;
    let [first, second] = [FIRST, SECOND].map(|name| files.open(&dir.path().join(name), false).unwrap());
    assert_eq!(read(&*first).unwrap(), 1);
    assert_eq!(local_files(dir.path()).len(), 1);
    // A disk that is full, whatever it says of its space: what is here goes for what is wanted.
    cramped.is_full.store(true, SeqCst);
    assert_eq!(read(&*second).unwrap(), 2);
    assert_eq!(local_files(dir.path()), [SECOND.rsplit_once('/').unwrap().1]);
    // A tenth of the disk is left to others.
    store.depot().tend(false);
    assert_eq!(local_files(dir.path()).len(), 1);
    cramped.free.store(999, SeqCst);
    store.depot().tend(false);
    assert_eq!(local_files(dir.path()).len(), 0);
    // Others have found it to be full.
    cramped.free.store(5000, SeqCst);
    assert_eq!((read(&*first).unwrap(), read(&*second).unwrap()), (1, 2));
    store.depot().tend(true);
    assert_eq!(local_files(dir.path()).len(), 1);
}

#[test]
fn what_the_folder_does_not_take_says_nothing_of_the_store() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let cramped = Cramped::new(5000);
    let store = with_two_files(&bucket, &Env { files: cramped.clone(), ..Env::real() }, dir.path(), 1 << 30);
    let file = store.env().files.open(&dir.path().join(FIRST), false).unwrap();
    bucket.refuses.store(true, SeqCst);
    assert_eq!(read(&*file).unwrap_err().kind(), ErrorKind::Forbidden);
    bucket.refuses.store(false, SeqCst);
    cramped.takes_nothing.store(true, SeqCst);
    assert_eq!(read(&*file).unwrap_err().kind(), ErrorKind::Internal);
    let stats = store.stats();
    assert!(stats.failing_micros > 0 && stats.failures == 1, "{stats:?}");
    cramped.takes_nothing.store(false, SeqCst);
    assert_eq!(read(&*file).unwrap(), 1);
    assert_eq!(store.stats().failing_micros, 0);
}

#[test]
fn a_guest_leaves_the_folder_of_a_running_server_as_it_is() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let owner = with_two_files(&bucket, &Env::real(), dir.path(), 1 << 30);
    let files = owner.env().files;
    let [first, second] = [FIRST, SECOND].map(|name| dir.path().join(name));
    assert_eq!(read(&*files.open(&first, false).unwrap()).unwrap(), 1);
    let fetched = PathBuf::from(format!("{}.fetched.tmp", second.display()));
    std::fs::write(&fetched, b"half").unwrap();
    let guest = store_of(&bucket, &Env::real(), dir.path(), 1);
    guest.look().unwrap();
    guest.depot().tend(true);
    assert!(first.exists() && fetched.exists());
    let files = guest.env().files;
    assert_eq!(read(&*files.open(&first, false).unwrap()).unwrap(), 1);
    for refused in [
        files.remove(&first),
        files.rename(&fetched, &second),
        files.create(&dir.path().join("tables/7/0000000100000003.parquet")).map(drop),
        files.keep(&first, &first),
    ] {
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    }
    // What the owner has added since.
    let third = "tables/7/0000000100000004.parquet";
    bucket.set(third, &[4; 1000]);
    assert_eq!(read(&*files.open(&dir.path().join(third), false).unwrap()).unwrap(), 4);
    guest.depot().tend(false);
    assert!(first.exists() && !dir.path().join(third).exists(), "only what it has fetched goes");
    // An owner who opens the folder removes what is half fetched.
    std::fs::write(&fetched, b"half").unwrap();
    store_of(&bucket, &Env::real(), dir.path(), 1 << 30).depot().claim().unwrap();
    assert!(!fetched.exists());
}

#[test]
fn a_guest_finds_what_comes_later_and_forgets_what_has_gone() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    bucket.set(FIRST, &[1; 1000]);
    let guest = store_of(&bucket, &Env::real(), dir.path(), 1 << 30);
    guest.look().unwrap();
    let open = |name: &str| guest.env().files.open(&dir.path().join(name), false);
    assert_eq!(read(&*open(FIRST).unwrap()).unwrap(), 1);
    assert_eq!(open(SECOND).map(drop).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    bucket.set(SECOND, &[2; 500]);
    bucket.lose(FIRST);
    assert_eq!(open(SECOND).unwrap().len().unwrap(), 500, "it is there by now");
    assert_eq!(guest.stats().cache_bytes, 0);
    assert_eq!(open(FIRST).map(drop).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert!(local_files(dir.path()).is_empty());
}

#[test]
fn nothing_more_is_removed_while_the_store_removes_nothing() {
    let (bucket, dir) = (Arc::<Memory>::default(), tempfile::tempdir().unwrap());
    let watch = Arc::new(Watch(AtomicU64::new(1)));
    let env = Env { clock: watch.clone(), ..Env::real() };
    let store = with_two_files(&bucket, &env, dir.path(), 1 << 30);
    let files = store.env().files;
    for name in [FIRST, SECOND] {
        files.remove(&dir.path().join(name)).unwrap();
    }
    bucket.keeps_all.store(true, SeqCst);
    let depot = store.depot();
    depot.publish(&|| Ok(b"{}".to_vec())).unwrap();
    assert_eq!(store.stats().retries, 1, "it ends with the first, which is asked for once");
    assert_eq!(bucket.ending(".parquet").len(), 2);
    depot.check().unwrap();
    bucket.keeps_all.store(false, SeqCst);
    let before = bucket.requests();
    watch.0.fetch_add(9_000_000, SeqCst);
    depot.tend(false);
    assert_eq!(bucket.requests(), before, "nothing is asked for so soon");
    watch.0.fetch_add(2_000_000, SeqCst);
    depot.tend(false);
    assert_eq!(bucket.ending(".parquet").len(), 0);
}

/// Time goes on by itself only where the test says.
struct Watch(AtomicU64);

impl Clock for Watch {
    fn now_micros(&self) -> u64 {
        self.0.load(SeqCst)
    }

    fn monotonic_micros(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

/// Gives and takes objects slowly: each attempt takes longer than a request may fail, and the third succeeds.
struct Slow {
    memory: Memory,
    watch: Arc<Watch>,
    attempts: AtomicU64,
    /// Whether bytes move in that time.
    moves: bool,
}

impl Slow {
    fn attempt(&self) -> Result<()> {
        match (self.attempts.fetch_add(1, SeqCst) + 1) % 3 {
            0 => Ok(()),
            _ => Err(Error::unavailable("it broke off")),
        }
    }

    fn pass_time(&self) {
        self.watch.0.fetch_add(2 * PATIENCE.limit.as_micros() as u64, SeqCst);
    }
}

impl Bucket for Slow {
    fn url(&self) -> &str {
        "slow"
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        self.memory.list(folder)
    }

    fn get(&self, name: &str, sink: &mut Sink<'_>) -> Result<String> {
        if name == oribi_store::MANIFEST {
            return self.memory.get(name, sink);
        }
        if self.moves {
            self.pass_time();
            sink(&[0], 0)?;
        } else {
            sink(&[0], 0)?;
            self.pass_time();
        }
        self.attempt()?;
        self.memory.get(name, sink)
    }

    fn tag(&self, name: &str) -> Result<String> {
        self.memory.tag(name)
    }

    fn put(&self, name: &str, body: Body<'_>, expected: Expected<'_>) -> Result<String> {
        if name.ends_with(".parquet") {
            body.read(&mut |_| {
                self.pass_time();
                Ok(())
            })?;
            self.attempt()?;
        }
        self.memory.put(name, body, expected)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.memory.remove(name)
    }
}

#[test]
fn the_time_in_which_bytes_move_does_not_count() {
    for moves in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let watch = Arc::new(Watch(AtomicU64::new(1)));
        let memory = Memory::default();
        memory.set(SECOND, &[2; 1000]);
        let bucket = Arc::new(Slow { memory, watch: watch.clone(), attempts: AtomicU64::new(0), moves });
        let env = Env { clock: watch, ..Env::real() };
        let guest = Store::new(bucket.clone(), &env, dir.path(), options(1 << 30));
        guest.look().unwrap();
        let got = read(&*guest.env().files.open(&dir.path().join(SECOND), false).unwrap());
        assert_eq!(got.is_ok(), moves, "{got:?}");
        bucket.memory.lose(SECOND);
        bucket.attempts.store(0, SeqCst);
        let owner = Store::new(bucket.clone(), &env, dir.path(), options(1 << 30));
        owner.depot().claim().unwrap();
        let files = owner.env().files;
        let (path, new) = (dir.path().join(FIRST), dir.path().join(format!("{FIRST}.tmp")));
        files.create(&new).unwrap().write_at(&[1; 1000], 0).unwrap();
        files.keep(&new, &path).unwrap();
        assert_eq!(bucket.attempts.load(SeqCst), 3);
    }
}
