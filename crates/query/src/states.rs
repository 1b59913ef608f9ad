//! DataFusion's states, of which each statement has one.
//!
//! A state knows hundreds of functions by their names, and a copy of it has each name once more: making one took a tenth of
//! a simple query. So a statement that was planned gives its state back, and another takes it.

use datafusion::common::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use oribi_session::sql::TimeZone;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// States that nobody has, at most: about as many as statements are planned at a time.
const IDLE_MAX: usize = 16;

pub(crate) struct States {
    /// Functions, rules and configuration, without a catalog.
    base: SessionState,
    idle: Mutex<Vec<Idle>>,
}

/// As `base`, but for the functions of a time zone.
struct Idle {
    zone: Option<TimeZone>,
    state: SessionState,
}

impl States {
    pub(crate) fn new(base: SessionState) -> Arc<Self> {
        Arc::new(States { base, idle: Mutex::default() })
    }

    pub(crate) fn base(&self) -> &SessionState {
        &self.base
    }

    /// A state for a statement of a session with a time zone, and made the statement's own by `enter`.
    ///
    /// # Errors
    /// None are expected.
    pub(crate) fn take(
        self: &Arc<Self>,
        zone: Option<TimeZone>,
        enter: impl FnOnce(&mut SessionState),
    ) -> Result<Taken> {
        let mut state = match self.idle(zone) {
            Some(state) => state,
            None => self.copy(zone)?,
        };
        enter(&mut state);
        Ok(Taken { state: Some(Arc::new(state)), from: Some((Arc::clone(self), zone)) })
    }

    fn idle(&self, zone: Option<TimeZone>) -> Option<SessionState> {
        let mut idle = self.lock();
        let found = idle.iter().rposition(|idle| idle.zone == zone)?;
        Some(idle.remove(found).state)
    }

    /// Makes `now` and `to_timestamp` moments of the zone. In UTC they are ours, or timestamps: what its clocks show is the
    /// same.
    fn copy(&self, zone: Option<TimeZone>) -> Result<SessionState> {
        let mut state = self.base.clone();
        let Some(zone) = zone else { return Ok(state) };
        let mut options = state.config_options().as_ref().clone();
        options.execution.time_zone = Some(zone.name().to_owned());
        for function in [state.udf("now")?, datafusion::functions::datetime::to_timestamp(&options)] {
            let function = function.inner().with_updated_config(&options);
            state.register_udf(Arc::new(function.expect("it has a time zone")))?;
        }
        Ok(state)
    }

    /// What was a statement's own is forgotten: its snapshot is to be let go.
    fn give_back(&self, zone: Option<TimeZone>, mut state: SessionState) {
        state.register_catalog_list(Arc::clone(self.base.catalog_list()));
        *state.config_mut() = self.base.config().clone();
        *state.execution_props_mut() = self.base.execution_props().clone();
        let mut idle = self.lock();
        // The one that was idle for longest: its zone may be that of nobody any more.
        let left = if idle.len() == IDLE_MAX { Some(idle.remove(0)) } else { None };
        idle.push(Idle { zone, state });
        drop(idle);
        drop(left);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A statement's state, given back when this is dropped, unless something else still has it.
pub(crate) struct Taken {
    /// `None` only while it is dropped.
    state: Option<Arc<SessionState>>,
    /// `None` if no other statement is to have it.
    from: Option<(Arc<States>, Option<TimeZone>)>,
}

impl From<SessionState> for Taken {
    fn from(state: SessionState) -> Self {
        Taken { state: Some(Arc::new(state)), from: None }
    }
}

impl Deref for Taken {
    type Target = Arc<SessionState>;

    fn deref(&self) -> &Arc<SessionState> {
        self.state.as_ref().expect("held until drop")
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let state = self.state.take().and_then(Arc::into_inner);
        if let (Some(state), Some((states, zone))) = (state, &self.from) {
            states.give_back(*zone, state);
        }
    }
}
