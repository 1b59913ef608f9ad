//! Reading a document that is in memory: no allocation, and no copy but the caller's.
#![allow(clippy::unwrap_used)]

use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_session::kv::{Action, Change, Expiry, Got, KeyValue, KvLimits, StoreMode};
use oribi_testing::allocations::{self, CountingAllocator};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn neither_for_plain_keys_nor_for_keys_with_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(Env::real(), dir.path(), EngineOptions::default()).unwrap();
    let kv = KeyValue::new(engine.clone(), KvLimits::default());
    let store = Action::Store {
        mode: StoreMode::Set,
        value: &[7; 100],
        flags: 3,
        expiry: Expiry::At(1 << 60),
        or_stale: false,
    };
    kv.round(true).apply(&[Change { key: b"user/42/profile".into(), cas: None, action: store }]).unwrap();
    for key in [&b"user/42/profile"[..], b"default/kv/user/42/profile"] {
        // The first read may set up what the thread keeps.
        for allowed in [u64::MAX, 0, 0] {
            let before = allocations::of_this_thread();
            let got = kv.round(false).get(key, |document| document.value.len() + document.flags as usize);
            let allocations = allocations::of_this_thread() - before;
            assert_eq!(got.unwrap(), Got::Found(103));
            assert!(allocations <= allowed, "{allocations} allocations");
        }
    }
    engine.close().unwrap();
}
