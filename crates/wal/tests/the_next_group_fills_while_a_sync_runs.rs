//! Group commit: no append and no write waits for an fdatasync, and one fdatasync serves all that came meanwhile.
#![allow(clippy::unwrap_used)]

use oribi_env::{Env, File, Files};
use oribi_sim::{SimClock, SimFiles};
use oribi_wal::{LocalLog, Log, LogOptions};
use parking_lot::{Condvar, Mutex};
use std::any::Any;
use std::io::Result;
use std::path::Path;
use std::sync::Arc;

/// Holds every sync of a file until it is let go, and counts them.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    closed: bool,
    waiting: bool,
    passed: u64,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock();
        state.waiting = true;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| state.closed);
        state.waiting = false;
        state.passed += 1;
    }

    fn set_closed(&self, closed: bool) {
        self.state.lock().closed = closed;
        self.changed.notify_all();
    }

    fn wait_until_somebody_waits(&self) {
        self.changed.wait_while(&mut self.state.lock(), |state| !state.waiting);
    }
}

struct GatedFiles(SimFiles, Arc<Gate>);

impl GatedFiles {
    fn gated(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(GatedFile(file, self.1.clone()))
    }
}

impl Files for GatedFiles {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.0.create_dir_all(path)
    }
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.0.list(dir)
    }
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.0.create(path).map(|file| self.gated(file))
    }
    fn open(&self, path: &Path, write: bool) -> Result<Arc<dyn File>> {
        self.0.open(path, write).map(|file| self.gated(file))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.0.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.0.sync_dir(dir)
    }
    fn lock(&self, path: &Path, text: &str) -> Result<Box<dyn Any + Send + Sync>> {
        self.0.lock(path, text)
    }
}

struct GatedFile(Arc<dyn File>, Arc<Gate>);

impl File for GatedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.0.write_at(bytes, offset)
    }
    fn sync(&self) -> Result<()> {
        self.1.pass();
        self.0.sync()
    }
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
    fn allocate(&self, len: u64) -> Result<()> {
        self.0.allocate(len)
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }
}

#[test]
fn the_next_group_fills_while_a_sync_runs() {
    let gate = Arc::new(Gate::default());
    let files = GatedFiles(SimFiles::new(), gate.clone());
    let env = Env { files: Arc::new(files), clock: Arc::new(SimClock::new()) };
    let log = LocalLog::open(&env, Path::new("/log"), LogOptions::default(), &mut |_| Ok(())).unwrap();
    let append = || log.append(0, &mut |_, buf| buf.extend_from_slice(b"record")).unwrap();
    // The next segment is prepared before the first sync.
    log.wait_durable(append()).unwrap();

    gate.set_closed(true);
    log.request_durable(append()).unwrap();
    gate.wait_until_somebody_waits();
    let passed = gate.state.lock().passed;
    for _ in 0..100 {
        let lsn = append();
        log.write_out().unwrap();
        log.request_durable(lsn).unwrap();
        assert_eq!((log.written(), log.durable()), (lsn, 1), "written, and not promised before it is synced");
    }
    gate.set_closed(false);
    log.wait_durable(log.appended()).unwrap();
    assert_eq!(
        gate.state.lock().passed,
        passed + 2,
        "one sync for the first and one for all that came meanwhile"
    );
}
