//! Random appends, waits, trims, power cuts and kills against a list of what was appended.
#![allow(clippy::unwrap_used)]

use oribi_sim::{SimFiles, env};
use oribi_wal::{LocalLog, Log, LogOptions, Lsn};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Clone, Debug)]
enum Step {
    Append { group: u32, length: usize },
    WaitDurable,
    WriteOut,
    Trim { part: u8 },
    Crash { seed: u64 },
    Kill,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..3_u32, prop_oneof![8 => 0..100_usize, 2 => 0..1500_usize, 1 => 0..6000_usize])
            .prop_map(|(group, length)| Step::Append { group, length }),
        4 => Just(Step::WaitDurable),
        4 => Just(Step::WriteOut),
        1 => any::<u8>().prop_map(|part| Step::Trim { part }),
        3 => any::<u64>().prop_map(|seed| Step::Crash { seed }),
        1 => Just(Step::Kill),
        1 => Just(Step::Close),
    ]
}

/// What must hold, as the caller of a log knows it.
struct Model {
    files: SimFiles,
    log: Option<LocalLog>,
    /// Every record that may still be there, by LSN: (group, payload).
    records: BTreeMap<Lsn, (u32, Vec<u8>)>,
    /// Recovery must need nothing below.
    from: Lsn,
    /// Never to be given out again.
    ceiling: Lsn,
    term: u64,
    count: u64,
}

const DIR: &str = "/log";

impl Model {
    fn new() -> Model {
        let files = SimFiles::new();
        let mut model =
            Model { files, log: None, records: BTreeMap::new(), from: 1, ceiling: 0, term: 0, count: 0 };
        model.open(0);
        model
    }

    /// Opens the log, which must hold every record through `must_hold` and nothing that was not appended.
    fn open(&mut self, must_hold: Lsn) {
        let mut replayed = BTreeMap::new();
        let mut sequences = BTreeMap::new();
        let options = LogOptions {
            segment_bytes: 2048,
            buffer_bytes_max: 1000,
            from: self.from,
            min_next_lsn: self.ceiling + 1,
            ..LogOptions::default()
        };
        let log = LocalLog::open(&env(&self.files), Path::new(DIR), options, &mut |record| {
            assert!(record.term <= self.term);
            if let Some(last) = sequences.insert((record.group, record.term), record.sequence) {
                assert_eq!(record.sequence, last + 1);
            }
            assert!(replayed.last_key_value().is_none_or(|(&last, _)| last < record.lsn));
            replayed.insert(record.lsn, (record.group, record.payload.to_vec()));
            Ok(())
        })
        .unwrap();
        let mut expected = self.records.split_off(&self.from);
        let end = replayed.last_key_value().map_or(0, |(&last, _)| last);
        let promised = expected.range(..=must_hold).next_back().map_or(0, |(&last, _)| last);
        assert!(end >= promised, "replayed through {end}, durable through {promised}");
        expected.split_off(&(end + 1));
        assert_eq!(replayed, expected, "what is replayed is a prefix of what was appended");
        assert!(log.term() > self.term, "terms increase");
        assert!(log.appended() >= self.ceiling);
        assert_eq!(log.durable(), log.appended());
        (self.term, self.records) = (log.term(), expected);
        self.log = Some(log);
    }

    fn run(&mut self, step: &Step) {
        let log = self.log.as_ref().unwrap();
        match step {
            Step::Append { group, length } => {
                self.count += 1;
                let payload: Vec<u8> = (0..*length).map(|i| (i as u64 * 7 + self.count) as u8).collect();
                let lsn = log.append(*group, &mut |_, buf| buf.extend_from_slice(&payload)).unwrap();
                assert_eq!(lsn, self.ceiling + 1, "no gap, no lsn twice");
                self.ceiling = lsn;
                self.records.insert(lsn, (*group, payload));
            }
            Step::WaitDurable => {
                log.wait_durable(log.appended()).unwrap();
                assert_eq!(log.durable(), log.appended());
            }
            Step::WriteOut => {
                log.write_out().unwrap();
                assert_eq!(log.written(), log.appended());
            }
            Step::Trim { part } => {
                let span = (log.durable() + 1).saturating_sub(self.from);
                self.from += span * u64::from(*part) / 255;
                log.trim(self.from).unwrap();
                assert!(log.oldest() <= self.from);
            }
            Step::Crash { seed } => {
                // Before the crash is drawn: what becomes durable meanwhile is not promised yet.
                let durable = log.durable();
                self.restart(self.files.crash(*seed), durable);
            }
            Step::Kill => {
                let written = log.written();
                self.restart(self.files.kill(), written);
            }
            Step::Close => {
                let appended = log.appended();
                self.log = None;
                self.open(appended);
            }
        }
    }

    fn restart(&mut self, files: SimFiles, must_hold: Lsn) {
        let before = self.log.take();
        self.files = files;
        self.open(must_hold);
        drop(before);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn acknowledged_records_survive_power_cuts(steps in prop::collection::vec(step(), 1..120)) {
        let mut model = Model::new();
        steps.iter().for_each(|step| model.run(step));
    }
}

/// A power cut at every single operation of the disk, recovery included, then another one.
#[test]
fn a_power_cut_at_any_operation_loses_nothing_durable() {
    oribi_sim::seeds(60, |seed| {
        let steps = [(0, 100), (1, 900), (0, 3000), (2, 10), (1, 700), (0, 700), (1, 1)];
        for stop in 1.. {
            let mut model = Model::new();
            model.run(&Step::Append { group: 0, length: 300 });
            model.run(&Step::Append { group: 0, length: 300 });
            model.run(&Step::WriteOut);
            model.files = model.files.kill();
            let start = model.files.changes();
            model.files.stop_at(start + stop);
            let mut durable = 0;
            let opened = LocalLog::open(
                &env(&model.files),
                Path::new(DIR),
                LogOptions { segment_bytes: 2048, min_next_lsn: 3, ..LogOptions::default() },
                &mut |_| Ok(()),
            );
            let finished = opened.is_ok_and(|log| {
                model.term = log.term();
                durable = log.durable();
                model.ceiling = durable;
                for (group, length) in steps {
                    let payload = vec![group as u8; length];
                    let Ok(lsn) = log.append(group, &mut |_, buf| buf.extend_from_slice(&payload)) else {
                        return false;
                    };
                    model.ceiling = lsn;
                    model.records.insert(lsn, (group, payload));
                    let synced = log.wait_durable(lsn).is_ok();
                    durable = durable.max(log.durable());
                    if !synced {
                        return false;
                    }
                }
                true
            });
            model.restart(model.files.crash(seed ^ stop), durable);
            if finished {
                return;
            }
        }
    });
}
