//! How commands reach a cluster over Kudu's protocol.

use clap::Args;
use oribi_client::{ClientOptions, Tls};
use oribi_env::{Env, read_file};
use oribi_types::{Error, Result};
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub struct Encryption {
    /// Encrypt, and believe the servers whose certificate is in this file (PEM) or vouched for by one that is
    #[arg(long)]
    tls_ca: Option<PathBuf>,
}

impl Encryption {
    /// Options of a client that are the defaults otherwise.
    ///
    /// # Errors
    /// `Invalid` for a file without such certificates; those of the file system.
    pub fn client_options(&self) -> Result<ClientOptions> {
        let tls = self.tls_ca.as_ref().map(|path| {
            let certificates = read_file(Env::real().files.as_ref(), path);
            let certificates = certificates.map_err(|error| Error::from(error).context(path.display()))?;
            Tls::trusting(&certificates).map_err(|error| error.context(path.display()))
        });
        Ok(ClientOptions { tls: tls.transpose()?, ..ClientOptions::default() })
    }
}
