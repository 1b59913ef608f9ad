//! Scanners at servers whose rows nobody takes for a while.

use crate::rpc::Connection;
use bytes::Bytes;
use oribi_kudu::messages::tserver::ScannerKeepAliveRequest;
use oribi_kudu::rpc::RequestHeader;
use oribi_kudu::service::{Method, TabletServerMethod};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// Tells a server now and then that a scanner is still wanted, until this is dropped.
///
/// It does so from a task: whoever blocks the only thread of a runtime for longer than a server waits loses the scanner.
pub(super) struct KeepAlive(AbortHandle);

impl KeepAlive {
    pub(super) fn start(connection: Arc<Connection>, scanner_id: Bytes, every: Duration) -> Self {
        let task = async move {
            loop {
                tokio::time::sleep(every).await;
                let request = ScannerKeepAliveRequest { scanner_id: scanner_id.clone() };
                let header = RequestHeader {
                    remote_method: Some(Method::TabletServer(TabletServerMethod::ScannerKeepAlive).remote()),
                    timeout_millis: Some(every.as_millis() as u32),
                    ..RequestHeader::default()
                };
                let Ok(call) = connection.call(header, &request, None) else { return };
                // Whether the scanner is still there is told when it is read on.
                let _ = call.answer(every).await;
            }
        };
        KeepAlive(tokio::spawn(task).abort_handle())
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.0.abort();
    }
}
