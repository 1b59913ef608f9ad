//! A page that takes milliseconds to write: once at a time, beside the thread that answers, and for all who wait for it then.

use axum::body::Bytes;
use oribi_types::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tokio::sync::Mutex;

pub struct Page {
    write: Arc<dyn Fn() -> String + Send + Sync>,
    /// How many have asked for it.
    asked: AtomicU64,
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    /// It tells of all that was so when the first so many had asked.
    asked: u64,
    text: Bytes,
}

impl Page {
    pub fn new(write: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Page { write: Arc::new(write), asked: AtomicU64::new(0), written: Mutex::default() }
    }

    /// What the page says now: as it was written when this was asked for, or after.
    ///
    /// # Errors
    /// `Internal` if that panics.
    pub async fn text(&self) -> Result<Bytes> {
        let number = self.asked.fetch_add(1, SeqCst) + 1;
        let mut written = self.written.lock().await;
        if written.asked < number {
            let (asked, write) = (self.asked.load(SeqCst), self.write.clone());
            let text = tokio::task::spawn_blocking(move || write()).await;
            let text = text.map_err(|error| Error::internal(format!("a page: {error}")))?;
            *written = Written { asked, text: text.into() };
        }
        Ok(written.text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use futures::poll;
    use std::sync::mpsc;

    #[tokio::test]
    async fn who_comes_while_it_is_written_shares_the_next_writing() {
        let (go, goes) = mpsc::channel::<()>();
        let goes = std::sync::Mutex::new(goes);
        let writings = AtomicU64::new(0);
        let page = Page::new(move || {
            goes.lock().unwrap().recv().unwrap();
            (writings.fetch_add(1, SeqCst) + 1).to_string()
        });
        let mut first = Box::pin(page.text());
        assert!(poll!(&mut first).is_pending());
        let mut others = Vec::from_iter((0..100).map(|_| Box::pin(page.text())));
        for other in &mut others {
            assert!(poll!(other).is_pending());
        }
        for _ in 0..2 {
            go.send(()).unwrap();
        }
        assert_eq!(first.await.unwrap(), "1");
        assert!(join_all(others).await.into_iter().all(|text| text.unwrap() == "2"));
        // Who comes afterwards is told what is then.
        go.send(()).unwrap();
        assert_eq!(page.text().await.unwrap(), "3");
    }
}
