use super::*;
use crate::exchange::RECEIVE_BYTES_MAX_IF_SCARCE;
use oribi_types::Result;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// A store of nothing: what rests on a number is settled once that has come so far, and there is room for writes unless it is the
/// highest.
pub(crate) struct Nothing(pub watch::Sender<u64>);

const FULL: u64 = u64::MAX;

impl Store for Nothing {
    type Obligation = u64;

    fn both(one: u64, other: u64) -> u64 {
        one.max(other)
    }

    fn is_settled(&self, number: u64) -> bool {
        number <= *self.0.borrow()
    }

    async fn settled(&self, number: u64) -> Result<()> {
        drop(self.0.subscribe().wait_for(|settled| *settled >= number).await);
        Ok(())
    }

    fn admits(&self) -> bool {
        *self.0.borrow() < FULL
    }

    async fn admission(&self) {
        drop(self.0.subscribe().wait_for(|settled| *settled < FULL).await);
    }

    async fn turn(&self, _tries: u32) {
        tokio::task::yield_now().await;
    }
}

/// Answers each byte with the number of the thread that serves it.
struct Numbers {
    store: Nothing,
    traffic: Arc<Traffic>,
    computing: Arc<Computing>,
    long: Arc<Long>,
    loads: Loads,
    pushes: watch::Sender<u64>,
}

struct Number {
    thread: u8,
    /// What has come of a long request.
    begun: usize,
    had_turn: bool,
    long: Arc<Long>,
    computing: Arc<Computing>,
}

/// Bytes of long requests that have come, and how many that were at a time.
#[derive(Default)]
struct Long {
    now: AtomicUsize,
    most: AtomicUsize,
    /// Long answers that were made.
    answers: AtomicUsize,
}

/// How many compute, and how many did at a time.
#[derive(Default)]
struct Computing {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// The first byte of a long request and its last, see [`answer_to`].
const BEGIN: u8 = 253;
const END: u8 = 252;

/// A byte that asks for a long answer.
const LONG: u8 = 251;

/// A byte that asks for what computes, and its answer if that was on a thread that serves nobody.
const COMPUTE: u8 = 255;
const ELSEWHERE: u8 = 254;

/// A byte that asks for a long answer too, which others hold up once there is room for it.
const CONTENDED: u8 = 247;

/// A byte that asks whether it is served aside.
const WHERE: u8 = 250;
/// A byte that there is no answer to.
const PANIC: u8 = 249;
/// What is said without having been asked for.
const PUSHED: u8 = 248;
/// A byte whose answer rests on what a test settles.
const OWED: u8 = 246;
/// A byte that writes, and its answer.
const WRITE: u8 = 245;

impl Service for Numbers {
    type Store = Nothing;
    type Protocol = Number;
    const NAME: &'static str = "numbers";
    const TOO_MANY: &'static [u8] = b"full";

    fn store(&self) -> &Nothing {
        &self.store
    }

    fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    fn loads(&self) -> &Loads {
        &self.loads
    }

    fn pushes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.pushes.subscribe())
    }

    fn open(&self, thread: usize, _link: Link) -> Number {
        let (computing, long) = (self.computing.clone(), self.long.clone());
        Number { thread: thread as u8, begun: 0, had_turn: false, long, computing }
    }
}

impl Protocol for Number {
    type Obligation = u64;

    fn advance(&mut self, exchange: &mut Exchange<u64>, mut leave: Leave) -> Progress {
        while exchange.input.first() == Some(&COMPUTE) {
            if !std::mem::take(&mut leave.to_compute) {
                return Progress::NeedsProcessor;
            }
            exchange.input.advance(1);
            exchange.output.push(self.computing.run());
        }
        if matches!(exchange.input.first(), Some(&(LONG | CONTENDED))) {
            if leave.to_answer < ANSWER_BYTES {
                return Progress::NeedsRoom(ANSWER_BYTES);
            }
            if exchange.input[0] == CONTENDED && !std::mem::replace(&mut self.had_turn, true) {
                return Progress::NeedsTurn;
            }
            self.long.answers.fetch_add(1, Ordering::SeqCst);
            exchange.input.advance(1);
            exchange.output.resize(ANSWER_BYTES, self.thread);
        }
        if exchange.input.first() == Some(&WRITE) {
            if !leave.to_write {
                return Progress::NeedsAdmission;
            }
            exchange.input.advance(1);
            exchange.output.push(WRITE);
        }
        while exchange.input.first() == Some(&BEGIN) {
            let Some(end) = exchange.input[self.begun..].iter().position(|byte| *byte == END) else {
                self.come(exchange.input.len());
                return Progress::Done;
            };
            let end = self.begun + end + 1;
            exchange.output.extend(answer_to(&exchange.input[..end]));
            exchange.input.advance(end);
            self.come(0);
        }
        if exchange.input.first() == Some(&WHERE) {
            exchange.input.advance(1);
            exchange.output.push(thread_name_ends("-aside").into());
        }
        if exchange.input.first() == Some(&OWED) {
            exchange.obligation = 1;
        }
        assert_ne!(exchange.input.first(), Some(&PANIC), "a client of a test asks for it");
        // Zeros ask for what may block.
        if exchange.input.contains(&0) && !leave.to_block {
            return Progress::NeedsBlocking;
        }
        exchange.output.resize(exchange.output.len() + exchange.input.len(), self.thread);
        exchange.input.clear();
        Progress::Done
    }

    fn push(&mut self, exchange: &mut Exchange<u64>) {
        exchange.output.push(PUSHED);
    }
}

fn thread_name_ends(end: &str) -> bool {
    std::thread::current().name().is_some_and(|name| name.ends_with(end))
}

impl Number {
    fn come(&mut self, bytes: usize) {
        self.long.now.fetch_sub(std::mem::replace(&mut self.begun, bytes), Ordering::SeqCst);
        let now = self.long.now.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.long.most.fetch_max(now, Ordering::SeqCst);
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.come(0);
    }
}

/// What a long request is answered: something that rests on each of its bytes.
fn answer_to(request: &[u8]) -> [u8; 8] {
    let sum = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    request.iter().fold(0xcbf2_9ce4_8422_2325, sum).to_le_bytes()
}

/// A long request that has so many bytes between its first and its last, others for each client.
fn long_request(client: usize, bytes: usize) -> Vec<u8> {
    let between = (0..bytes).map(|i| ((i * 31 + i / 256 + client) % usize::from(END)) as u8);
    [BEGIN].into_iter().chain(between).chain([END]).collect()
}

impl Computing {
    fn run(&self) -> u8 {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        (0..3).for_each(|_| std::thread::yield_now());
        self.now.fetch_sub(1, Ordering::SeqCst);
        if thread_name_ends("-wait") { ELSEWHERE } else { 0 }
    }
}

/// A running door of three threads, and what it counts.
struct Subject {
    door: Door,
    traffic: Arc<Traffic>,
    computing: Arc<Computing>,
    long: Arc<Long>,
    requests: Arc<Room>,
    shutdown: watch::Sender<bool>,
    pushes: watch::Sender<u64>,
    settled: watch::Sender<u64>,
}

const THREADS: usize = 3;
/// For long requests, and for one of them at a time apart.
const ROOM_BYTES: usize = 2 << 20;
const TURN_BYTES: usize = 4 << 20;
/// Of a long answer: more than sockets hold. There is room for two, and for one that has the turn.
const ANSWER_BYTES: usize = 24 << 20;

impl Subject {
    fn new(limits: ClientLimits) -> Self {
        let traffic = Traffic::new("numbers", THREADS);
        let (shutdown, shut) = watch::channel(false);
        let computing = Arc::<Computing>::default();
        let long = Arc::<Long>::default();
        let pushes = watch::Sender::new(0);
        let settled = watch::Sender::new(0);
        let requests = Room::new(ROOM_BYTES);
        let service = Numbers {
            store: Nothing(settled.clone()),
            traffic: traffic.clone(),
            computing: computing.clone(),
            long: long.clone(),
            loads: Loads {
                requests: Arc::new(Load::new(&requests, TURN_BYTES)),
                answers: Arc::new(Load::new(&Room::new(2 * ANSWER_BYTES), ANSWER_BYTES)),
            },
            pushes: pushes.clone(),
        };
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let door = Door::serve(service, socket, limits, shut).unwrap();
        Subject { door, traffic, computing, long, requests, shutdown, pushes, settled }
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.door.local_addr()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket
    }

    /// A client, and the number of the thread that serves it.
    fn welcomed(&self) -> (TcpStream, usize) {
        let mut socket = self.connect();
        let thread = ask(&mut socket, 1);
        (socket, thread)
    }

    fn end(self) {
        self.shutdown.send_replace(true);
        tokio::runtime::Runtime::new().unwrap().block_on(self.door.join()).unwrap();
        assert_eq!(self.traffic.open(), 0);
    }
}

fn ask(socket: &mut TcpStream, byte: u8) -> usize {
    socket.write_all(&[byte]).unwrap();
    let mut answer = [0];
    socket.read_exact(&mut answer).unwrap();
    answer[0].into()
}

/// How many of `clients` each thread has.
fn spread(clients: &[(TcpStream, usize)]) -> [usize; THREADS] {
    std::array::from_fn(|thread| clients.iter().filter(|(_, of)| *of == thread).count())
}

#[test]
fn connections_go_to_all_threads_and_are_counted() {
    let subject = Subject::new(ClientLimits::default());
    let mut clients = Vec::new();
    // A thread that is still at work when somebody comes is given nobody.
    while clients.len() < 9 || spread(&clients).contains(&0) {
        clients.push(subject.welcomed());
    }
    // What was sent is counted once it has been.
    let count = clients.len() as u64;
    while subject.traffic.sum().sent_bytes < count {
        std::thread::yield_now();
    }
    let sum = subject.traffic.sum();
    assert_eq!((sum.accepted, sum.rejected, sum.received_bytes, sum.sent_bytes), (count, 0, count, count));
    subject.end();
}

#[test]
fn one_too_many_is_told_so_and_takes_no_place() {
    let limits = ClientLimits { connections_max: 4, ..ClientLimits::default() };
    let subject = Subject::new(limits);
    let mut clients: Vec<_> = (0..4).map(|_| subject.welcomed()).collect();
    let mut heard = Vec::new();
    subject.connect().read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"full");
    assert_eq!((subject.traffic.open(), subject.traffic.sum().rejected), (4, 1));

    clients.pop();
    while subject.traffic.open() > 3 {
        std::thread::yield_now();
    }
    subject.welcomed();
    subject.end();
}

#[test]
fn a_client_that_was_silent_for_too_long_is_sent_off_and_counted_once() {
    let limits = ClientLimits { idle_max: Some(Duration::from_millis(1)), ..ClientLimits::default() };
    let subject = Subject::new(limits);
    let mut socket = subject.connect();
    // Each is answered by another thread.
    let sent = (0..100).take_while(|_| socket.write_all(&[0]).is_ok()).count();
    let mut answers = Vec::new();
    let _ = socket.read_to_end(&mut answers);
    assert!(answers.len() <= sent);
    assert_eq!(subject.traffic.sum().idle, 1);
    subject.end();
}

#[test]
fn an_answer_leaves_once_what_it_rests_on_is_settled_and_others_before() {
    let subject = Subject::new(ClientLimits::default());
    let mut clients: Vec<_> = (0..2 * THREADS).map(|_| subject.welcomed()).collect();
    let (owed, others) = clients.split_at_mut(THREADS);
    owed.iter_mut().for_each(|(socket, _)| socket.write_all(&[OWED]).unwrap());
    for _ in 0..100 {
        others.iter_mut().for_each(|(socket, thread)| assert_eq!(ask(socket, 1), *thread));
    }
    for (socket, _) in owed.iter() {
        socket.set_nonblocking(true).unwrap();
        assert_eq!(socket.peek(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        socket.set_nonblocking(false).unwrap();
    }
    subject.settled.send_replace(1);
    for (socket, thread) in owed {
        let mut answer = [0];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(usize::from(answer[0]), *thread);
        assert_eq!(ask(socket, 1), *thread);
    }
    subject.end();
}

#[test]
fn what_computes_does_so_elsewhere_and_a_few_at_a_time() {
    const CLIENTS: usize = 24;
    const EACH: usize = 5;
    let subject = Subject::new(ClientLimits::default());
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| subject.connect()).collect();
    clients.iter_mut().for_each(|socket| socket.write_all(&[COMPUTE; EACH]).unwrap());
    for socket in &mut clients {
        let mut answers = [0; EACH];
        socket.read_exact(&mut answers).unwrap();
        assert_eq!(answers, [ELSEWHERE; EACH]);
    }
    assert!((1..=computing::PLACES_MAX).contains(&subject.computing.most.load(Ordering::SeqCst)));
    subject.end();
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a client of a test runs on a thread of its own")]
fn long_requests_take_so_much_room_and_come_whole_in_turn() {
    const CLIENTS: usize = 24;
    let subject = Subject::new(ClientLimits::default());
    // Those that begin one and go on later keep what they got, and hold up neither short ones nor each other for ever.
    let (mut begun, _) = subject.welcomed();
    begun.write_all(&[BEGIN; 100 << 10]).unwrap();
    // Whoever has to wait for room may get the turn, and is sent off if nothing comes then.
    while subject.long.now.load(Ordering::SeqCst) < 100 << 10 || subject.requests.used() == 0 {
        std::thread::yield_now();
    }
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let mut socket = subject.connect();
            std::thread::spawn(move || {
                let [first, next] = [1 << 20, 50 << 10].map(|bytes| long_request(client, bytes));
                if client % 4 == 3 {
                    // Who has left takes nothing of what others wait for.
                    return socket.write_all(&first[..first.len() / 2]).unwrap();
                }
                // What comes behind is the next request's.
                socket.write_all(&[&first[..], &next, &[1]].concat()).unwrap();
                let mut answers = [0; 17];
                socket.read_exact(&mut answers).unwrap();
                assert_eq!(answers[..16], [answer_to(&first), answer_to(&next)].concat());
                assert!(usize::from(answers[16]) < THREADS);
            })
        })
        .collect();
    subject.welcomed();
    clients.into_iter().for_each(|client| client.join().unwrap());
    begun.write_all(&[END]).unwrap();
    let mut answer = [0; 8];
    begun.read_exact(&mut answer).unwrap();
    assert_eq!(answer, answer_to(&[&[BEGIN; 100 << 10][..], &[END]].concat()));
    while subject.long.now.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
    let most = subject.long.most.load(Ordering::SeqCst);
    // Each thread receives from one at a time while there is much room.
    let uncounted = CLIENTS * (UNCOUNTED_REQUEST_BYTES + RECEIVE_BYTES_MAX_IF_SCARCE) + THREADS * (256 << 10);
    assert!(most <= ROOM_BYTES + TURN_BYTES + uncounted, "{most}");
    subject.end();
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a client of a test runs on a thread of its own")]
fn long_answers_are_made_as_there_is_room_for_them() {
    for request in [LONG, CONTENDED] {
        long_answers_have_room(request);
    }
}

#[allow(clippy::disallowed_methods, reason = "a client of a test runs on a thread of its own")]
fn long_answers_have_room(request: u8) {
    let subject = Subject::new(ClientLimits::default());
    let mut clients: Vec<_> = (0..8).map(|_| subject.welcomed()).collect();
    clients.iter_mut().for_each(|(socket, _)| socket.write_all(&[request]).unwrap());
    while subject.long.answers.load(Ordering::SeqCst) < 3 {
        std::thread::yield_now();
    }
    // Nobody reads; whoever wants little is served.
    (0..10).for_each(|_| drop(subject.welcomed()));
    assert_eq!(subject.long.answers.load(Ordering::SeqCst), 3);
    let read = |(mut socket, thread): (TcpStream, usize)| {
        std::thread::spawn(move || {
            let mut answer = vec![0; ANSWER_BYTES];
            socket.read_exact(&mut answer).unwrap();
            assert!(answer.iter().all(|byte| usize::from(*byte) == thread));
        })
    };
    let readers: Vec<_> = clients.into_iter().map(read).collect();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    subject.end();
}

#[test]
fn what_was_answered_leaves_before_the_next_request_waits() {
    let subject = Subject::new(ClientLimits::default());
    subject.settled.send_replace(FULL);
    let mut clients: Vec<_> = (0..6).map(|_| subject.welcomed()).collect();
    // There is room for three long answers at a time, of which one has the turn.
    for clients in clients.chunks_mut(3) {
        clients.iter_mut().for_each(|(socket, _)| socket.write_all(&[LONG, WRITE]).unwrap());
        for (socket, thread) in clients {
            let mut answer = vec![0; ANSWER_BYTES];
            socket.read_exact(&mut answer).unwrap();
            assert!(answer.iter().all(|byte| usize::from(*byte) == *thread));
        }
    }
    subject.settled.send_replace(0);
    for (socket, _) in &mut clients {
        let mut answer = [0];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [WRITE]);
    }
    subject.end();
}

#[test]
fn requests_that_wait_for_others_count_as_far_as_there_is_room() {
    const BYTES: usize = 100 << 10;
    const CLIENTS: usize = 60;
    let subject = Subject::new(ClientLimits::default());
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| subject.welcomed()).collect();
    let request = [&[LONG][..], &[1; BYTES]].concat();
    clients.iter_mut().for_each(|(socket, _)| socket.write_all(&request).unwrap());
    // Most wait for room for their answers, as nobody reads. Where much has come less is received of the others.
    while subject.requests.used() <= ROOM_BYTES / 2 {
        std::thread::yield_now();
    }
    drop(clients);
    while subject.requests.used() > 0 {
        std::thread::yield_now();
    }
    subject.end();
}

/// Has the client go aside, as something blocks.
fn go_aside(socket: &mut TcpStream) {
    ask(socket, 0);
    assert_eq!(ask(socket, WHERE), 1);
}

#[test]
fn who_has_to_wait_goes_aside_and_comes_back() {
    let subject = Subject::new(ClientLimits::default());
    let (mut socket, thread) = subject.welcomed();
    for _ in 0..3 {
        assert_eq!(ask(&mut socket, WHERE), 0);
        go_aside(&mut socket);
        let asked = (0..1000).take_while(|_| ask(&mut socket, WHERE) == 1).count();
        assert!((1..100).contains(&asked), "{asked}");
        assert_eq!(ask(&mut socket, 1), thread);
    }
    subject.end();
}

#[test]
fn a_panic_ends_one_client() {
    let subject = Subject::new(ClientLimits::default());
    let mut clients: Vec<_> = (0..2 * THREADS).map(|_| subject.welcomed()).collect();
    go_aside(&mut clients[THREADS].0);
    for (socket, _) in &mut clients[..=THREADS] {
        socket.write_all(&[PANIC]).unwrap();
        assert!(!matches!(socket.read(&mut [0]), Ok(1..)));
    }
    for (socket, thread) in &mut clients[THREADS + 1..] {
        assert_eq!(ask(socket, 1), *thread);
    }
    subject.end();
}

#[test]
fn who_is_not_asked_and_who_is_aside_hears_each_push_once() {
    let subject = Subject::new(ClientLimits::default());
    let mut clients: Vec<_> = (0..2 * THREADS).map(|_| subject.welcomed()).collect();
    clients[..THREADS].iter_mut().for_each(|(socket, _)| go_aside(socket));
    for _ in 0..3 {
        subject.pushes.send_modify(|pushes| *pushes += 1);
        for (socket, thread) in &mut clients {
            let mut pushed = [0];
            socket.read_exact(&mut pushed).unwrap();
            assert_eq!(pushed, [PUSHED]);
            assert_eq!(ask(socket, 1), *thread);
        }
    }
    subject.end();
}

#[test]
fn what_was_asked_before_the_door_shuts_is_answered() {
    // More than have their turns together.
    const CLIENTS: usize = 500;
    let subject = Subject::new(ClientLimits::default());
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| subject.welcomed()).collect();
    clients.iter_mut().step_by(50).for_each(|(socket, _)| go_aside(socket));
    clients.iter_mut().for_each(|(socket, _)| socket.write_all(&[1, 1]).unwrap());
    subject.end();
    for (socket, thread) in &mut clients {
        let mut answers = Vec::new();
        socket.read_to_end(&mut answers).unwrap();
        assert_eq!(answers, [*thread as u8; 2]);
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a client of a test runs on a thread of its own")]
fn who_reads_late_is_answered_all_and_who_left_is_not_minded() {
    const BYTES: usize = 48 << 20;
    let subject = Subject::new(ClientLimits::default());
    let (mut socket, thread) = subject.welcomed();
    let mut sender = socket.try_clone().unwrap();
    let send = std::thread::spawn(move || {
        sender.write_all(&vec![1; BYTES]).unwrap();
        sender.shutdown(std::net::Shutdown::Write).unwrap();
    });
    // Nobody reads until more was sent than sockets hold; others come and go.
    while subject.traffic.sum().received_bytes < 1 << 20 {
        let (mut other, _) = subject.welcomed();
        other.write_all(&[1; 100]).unwrap();
    }
    let mut answers = Vec::new();
    socket.read_to_end(&mut answers).unwrap();
    send.join().unwrap();
    assert!(answers.len() == BYTES && answers.iter().all(|byte| usize::from(*byte) == thread));
    subject.end();
}

#[test]
fn whichever_loop_clients_come_to_they_are_answered_in_order() {
    let subject = Subject::new(ClientLimits::default());
    let mut clients: Vec<_> = (0..2 * THREADS).map(|_| subject.welcomed()).collect();
    for round in 0..3000 {
        for (socket, _) in &mut clients {
            socket.write_all(if round % 100 == 0 { &[COMPUTE, 1] } else { &[1; 2] }).unwrap();
        }
        for (socket, thread) in &mut clients {
            let mut answers = [0; 2];
            socket.read_exact(&mut answers).unwrap();
            let first = if round % 100 == 0 { ELSEWHERE } else { *thread as u8 };
            assert_eq!(answers, [first, *thread as u8]);
        }
    }
    subject.end();
}
