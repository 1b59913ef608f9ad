//! What it takes to build a batch of a million operations, to make of it the bytes that are sent, and to take it down, in
//! three layouts:
//!
//! - `objects`: each operation an object on the heap with a row that has buffers of its own, as in Kudu's C++ client;
//! - `arena of objects`: the operations one behind the other, their rows and strings in a second piece of memory;
//! - `batch`: this client's.
//!
//! The rows are those of `perf loadgen`: a bigint key, an integer and 32 bytes of text, spread over eight tablets.
// Prefetching takes an intrinsic.
#![allow(unsafe_code)]

use criterion::{Bencher, Criterion, Throughput, criterion_group, criterion_main};
use oribi_client::batch::{Batch, BuiltRow, SealedBatch};
use oribi_kudu::column::WireColumn;
use oribi_kudu::row_operations::OperationLayout;
use oribi_types::ColumnType;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// That of the binary, which is quicker with small objects than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OPERATIONS: u64 = 1_000_000;
const TABLETS: usize = 8;
const TEXT: &str = "thirty-two bytes of text as text";

/// What every operation refers to.
struct Table {
    _name: String,
}

/// An operation under way: which tablet it goes to, and in which state it is.
struct InFlight {
    operation: Box<Operation>,
    _state: u64,
}

struct Operation {
    _table: Arc<Table>,
    row: Row,
}

struct Row {
    /// Bitmaps and cells.
    cells: Box<[u8]>,
    text: Box<str>,
}

type Objects = Vec<Vec<Box<InFlight>>>;

/// One operation of an arena: where its row and its text are.
struct Placed {
    _table: Arc<Table>,
    row: (usize, usize),
    text: (usize, usize),
}

#[derive(Default)]
struct Arena {
    operations: Vec<Placed>,
    bytes: Vec<u8>,
}

/// The cells of a row as they are sent, but for the place of the text.
fn cells(key: u64) -> [u8; 31] {
    let mut cells = [0; 31];
    cells[..3].copy_from_slice(&[1, 0b111, 0]);
    cells[3..11].copy_from_slice(&key.to_le_bytes());
    cells[11..15].copy_from_slice(&(key as u32).to_le_bytes());
    cells
}

fn tablet(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61) as usize
}

fn table() -> Arc<Table> {
    Arc::new(Table { _name: "loadgen".to_owned() })
}

fn build_objects() -> Objects {
    let table = table();
    let mut batches: Objects = (0..TABLETS).map(|_| Vec::new()).collect();
    for key in 0..OPERATIONS {
        let row = Row { cells: Box::from(cells(key)), text: TEXT.into() };
        let operation = Box::new(Operation { _table: table.clone(), row });
        batches[tablet(key)].push(Box::new(InFlight { operation, _state: 0 }));
    }
    batches
}

fn build_arenas() -> Vec<Arena> {
    let table = table();
    let mut batches: Vec<Arena> = (0..TABLETS).map(|_| Arena::default()).collect();
    for key in 0..OPERATIONS {
        let batch = &mut batches[tablet(key)];
        let start = batch.bytes.len();
        batch.bytes.extend_from_slice(&cells(key));
        let middle = batch.bytes.len();
        batch.bytes.extend_from_slice(TEXT.as_bytes());
        let (row, text) = ((start, middle), (middle, batch.bytes.len()));
        batch.operations.push(Placed { _table: table.clone(), row, text });
    }
    batches
}

fn build_batches(layout: &OperationLayout) -> Vec<Batch> {
    let mut batches: Vec<Batch> = (0..TABLETS).map(|_| Batch::default()).collect();
    for key in 0..OPERATIONS {
        let row = BuiltRow { layout, cells: &cells(key), values: 3, strings: &[(2, TEXT.as_bytes())] };
        batches[tablet(key)].append(row);
    }
    batches
}

fn layout() -> OperationLayout {
    OperationLayout::new(vec![
        WireColumn::new("key", ColumnType::Int64, false),
        WireColumn::new("int_val", ColumnType::Int32, true),
        WireColumn::new("string_val", ColumnType::String, true),
    ])
}

/// The two byte strings of a write, encoded row by row.
fn encode<'r>(rows: impl Iterator<Item = (&'r [u8], &'r [u8])>) -> (Vec<u8>, Vec<u8>) {
    let (mut out, mut indirect) = (Vec::new(), Vec::new());
    for (cells, text) in rows {
        let start = out.len();
        out.extend_from_slice(cells);
        out[start + 15..start + 23].copy_from_slice(&(indirect.len() as u64).to_le_bytes());
        out[start + 23..start + 31].copy_from_slice(&(text.len() as u64).to_le_bytes());
        indirect.extend_from_slice(text);
    }
    (out, indirect)
}

fn encode_objects(batches: &Objects) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = |batch: &'_ [Box<InFlight>]| {
        encode(batch.iter().map(|object| {
            let row = &object.operation.row;
            (&*row.cells, row.text.as_bytes())
        }))
    };
    batches.iter().map(|batch| rows(batch)).collect()
}

fn encode_arenas(batches: &[Arena]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let encode_one = |arena: &Arena| {
        let part = |(start, end): (usize, usize)| &arena.bytes[start..end];
        encode(arena.operations.iter().map(|placed| (part(placed.row), part(placed.text))))
    };
    batches.iter().map(encode_one).collect()
}

/// Has the processor fetch the memory at `address` while it does something else.
fn prefetch<T: ?Sized>(address: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing; it is harmless with any address, and this one is valid.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(address).cast::<i8>());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Takes objects down while those that come next are on their way: first an object, then what it points to, then what that
/// points to, because each is found through the one before it.
fn destroy_with_prefetch(batches: Objects) {
    const AHEAD: usize = 4;
    for batch in batches {
        let mut objects = batch.into_iter();
        while let Some(object) = objects.next() {
            let rest = objects.as_slice();
            if let Some(next) = rest.get(3 * AHEAD) {
                prefetch(&**next);
            }
            if let Some(next) = rest.get(2 * AHEAD) {
                prefetch(&*next.operation);
            }
            if let Some(next) = rest.get(AHEAD) {
                prefetch(&*next.operation.row.cells);
                prefetch(&*next.operation.row.text);
            }
            drop(object);
        }
    }
}

/// Times only what `measured` does with what `prepare` made.
fn timed<P, R>(b: &mut Bencher<'_>, mut prepare: impl FnMut() -> P, measured: impl Fn(P) -> R) {
    b.iter_custom(|iterations| {
        let mut total = Duration::ZERO;
        for _ in 0..iterations {
            let prepared = black_box(prepare());
            let started = Instant::now();
            let result = measured(prepared);
            total += started.elapsed();
            black_box(result);
        }
        total
    });
}

fn benchmark(c: &mut Criterion) {
    let layout = layout();
    let mut group = c.benchmark_group("build");
    group.throughput(Throughput::Elements(OPERATIONS)).sample_size(10);
    group.bench_function("objects", |b| timed(b, || (), |()| build_objects()));
    group.bench_function("arena of objects", |b| timed(b, || (), |()| build_arenas()));
    group.bench_function("batch", |b| timed(b, || (), |()| build_batches(&layout)));
    group.finish();

    let mut group = c.benchmark_group("hand over");
    group.throughput(Throughput::Elements(OPERATIONS)).sample_size(10);
    let with = |batches| (encode_objects(&batches), batches);
    group.bench_function("objects", |b| timed(b, build_objects, with));
    let with = |batches: Vec<Arena>| (encode_arenas(&batches), batches);
    group.bench_function("arena of objects", |b| timed(b, build_arenas, with));
    let seal = |batches: Vec<Batch>| batches.into_iter().map(Batch::seal).collect::<Vec<SealedBatch>>();
    group.bench_function("batch", |b| timed(b, || build_batches(&layout), seal));
    group.finish();

    let mut group = c.benchmark_group("take down");
    group.throughput(Throughput::Elements(OPERATIONS)).sample_size(10);
    group.bench_function("objects", |b| timed(b, build_objects, drop));
    group.bench_function("objects, with prefetch", |b| timed(b, build_objects, destroy_with_prefetch));
    group.bench_function("arena of objects", |b| timed(b, build_arenas, drop));
    group.bench_function("batch", |b| timed(b, || build_batches(&layout), drop));
    let clear = |mut batches: Vec<Batch>| {
        batches.iter_mut().for_each(Batch::clear);
        batches
    };
    group.bench_function("batch, whose memory is used again", |b| timed(b, || build_batches(&layout), clear));
    group.finish();
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
