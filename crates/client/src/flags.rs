//! Settings of tablet servers, which measurements change.

use crate::client::Client;
use crate::rpc::CallError;
use oribi_kudu::STEPS_MAX;
use oribi_kudu::messages::generic::{SetFlagRequest, SetFlagResponse, SetFlagResult};
use oribi_kudu::messages::master::{ListTabletServersRequest, ListTabletServersResponse};
use oribi_kudu::rpc::RequestHeader;
use oribi_kudu::service::{GenericMethod, MasterMethod, Method};
use oribi_types::{Error, Result};

impl Client {
    /// Sets a flag of all tablet servers, safe or not; false if they have none of the name, as Oribi's.
    ///
    /// # Errors
    /// `Invalid` for a value that it cannot have; those of the calls.
    pub async fn set_flag(&self, flag: &str, value: &str) -> Result<bool> {
        let shared = &self.shared;
        let (method, request) = (MasterMethod::ListTabletServers, ListTabletServersRequest::default());
        let listed: ListTabletServersResponse =
            shared.master(method, &[], &request, &mut shared.attempts()).await?;
        let mut is_set = true;
        for server in listed.servers {
            let address =
                server.registration.and_then(|registration| registration.rpc_addresses.into_iter().next());
            let address = address.ok_or_else(|| Error::internal("a tablet server without an address"))?;
            let timeout = shared.options.rpc_timeout;
            let connection = shared.connections.get(&address, timeout).await?;
            let header = RequestHeader {
                remote_method: Some(Method::Generic(GenericMethod::SetFlag).remote()),
                timeout_millis: Some(timeout.as_millis() as u32),
                ..RequestHeader::default()
            };
            let request =
                SetFlagRequest { flag: flag.to_owned(), value: value.to_owned(), force: Some(true) };
            let call = connection.call(header, &request, None).map_err(|e: CallError| e.error())?;
            let body = call.answer(timeout).await.map_err(|e| e.error())?;
            let set: SetFlagResponse = body.decode(STEPS_MAX).map_err(|e| Error::corrupt(e.to_string()))?;
            match set.result() {
                SetFlagResult::Success => {}
                SetFlagResult::NoSuchFlag => is_set = false,
                _ => return Err(Error::invalid(set.msg.unwrap_or_else(|| format!("--{flag} was not set")))),
            }
        }
        Ok(is_set)
    }
}
