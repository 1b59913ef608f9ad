use super::*;
use oribi_sim::SimClock;

const MINUTE: u64 = 60_000_000;

fn tracker() -> (ResultTracker, Arc<SimClock>) {
    let clock = Arc::new(SimClock::new());
    (ResultTracker::new(clock.clone(), Arc::new(MemoryBudget::new(64 << 20))), clock)
}

fn request(sequence: i64, first_incomplete: i64) -> Request<'static> {
    Request { client: b"client", sequence, first_incomplete }
}

fn commit(lsn: Lsn) -> Commit {
    Commit { ts: Timestamp(lsn * 10), obligation: Obligation { written: lsn, ..Obligation::default() } }
}

fn execute(tracker: &ResultTracker, request: Request<'static>, lsn: Lsn, result: &[u8]) {
    match tracker.begin(request).unwrap() {
        Begun::Execute(mut execution) => execution.finish(commit(lsn), result.into()),
        Begun::Known(known) => panic!("{known:?}"),
    }
}

/// What is known of a request, if anything is.
fn known(tracker: &ResultTracker, request: Request<'static>) -> Option<Tracked> {
    match tracker.begin(request).unwrap() {
        Begun::Execute(_given_up) => None,
        Begun::Known(known) => Some(known),
    }
}

fn result(tracker: &ResultTracker, request: Request<'static>) -> Vec<u8> {
    match known(tracker, request) {
        Some(Tracked::Answered(answered)) => answered.result.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn is_stale(tracker: &ResultTracker, request: Request<'static>) -> bool {
    matches!(known(tracker, request), Some(Tracked::Stale))
}

fn is_counted_right(tracker: &ResultTracker) -> bool {
    let clients = tracker.clients.lock();
    let bytes: usize = clients.by_id.values().map(Client::bytes).sum();
    bytes == clients.bytes && tracker.budget.results() == bytes as u64
}

/// A result whose record a power cut may take must not be in the manifest: its write would be lost, and answered for.
#[test]
fn a_checkpoint_has_the_results_below_the_start_of_the_log_and_no_others() {
    let (tracker, clock) = tracker();
    for sequence in 0..4 {
        execute(&tracker, request(sequence, sequence.min(1)), 10 + sequence as u64, b"result");
    }
    let Begun::Execute(under_way) = tracker.begin(request(4, 1)).unwrap() else { panic!("it is the first") };
    let (checkpoint, saved) = tracker.checkpoint(12, None).unwrap();
    assert_eq!(saved, None, "two results are left to the log");
    drop(under_way);
    let [client] = &checkpoint[..] else { panic!("{checkpoint:?}") };
    let stored: Vec<_> = client.results.iter().map(|stored| (stored.sequence, stored.ts)).collect();
    assert_eq!((client.forgotten_below, stored), (1, vec![(1, commit(11).ts)]));

    let json = serde_json::to_string(&checkpoint).unwrap();
    assert_eq!(serde_json::from_str::<Vec<ClientResults>>(&json).unwrap(), checkpoint);
    let restored = ResultTracker::new(clock, tracker.budget.clone());
    restored.restore(&checkpoint);
    assert!(is_stale(&restored, request(0, 0)));
    assert_eq!(result(&restored, request(1, 0)), b"result");
    assert!(known(&restored, request(2, 0)).is_none());
    // What was restored is durable: the next checkpoint has it wherever the log starts.
    let (again, saved) = restored.checkpoint(1, None).unwrap();
    assert_eq!(again, checkpoint);
    assert_eq!(restored.checkpoint(1, saved), None, "nothing has changed");
    execute(&restored, request(2, 1), 20, b"result");
    assert_eq!(restored.checkpoint(21, saved).unwrap().0[0].results.len(), 2);
    assert!(is_counted_right(&restored));
}

#[test]
fn the_log_may_tell_of_requests_that_the_manifest_knows_or_knows_to_be_forgotten() {
    let (tracker, _) = tracker();
    let (client, result_of) = (Arc::from(*b"client"), |sequence| checkpoint::StoredResult {
        sequence,
        ts: Timestamp(7),
        result: (*b"kept").into(),
    });
    tracker.restore(&[ClientResults { client, forgotten_below: 5, results: vec![result_of(5)] }]);
    for sequence in 3..8 {
        let found = record::Tracked { request: request(sequence, 2), result: b"logged" };
        tracker.recover(Timestamp(7), &found);
    }
    assert!(is_stale(&tracker, request(4, 0)));
    assert_eq!(result(&tracker, request(5, 0)), b"kept");
    assert_eq!(result(&tracker, request(7, 0)), b"logged");
}

#[test]
fn results_are_forgotten_in_order_whenever_they_come() {
    let (tracker, clock) = tracker();
    execute(&tracker, request(1, 0), 1, b"");
    clock.advance(6 * MINUTE);
    execute(&tracker, request(0, 0), 2, b"late");
    clock.advance(4 * MINUTE);
    assert_eq!(result(&tracker, request(1, 0)), b"", "not before those below");
    assert_eq!(result(&tracker, request(0, 0)), b"late");
    clock.advance(6 * MINUTE);
    tracker.sweep();
    assert!(is_counted_right(&tracker));
    assert_eq!(tracker.clients.lock().bytes, CLIENT_BYTES);
    assert!(is_stale(&tracker, request(0, 0)) && is_stale(&tracker, request(1, 0)));
    clock.advance(59 * MINUTE);
    tracker.sweep();
    assert!(is_stale(&tracker, request(1, 0)));
    clock.advance(60 * MINUTE);
    tracker.sweep();
    assert_eq!(tracker.clients.lock().bytes, 0);
    assert!(is_counted_right(&tracker));
}

#[test]
fn a_request_that_is_under_way_outlives_the_memory_of_it() {
    let (tracker, clock) = tracker();
    let Begun::Execute(mut slow) = tracker.begin(request(0, 0)).unwrap() else { panic!("it is the first") };
    clock.advance(70 * MINUTE);
    tracker.sweep();
    assert!(matches!(known(&tracker, request(0, 0)), Some(Tracked::UnderWay(_))));
    execute(&tracker, request(1, 1), 2, b"");
    assert!(is_stale(&tracker, request(0, 0)), "the client gave it up");
    slow.finish(commit(3), (*b"too late").into());
    assert!(is_stale(&tracker, request(0, 0)));
    assert_eq!(tracker.checkpoint(9, None).unwrap().0[0].results.len(), 1);
    assert!(is_counted_right(&tracker));
}

#[test]
fn clients_that_only_begin_are_within_bounds_too() {
    let (tracker, clock) = tracker();
    let ids: Vec<[u8; 8]> = (0..30_000u64).map(u64::to_be_bytes).collect();
    let mut under_way = Vec::new();
    for (i, id) in ids.iter().enumerate() {
        clock.advance(1);
        let request = Request { client: id, sequence: 0, first_incomplete: 0 };
        let begun = tracker.begin(request).unwrap();
        under_way.extend((i < 10).then_some(begun));
        assert!(tracker.clients.lock().bytes <= tracker.bytes_max);
    }
    assert!(is_counted_right(&tracker));
    for begun in under_way {
        let Begun::Execute(mut execution) = begun else { panic!("it is the first") };
        execution.finish(commit(1), (*b"result").into());
    }
    let first = Request { client: &ids[0], sequence: 0, first_incomplete: 0 };
    assert!(matches!(tracker.begin(first).unwrap(), Begun::Known(Tracked::Answered(_))));
    assert!(is_counted_right(&tracker));
}

#[test]
fn a_queue_that_was_long_gives_its_memory_back() {
    let (tracker, _) = tracker();
    for sequence in 0..1000 {
        execute(&tracker, request(sequence, 0), 1, b"");
    }
    execute(&tracker, request(1000, 1000), 1, b"");
    let clients = tracker.clients.lock();
    assert!(clients.by_id.values().all(|client| client.room() <= 16));
}
