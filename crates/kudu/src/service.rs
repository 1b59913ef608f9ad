//! The services and their methods, by the names that a [`RemoteMethod`] has.

use crate::rpc::{ErrorCode, ErrorStatus, RemoteMethod};
use bytes::Bytes;

macro_rules! services {
    ($($(#[$note:meta])* $service:ident, $methods:ident = $name:literal { $($method:ident),* $(,)? })*) => {
        /// A service, which is what features and methods belong to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Service {
            $($(#[$note])* $service,)*
        }

        /// A method of a service.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Method {
            $($service($methods),)*
        }

        $($(#[$note])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $methods {
            $($method,)*
        })*

        impl Service {
            pub const ALL: &'static [Service] = &[$(Service::$service,)*];

            /// The full name, as calls carry it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Service::$service => $name,)*
                }
            }

            pub fn methods(self) -> &'static [Method] {
                match self {
                    $(Service::$service => &[$(Method::$service($methods::$method),)*],)*
                }
            }
        }

        impl Method {
            pub fn service(self) -> Service {
                match self {
                    $(Method::$service(_) => Service::$service,)*
                }
            }

            pub fn name(self) -> &'static str {
                match self {
                    $($(Method::$service($methods::$method) => stringify!($method),)*)*
                }
            }

            /// The method of these names.
            pub fn parse(service: &[u8], method: &[u8]) -> Result<Method, UnknownMethod> {
                $(if service == $name.as_bytes() {
                    $(if method == stringify!($method).as_bytes() {
                        return Ok(Method::$service($methods::$method));
                    })*
                    return Err(UnknownMethod::Method(Service::$service));
                })*
                Err(UnknownMethod::Service)
            }
        }
    };
}

services! {
    /// Writes and scans.
    TabletServer, TabletServerMethod = "kudu.tserver.TabletServerService" {
        Write, Scan, ScannerKeepAlive, ListTablets, SplitKeyRange, Checksum, Ping,
    }
    /// Tables, and where their tablets are.
    Master, MasterMethod = "kudu.master.MasterService" {
        GetTableLocations, GetTabletLocations, GetTableSchema, ConnectToMaster, CreateTable,
        IsCreateTableDone, DeleteTable, AlterTable, IsAlterTableDone, ListTables, GetTableStatistics,
        ListTabletServers, ListMasters, GetMasterRegistration, Ping,
    }
    /// What each server says of itself.
    Generic, GenericMethod = "kudu.server.GenericService" {
        GetStatus, GetFlags, SetFlag, ServerClock,
    }
    /// Who leads which tablet.
    Consensus, ConsensusMethod = "kudu.consensus.ConsensusService" { GetConsensusState }
    /// What an administrator asks of a tablet server.
    TabletServerAdmin, TabletServerAdminMethod = "kudu.tserver.TabletServerAdminService" { Quiesce }
    /// Transactions over several tablets.
    TxnManager, TxnManagerMethod = "kudu.transactions.TxnManagerService" {
        BeginTransaction, KeepTransactionAlive, CommitTransaction, GetTransactionState, AbortTransaction,
    }
}

/// Which of the two names is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownMethod {
    Service,
    Method(Service),
}

impl Method {
    /// The method that a call names, or the error to answer it with.
    pub fn of(remote: &RemoteMethod) -> Result<Method, ErrorStatus> {
        let name =
            |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(NAME_SHOWN_BYTES)]).into_owned();
        Method::parse(&remote.service_name, &remote.method_name).map_err(|unknown| match unknown {
            UnknownMethod::Service => {
                let message = format!("service {} not registered", name(&remote.service_name));
                ErrorStatus::new(ErrorCode::NoSuchService, message)
            }
            UnknownMethod::Method(service) => {
                let message = format!("{} has no method {}", service.name(), name(&remote.method_name));
                ErrorStatus::new(ErrorCode::NoSuchMethod, message)
            }
        })
    }

    /// The names as a call carries them.
    pub fn remote(self) -> RemoteMethod {
        RemoteMethod {
            service_name: Bytes::from_static(self.service().name().as_bytes()),
            method_name: Bytes::from_static(self.name().as_bytes()),
        }
    }
}

/// So much of a name that is not known comes back in an error.
const NAME_SHOWN_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_is_found_by_its_names() {
        for method in Service::ALL.iter().flat_map(|service| service.methods()) {
            assert_eq!(Method::of(&method.remote()), Ok(*method));
        }
    }

    #[test]
    fn a_name_that_is_not_known_is_named() {
        let mut remote = Method::Master(MasterMethod::Ping).remote();
        remote.method_name = Bytes::from_static(b"pong");
        let status = Method::of(&remote).unwrap_err();
        assert_eq!(status.code(), ErrorCode::NoSuchMethod);
        assert_eq!(status.message, "kudu.master.MasterService has no method pong");
        remote.service_name = Bytes::from(vec![0xff; 1 << 20]);
        let status = Method::of(&remote).unwrap_err();
        assert_eq!(status.code(), ErrorCode::NoSuchService);
        assert!(status.message.len() < 1000);
    }
}
