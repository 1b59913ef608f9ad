//! Hands bytes on between a client and a master, sees what clients say, and breaks the connection in place of an answer that a
//! test names.
#![allow(dead_code)]

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub struct LossyProxy {
    pub address: String,
    losses: Arc<Mutex<Losses>>,
    /// Who holds it keeps clients from connecting.
    pub gate: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Losses {
    /// The method whose next answer is lost, as it stands in a request.
    method: Option<Vec<u8>>,
    lost: usize,
    seen: Vec<u8>,
}

impl Losses {
    /// Whether the answer to this request is to be lost. Requests are short, and come whole.
    fn hear(&mut self, request: &[u8]) -> bool {
        self.seen.extend_from_slice(request);
        self.method.take_if(|name| request.windows(name.len()).any(|w| w == name)).is_some()
    }
}

impl LossyProxy {
    pub async fn start(master: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let losses = Arc::new(Mutex::new(Losses::default()));
        let gate: Arc<tokio::sync::Mutex<()>> = Arc::default();
        let (master, of_proxy, on_way_in) = (master.to_owned(), losses.clone(), gate.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                drop(on_way_in.lock().await);
                let server = TcpStream::connect(&master).await.unwrap();
                tokio::spawn(hand_on(client, server, of_proxy.clone()));
            }
        });
        LossyProxy { address, losses, gate }
    }

    /// The next call of this method is executed, and its answer is lost.
    pub fn lose(&self, method: &str) {
        let mut name = vec![method.len() as u8];
        name.extend_from_slice(method.as_bytes());
        self.losses.lock().method = Some(name);
    }

    /// Whether a client said this, as it is.
    pub fn saw(&self, text: &str) -> bool {
        self.losses.lock().seen.windows(text.len()).any(|seen| seen == text.as_bytes())
    }

    /// How many answers were.
    pub fn lost(&self) -> usize {
        self.losses.lock().lost
    }
}

async fn hand_on(mut client: TcpStream, mut server: TcpStream, losses: Arc<Mutex<Losses>>) {
    let (mut request, mut answer) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut loses = false;
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(bytes @ 1..) = read else { return };
                let part = &request[..bytes];
                loses |= losses.lock().hear(part);
                if server.write_all(part).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut answer) => {
                let Ok(bytes @ 1..) = read else { return };
                if loses {
                    losses.lock().lost += 1;
                    return;
                }
                if client.write_all(&answer[..bytes]).await.is_err() {
                    return;
                }
            }
        }
    }
}
