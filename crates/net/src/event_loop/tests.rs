//! One loop of two, of a service that answers each client with what it sent, and greets it as the test wants.

use super::*;
use crate::listener::{Arrival, Place};
use crate::tests::Nothing;
use crate::{Exchange, Leave, Link, Load, Loads, Protocol, Room, Traffic};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread::JoinHandle;
use tokio::sync::watch;

struct Echoes {
    store: Nothing,
    traffic: Arc<Traffic>,
    loads: Loads,
    greet: Box<dyn Fn() + Send + Sync>,
    counts: Arc<Counts>,
}

struct Echo(Arc<Counts>);

/// How many were greeted, and how often somebody was answered what he had sent.
#[derive(Default)]
struct Counts {
    greeted: AtomicU8,
    echoed: AtomicU8,
}

/// Bytes that ask for one of them.
const GREETED: u8 = b'#';
const ECHOED: u8 = b'=';

impl Service for Echoes {
    type Store = Nothing;
    type Protocol = Echo;
    const NAME: &'static str = "echoes";
    const TOO_MANY: &'static [u8] = b"";

    fn store(&self) -> &Nothing {
        &self.store
    }

    fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    fn loads(&self) -> &Loads {
        &self.loads
    }

    fn open(&self, _thread: usize, _link: Link) -> Echo {
        (self.greet)();
        self.counts.greeted.fetch_add(1, Ordering::SeqCst);
        Echo(self.counts.clone())
    }
}

impl Protocol for Echo {
    type Obligation = u64;

    fn advance(&mut self, exchange: &mut Exchange<u64>, _leave: Leave) -> Progress {
        match exchange.input.first() {
            Some(&GREETED) => exchange.output.push(self.0.greeted.load(Ordering::SeqCst)),
            Some(&ECHOED) => exchange.output.push(self.0.echoed.load(Ordering::SeqCst)),
            _ => {
                self.0.echoed.fetch_add(1, Ordering::SeqCst);
                exchange.output.extend_from_slice(&exchange.input);
            }
        }
        exchange.input.clear();
        Progress::Done
    }
}

struct Subject {
    service: Arc<Echoes>,
    traffic: Arc<Traffic>,
    balance: Arc<Balance>,
    post: Post<Echoes>,
    listener: TcpListener,
    thread: JoinHandle<io::Result<()>>,
    _leaving: UnboundedReceiver<Leaving<Echoes>>,
}

impl Subject {
    #[allow(clippy::disallowed_methods, reason = "the loop of a test runs on a thread of its own")]
    fn new(greet: impl Fn() + Send + Sync + 'static) -> Self {
        let traffic = Traffic::new("echoes", 2);
        let load = || Arc::new(Load::new(&Room::new(1 << 20), 1 << 20));
        let loads = Loads { requests: load(), answers: load() };
        let service = Arc::new(Echoes {
            store: Nothing(watch::Sender::new(0)),
            traffic: traffic.clone(),
            loads,
            greet: Box::new(greet),
            counts: Arc::default(),
        });
        let balance = Arc::new(Balance::new(2));
        let limits = ClientLimits::default();
        let (event_loop, post, leaving) =
            EventLoop::new(service.clone(), 0, limits, balance.clone()).unwrap();
        let posts = vec![post.clone()];
        let thread = std::thread::spawn(move || event_loop.run(posts));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        Subject { service, traffic, balance, post, listener, thread, _leaving: leaving }
    }

    fn connect(&self) -> TcpStream {
        let (client, arrival) = self.arrival();
        assert!(self.post.send(Mail::Arrival(arrival)).is_ok());
        client
    }

    /// A client that has connected, and is on its way.
    fn arrival(&self) -> (TcpStream, Arrival) {
        let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (socket, peer) = self.listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let place = Place::take(&self.traffic, 100, |_| true).unwrap();
        (client, Arrival { socket, peer, place })
    }

    fn end(self) {
        assert!(self.post.send(Mail::Shutdown).is_ok());
        self.thread.join().unwrap().unwrap();
    }
}

fn ask(client: &mut TcpStream) {
    client.write_all(b"?").unwrap();
    let mut answer = [0];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"?");
}

#[test]
fn a_loop_that_is_stuck_is_given_no_clients() {
    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let ended = Mutex::new(ended);
    let subject = Subject::new(move || {
        begin.send(()).unwrap();
        ended.lock().unwrap().recv().unwrap();
    });
    // Long after it could have said how busy it is.
    let much_later = Instant::now() + Duration::from_secs(3600);
    let advice = || subject.balance.tell(1, 300, much_later);
    let mut client = subject.connect();
    begun.recv().unwrap();
    assert_eq!(advice(), Advice::Keep);
    end.send(()).unwrap();
    ask(&mut client);
    let is_given_some = (0..1 << 24).any(|_| {
        std::thread::yield_now();
        advice() == Advice::All { to: 0 }
    });
    assert!(is_given_some, "it waits by now");
    subject.end();
}

#[test]
fn who_is_there_is_answered_while_a_crowd_comes() {
    const CROWD: usize = 64;
    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let ended = Mutex::new(ended);
    let subject = Subject::new(move || {
        begin.send(()).unwrap();
        let _ = ended.lock().unwrap().recv();
    });
    (0..2).for_each(|_| end.send(()).unwrap());
    let (mut from_elsewhere, arrival) = subject.arrival();
    let guest = Guest::welcome(&*subject.service, arrival).unwrap();
    let mut there = subject.connect();
    ask(&mut there);
    (0..2).for_each(|_| begun.recv().unwrap());
    let crowd = Vec::from_iter((0..CROWD).map(|_| subject.connect()));
    // The loop lets the first of them in, and the others are on their way, as is a client of another loop.
    begun.recv().unwrap();
    assert!(subject.post.send(Mail::Guest(guest)).is_ok());
    for client in [&mut there, &mut from_elsewhere] {
        client.write_all(&[GREETED]).unwrap();
    }
    drop(end);
    for (client, welcomes) in [(&mut there, WELCOMES_MAX), (&mut from_elsewhere, 2 * WELCOMES_MAX)] {
        let mut greeted = [0];
        client.read_exact(&mut greeted).unwrap();
        assert!(usize::from(greeted[0]) <= 2 + welcomes, "{greeted:?} came before it");
    }
    for mut client in crowd {
        ask(&mut client);
    }
    subject.end();
}

#[test]
fn who_was_heard_is_answered_before_a_crowd_that_was_not() {
    const CROWD: usize = 64;
    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let ended = Mutex::new(ended);
    let subject = Subject::new(move || {
        begin.send(()).unwrap();
        let _ = ended.lock().unwrap().recv();
    });
    (0..=CROWD).for_each(|_| end.send(()).unwrap());
    let mut there = subject.connect();
    ask(&mut there);
    let mut crowd = Vec::from_iter((0..CROWD).map(|_| subject.connect()));
    // Now all are in, and one that comes keeps the loop until they have asked.
    let _last = subject.connect();
    (0..CROWD + 2).for_each(|_| begun.recv().unwrap());
    crowd.iter_mut().for_each(|client| client.write_all(b"?").unwrap());
    there.write_all(&[ECHOED]).unwrap();
    drop(end);
    let mut echoed = [0];
    there.read_exact(&mut echoed).unwrap();
    assert!(usize::from(echoed[0]) <= 1 + WELCOMES_MAX, "{echoed:?} came before it");
    for mut client in crowd {
        let mut answer = [0];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"?");
    }
    subject.end();
}

#[test]
fn a_panic_when_a_client_comes_ends_no_other() {
    let is_first = AtomicBool::new(true);
    let subject = Subject::new(move || assert!(!is_first.swap(false, Ordering::SeqCst), "a test wants it"));
    assert!(!matches!(subject.connect().read(&mut [0]), Ok(1..)));
    assert_eq!(subject.traffic.open(), 0);
    ask(&mut subject.connect());
    subject.end();
}
