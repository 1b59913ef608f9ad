//! What functions find among the options that they are called with, and so need not be made for each statement.

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::{DataFusionError, Result};
use std::any::Any;
use std::fmt;

/// Something of ours among DataFusion's options. It is no setting: nobody sees or sets it by name.
#[derive(Clone)]
pub(crate) struct Carried<T>(pub(crate) T);

/// What can be carried.
pub(crate) trait Carry: Clone + Send + Sync + 'static {
    /// Each has its own.
    const NAME: &'static str;
}

impl<T: Carry> ConfigExtension for Carried<T> {
    const PREFIX: &'static str = T::NAME;
}

impl<T: Carry> ExtensionOptions for Carried<T> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _value: &str) -> Result<()> {
        Err(DataFusionError::Configuration(format!("there is no setting {key}")))
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

impl<T: Carry> fmt::Debug for Carried<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::NAME)
    }
}
