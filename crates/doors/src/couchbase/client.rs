//! One client: what it has agreed on, and what the door's loops ask of it.

use super::Shared;
use super::bootstrap;
use super::execute::{Execution, Stopped};
use super::state::State;
use super::status::Status;
use oribi_engine::Obligation;
use oribi_net::{Exchange, Leave, Link, Progress, Protocol};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

pub struct Client {
    shared: Arc<Shared>,
    link: Link,
    state: State,
    /// Where in the output the answers begin that may come too late, and when that is.
    deadlines: Vec<(usize, Instant)>,
}

impl Client {
    pub(super) fn new(shared: Arc<Shared>, link: Link) -> Self {
        Client { shared, link, state: State::default(), deadlines: Vec::new() }
    }
}

impl Protocol for Client {
    type Obligation = Obligation;

    fn advance(&mut self, exchange: &mut Exchange<Obligation>, leave: Leave) -> Progress {
        let started = Instant::now();
        let catalog = self.shared.kv.engine().catalog();
        let map = self.shared.cluster.map();
        let shared = self.shared.clone();
        let mut round = shared.kv.round(leave.to_block).trying();
        round.answer_at_most(leave.to_answer);
        let Exchange { input, output, obligation, closing, .. } = exchange;
        round.rest_on(*obligation);
        let mut execution = Execution {
            shared: &shared,
            link: &self.link,
            state: &mut self.state,
            deadlines: &mut self.deadlines,
            catalog: &catalog,
            map: &map,
            leave,
            round,
            started,
            output,
            obligation: Obligation::default(),
            closing,
        };
        let Stopped { executed, skip, progress } = execution.advance(&input[..]);
        obligation.merge(execution.settle());
        input.advance(executed);
        exchange.skip(skip);
        progress
    }

    fn settled(&mut self, exchange: &mut Exchange<Obligation>) {
        const STATUS: Range<usize> = 6..8;
        if self.deadlines.is_empty() {
            return;
        }
        let now = Instant::now();
        let late = (Status::SyncWriteAmbiguous as u16).to_be_bytes();
        for (answer, _) in self.deadlines.drain(..).filter(|(_, deadline)| *deadline <= now) {
            let status = &mut exchange.output[answer..][STATUS];
            if *status == [0, 0] {
                status.copy_from_slice(&late);
            }
        }
    }

    fn push(&mut self, exchange: &mut Exchange<Obligation>) {
        bootstrap::push_map(&self.shared, &mut self.state, &mut exchange.output);
    }
}
