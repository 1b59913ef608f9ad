//! A master and a tablet server in one, that does to its clients whatever a test says.
//!
//! It has one table, `t`: key bigint, version bigint, text. It executes every write once, by its request id, and remembers
//! all that it wrote.
#![allow(dead_code)]

mod answers;

use bytes::{Bytes, BytesMut};
use oribi_kudu::frame::{self, Body, FRAME_BYTES_MAX};
use oribi_kudu::messages::common::HostPort;
use oribi_kudu::negotiation::{Progress, ServerNegotiation, TlsPolicy};
use oribi_kudu::partition::{Partition, PartitionSchema, Range};
use oribi_kudu::rpc::RequestHeader;
use oribi_kudu::service::{Method, TabletServerMethod};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

/// What happens to a write or a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// SERVER_TOO_BUSY.
    Busy,
    /// TABLET_NOT_FOUND.
    NotFound,
    /// The connection is closed before the call is executed, or after, or in the middle of its answer.
    DropBefore,
    DropAfter,
    HalfAnswer,
    /// Other answers come first.
    Late,
}

pub struct FakeServer {
    pub address: String,
    pub shared: Arc<Shared>,
}

pub struct Shared {
    pub state: Mutex<State>,
    /// Writes are answered only while this is open.
    pub gate: tokio::sync::watch::Sender<bool>,
    pub partition_schema: PartitionSchema,
    pub address: HostPort,
    sent: Notify,
}

pub struct State {
    pub partitions: Vec<Partition>,
    /// Part of the ids of tablets.
    pub generation: u32,
    /// By key: all versions that were written, in order, with the latest text.
    pub rows: BTreeMap<i64, (Vec<i64>, Option<String>)>,
    pub faults: VecDeque<Fault>,
    pub look_ups: usize,
    pub writes: usize,
    pub bytes_under_way: usize,
    pub bytes_under_way_max: usize,
    /// By tablet, and what was ever seen at once.
    pub under_way: HashMap<Bytes, usize>,
    pub under_way_max: usize,
    /// What no client should have done.
    pub complaints: Vec<String>,
    pub scans: Vec<oribi_kudu::messages::tserver::NewScanRequest>,
    pub scanners: HashMap<Bytes, answers::OpenScanner>,
    pub keep_alives: usize,
    pub rows_per_answer: usize,
    results: HashMap<(Bytes, i64), Vec<u8>>,
}

/// An answer: the bytes of its frame.
type Answer = Vec<u8>;

impl FakeServer {
    /// A server whose table is hashed into `buckets`, if there are any, within `ranges` of keys.
    pub async fn start(buckets: u32, ranges: &[(Option<i64>, Option<i64>)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let partition_schema = answers::partition_schema(buckets, !ranges.is_empty());
        let state = State {
            partitions: partitions(&partition_schema, ranges),
            generation: 0,
            rows: BTreeMap::new(),
            faults: VecDeque::new(),
            look_ups: 0,
            writes: 0,
            bytes_under_way: 0,
            bytes_under_way_max: 0,
            under_way: HashMap::new(),
            under_way_max: 0,
            complaints: Vec::new(),
            scans: Vec::new(),
            scanners: HashMap::new(),
            keep_alives: 0,
            rows_per_answer: 100,
            results: HashMap::new(),
        };
        let host = HostPort { host: address.ip().to_string(), port: address.port().into() };
        let gate = tokio::sync::watch::Sender::new(true);
        let state = Mutex::new(state);
        let shared = Shared { state, gate, partition_schema, address: host, sent: Notify::new() };
        let shared = Arc::new(shared);
        tokio::spawn(accept(listener, shared.clone()));
        FakeServer { address: address.to_string(), shared }
    }

    pub async fn client(&self) -> oribi_client::Client {
        oribi_client::Client::connect(&[&self.address]).await.unwrap()
    }

    /// Has other tablets from now on, all with new ids. Rows stay.
    pub fn repartition(&self, ranges: &[(Option<i64>, Option<i64>)]) {
        let mut state = self.state();
        state.partitions = partitions(&self.shared.partition_schema, ranges);
        state.generation += 1;
    }

    pub fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.shared.state.lock()
    }
}

fn partitions(schema: &PartitionSchema, ranges: &[(Option<i64>, Option<i64>)]) -> Vec<Partition> {
    let bound =
        |bound: &Option<i64>| bound.map_or(Vec::new(), |v| ((v as u64) ^ (1 << 63)).to_be_bytes().into());
    let mut wanted: Vec<Range> =
        ranges.iter().map(|(lower, upper)| Range { lower: bound(lower), upper: bound(upper) }).collect();
    if wanted.is_empty() {
        wanted.push(Range::default());
    }
    schema.partitions(&wanted).unwrap()
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            // A connection that breaks is the client's to notice.
            let _ = serve(stream, shared).await;
        });
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) -> std::io::Result<()> {
    let mut input = BytesMut::new();
    while !frame::hello::decode(&mut input).unwrap() {
        stream.read_buf(&mut input).await?;
    }
    let mut negotiation = ServerNegotiation::new(TlsPolicy::Declined, true);
    loop {
        let Some(frame) = frame::decode(&mut input, FRAME_BYTES_MAX).unwrap() else {
            if stream.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
            continue;
        };
        let mut out = BytesMut::new();
        match negotiation.advance(frame, &mut out).unwrap() {
            Progress::Verdict(_) => negotiation.accept(&mut out),
            Progress::Done => break,
            _ => {}
        }
        stream.write_all(&out).await?;
    }
    let (mut read_half, mut write_half) = stream.into_split();
    let (sender, mut answers) = mpsc::unbounded_channel::<(Answer, bool)>();
    let sent = shared.clone();
    let writing = tokio::spawn(async move {
        while let Some((answer, is_last)) = answers.recv().await {
            if write_half.write_all(&answer).await.is_err() || is_last {
                break;
            }
            sent.sent.notify_waiters();
        }
    });
    loop {
        while let Some(frame) = frame::decode(&mut input, FRAME_BYTES_MAX).unwrap() {
            let (header, body) = frame.open::<RequestHeader>().unwrap();
            let fault = handle(&shared, header, body, &sender);
            if matches!(fault, Fault::DropBefore | Fault::DropAfter | Fault::HalfAnswer) {
                drop(sender);
                let _ = writing.await;
                return Ok(());
            }
        }
        if read_half.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
}

fn handle(
    shared: &Arc<Shared>,
    header: RequestHeader,
    body: Body,
    sender: &mpsc::UnboundedSender<(Answer, bool)>,
) -> Fault {
    let method = Method::of(header.remote_method.as_ref().unwrap()).unwrap();
    let mut state = shared.state.lock();
    let (fault, answer) = match method {
        Method::Master(method) => {
            (Fault::None, answers::of_master(shared, &mut state, method, &header, &body))
        }
        Method::TabletServer(TabletServerMethod::ScannerKeepAlive) => {
            (Fault::None, answers::keep_alive(&mut state, &header, &body))
        }
        Method::TabletServer(method) => {
            let fault = state.faults.pop_front().unwrap_or(Fault::None);
            let answer = match (fault, method) {
                (Fault::DropBefore, _) => Vec::new(),
                (Fault::Busy, _) => answers::busy(&header),
                (Fault::NotFound, TabletServerMethod::Write) => answers::write_not_found(&header),
                (Fault::NotFound, _) => answers::scan_not_found(&header),
                (_, TabletServerMethod::Write) => answers::write(shared, &mut state, &header, &body),
                (_, _) => answers::scan(shared, &mut state, &header, &body),
            };
            (fault, answer)
        }
        other => panic!("{other:?}"),
    };
    let is_write = matches!(method, Method::TabletServer(TabletServerMethod::Write));
    let tablet = is_write.then(|| {
        let request: oribi_kudu::messages::tserver::WriteRequest = body.decode(1000).unwrap();
        let bytes = body.message.len();
        state.bytes_under_way += bytes;
        state.bytes_under_way_max = state.bytes_under_way_max.max(state.bytes_under_way);
        let under_way = state.under_way.entry(request.tablet_id.clone()).or_default();
        *under_way += 1;
        let under_way = *under_way;
        state.under_way_max = state.under_way_max.max(under_way);
        (request.tablet_id, bytes)
    });
    drop(state);
    let done = move |shared: &Shared| {
        if let Some((tablet, bytes)) = tablet {
            let mut state = shared.state.lock();
            state.bytes_under_way -= bytes;
            *state.under_way.get_mut(&tablet).unwrap() -= 1;
        }
    };
    match fault {
        Fault::DropBefore | Fault::DropAfter => {
            done(shared);
            // Nothing more goes out.
            let _ = sender.send((Vec::new(), true));
        }
        Fault::HalfAnswer => {
            done(shared);
            let _ = sender.send((answer[..answer.len() / 2].to_vec(), true));
        }
        _ => {
            let (shared, sender) = (shared.clone(), sender.clone());
            let mut gate = shared.gate.subscribe();
            tokio::spawn(async move {
                if fault == Fault::Late {
                    // Until another answer was sent; or, if there is none to come, for a moment.
                    let _ = tokio::time::timeout(std::time::Duration::from_millis(5), shared.sent.notified())
                        .await;
                }
                if is_write {
                    gate.wait_for(|is_open| *is_open).await.unwrap();
                }
                done(&shared);
                let _ = sender.send((answer, false));
            });
        }
    }
    fault
}
