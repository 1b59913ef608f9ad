//! Reading a document that is in memory: no allocation, and no copy but the caller's.
#![allow(clippy::unwrap_used)]

use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_session::kv::{Action, Change, Expiry, Got, KeyValue, KvLimits, StoreMode};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
            let before = ALLOCATIONS.get();
            let got = kv.round(false).get(key, |document| document.value.len() + document.flags as usize);
            let allocations = ALLOCATIONS.get() - before;
            assert_eq!(got.unwrap(), Got::Found(103));
            assert!(allocations <= allowed, "{allocations} allocations");
        }
    }
    engine.close().unwrap();
}
