//! A running door: its threads.

use crate::aside::Aside;
use crate::balance::Balance;
use crate::event_loop::EventLoop;
use crate::host::Thread;
use crate::listener::{Arrival, Listener};
use crate::post::Mail;
use crate::{ClientLimits, Host, Reception, Service};
use oribi_types::{Error, Result};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{mpsc, watch};

/// Threads of each serving thread's runtime that wait for files.
pub const BLOCKING_THREADS_MAX: usize = 8;

pub struct Door {
    name: &'static str,
    local_addr: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl Door {
    /// How many threads a door has that was asked for `threads`, where 0 is one per core.
    pub fn threads(threads: usize) -> usize {
        match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        }
    }

    /// Serves the clients of a key-value door who connect to `socket`, on as many threads as the service's
    /// [`Traffic`](crate::Traffic) was made for, until `shutdown` holds true or its sender is gone.
    ///
    /// # Errors
    /// Those of the system.
    pub fn serve<S: Service>(
        service: S,
        socket: TcpListener,
        limits: ClientLimits,
        shutdown: watch::Receiver<bool>,
    ) -> Result<Self> {
        let (service, grace) = (Arc::new(service), limits.shutdown_grace);
        let traffic = service.traffic().clone();
        let balance = Arc::new(Balance::new(traffic.threads()));
        let loops = (0..traffic.threads())
            .map(|number| EventLoop::new(service.clone(), number, limits, balance.clone()))
            .collect::<std::io::Result<Vec<_>>>()?;
        let posts: Vec<_> = loops.iter().map(|(_, post, _)| post.clone()).collect();
        let (mut started, mut ways) = (Vec::new(), Vec::new());
        for (number, (event_loop, post, leaving)) in loops.into_iter().enumerate() {
            let (service, shutdown, posts) = (service.clone(), shutdown.clone(), posts.clone());
            let aside = Aside { service, limits, shutdown, post: post.clone() };
            let (thread, runtime) =
                spawn_runtime(format!("{}-{number}-aside", S::NAME), grace, async move {
                    aside.serve(leaving).await;
                    Ok(())
                })?;
            started.push(thread);
            // What a request sets off for later runs there.
            started.push(spawn(format!("{}-{number}", S::NAME), move || {
                oribi_env::serve_promptly();
                let _context = runtime.enter();
                event_loop.run(posts).map_err(Error::from)
            })?);
            ways.push(way(move |arrival| post.send(Mail::Arrival(arrival)).is_ok()));
        }
        let waits = Box::new(move |thread| balance.waits(thread));
        let listener =
            Listener { name: S::NAME, too_many: S::TOO_MANY, traffic, limits, waits, threads: ways };
        Door::listen(listener, socket, shutdown, started)
    }

    /// Likewise, where each client is served as a task.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start<S: Host>(
        service: S,
        socket: TcpListener,
        limits: ClientLimits,
        shutdown: watch::Receiver<bool>,
    ) -> Result<Self> {
        let (service, grace) = (Arc::new(service), limits.shutdown_grace);
        let traffic = service.traffic().clone();
        let (mut started, mut ways) = (Vec::new(), Vec::new());
        for number in 0..traffic.threads() {
            let (sender, arrivals) = mpsc::unbounded_channel();
            let thread = Thread { service: service.clone(), number, limits, shutdown: shutdown.clone() };
            let (thread, _) = spawn_runtime(format!("{}-{number}", S::NAME), grace, async move {
                oribi_env::serve_promptly();
                thread.serve(arrivals).await;
                Ok(())
            })?;
            started.push(thread);
            ways.push(way(move |arrival| sender.send(arrival).is_ok()));
        }
        // They serve their clients by turns, however much there is to do.
        let waits = Box::new(|_| true);
        let listener =
            Listener { name: S::NAME, too_many: S::TOO_MANY, traffic, limits, waits, threads: ways };
        Door::listen(listener, socket, shutdown, started)
    }

    /// A door of one thread, which lets its clients in and serves them, whatever the threads of others do.
    ///
    /// # Errors
    /// Those of the system.
    pub fn apart<F: Future<Output = ()> + Send + 'static>(
        name: &'static str,
        socket: TcpListener,
        shutdown_grace: Duration,
        shutdown: watch::Receiver<bool>,
        serve: impl FnOnce(Reception) -> F + Send + 'static,
    ) -> Result<Self> {
        let local_addr = socket.local_addr()?;
        let serve = async move {
            oribi_env::serve_promptly();
            serve(Reception::new(name, socket, shutdown)?).await;
            Ok(())
        };
        let (thread, _) = spawn_runtime(name.to_owned(), shutdown_grace, serve)?;
        Ok(Door { name, local_addr, threads: vec![thread] })
    }

    /// Lets clients in, on a thread of its own: one that serves may have to wait for the log, and nobody could come in
    /// meanwhile.
    fn listen(
        listener: Listener,
        socket: TcpListener,
        shutdown: watch::Receiver<bool>,
        mut started: Vec<JoinHandle<()>>,
    ) -> Result<Self> {
        let (name, grace) = (listener.name, listener.limits.shutdown_grace);
        let local_addr = socket.local_addr()?;
        let serve = async move {
            oribi_env::serve_promptly();
            listener.serve(Reception::new(name, socket, shutdown)?).await;
            Ok(())
        };
        started.push(spawn_runtime(format!("{name}-accept"), grace, serve)?.0);
        Ok(Door { name, local_addr, threads: started })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Waits until the door has shut.
    ///
    /// # Errors
    /// `Internal` if one of its threads panicked.
    pub async fn join(self) -> Result<()> {
        let joined = tokio::task::spawn_blocking(|| {
            self.threads.into_iter().map(JoinHandle::join).collect::<std::thread::Result<Vec<()>>>()
        });
        match joined.await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Error::internal(format!("a thread of the {} door panicked", self.name))),
        }
    }
}

fn way(send: impl Fn(Arrival) -> bool + Send + 'static) -> Box<dyn Fn(Arrival) -> bool + Send> {
    Box::new(send)
}

/// Runs `serve` on a thread of its own that has a runtime.
fn spawn_runtime(
    name: String,
    shutdown_grace: Duration,
    serve: impl Future<Output = Result<()>> + Send + 'static,
) -> Result<(JoinHandle<()>, Handle)> {
    let refused = |e: std::io::Error| Error::unavailable(format!("thread {name}: {e}"));
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let waiting = format!("{name}-wait");
    // The runtime is made on its thread: where that is refused, there is none to be dropped by an asynchronous task, which it
    // does not allow.
    let thread = spawn(name.clone(), move || {
        let runtime = match runtime(waiting) {
            Ok(runtime) => runtime,
            Err(error) => {
                // Whoever asked has gone only if it has panicked.
                let _ = tell.send(Err(error));
                return Ok(());
            }
        };
        let _ = tell.send(Ok(runtime.handle().clone()));
        let served = runtime.block_on(serve);
        runtime.shutdown_timeout(shutdown_grace);
        served
    })?;
    let handle = told.recv().map_err(|_| Error::unavailable(format!("thread {name} has gone")))?;
    Ok((thread, handle.map_err(refused)?))
}

fn runtime(waiting: String) -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name(waiting)
        .build()
}

/// Runs `serve` on a thread of its own.
fn spawn(name: String, serve: impl FnOnce() -> Result<()> + Send + 'static) -> Result<JoinHandle<()>> {
    let named = name.clone();
    let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
        if let Err(error) = serve() {
            tracing::error!(%error, thread = named, "door stopped");
        }
    });
    thread.map_err(|e| Error::unavailable(format!("thread {name}: {e}")))
}
