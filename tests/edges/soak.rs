//! Money moved between shards by many sessions that come and go: what is there never changes.
//!
//! Two seconds a setting here; as many as `ANCILE_SOAK_SECONDS` says in `scripts/soak`.

use std::time::{Duration, Instant};

use ancile::{
    Engine, Error, Isolation, Schema, Session, SurrogateId, Table, TransactionOptions,
    Transactions, Verbs,
};

use super::support::watchdog;

const SHARDS: usize = 4;
const THREADS: u64 = 8;
const ACCOUNTS: u64 = 96;
const START: u64 = 1 << 40;

/// Balance, transfers by transactions that were waited for.
type Account = [u64; 2];

/// What a thread has seen.
#[derive(Default)]
struct Seen {
    /// Transfers acknowledged.
    moved: u64,
    /// Totals read.
    totals: u64,
    /// Sessions given up.
    dropped: u64,
}

#[test]
fn money_is_neither_made_nor_lost_whatever_the_rings_and_however_sessions_end() {
    let seconds = std::env::var("ANCILE_SOAK_SECONDS").ok();
    let seconds: u64 = seconds.map_or(2, |seconds| seconds.parse().unwrap());
    let _watchdog = watchdog(8 * (seconds + 60));
    for (requests, is_dropping) in [
        (64, false),
        (1, false),
        (2, false),
        (3, false),
        (64, true),
        (1, true),
    ] {
        let engine = Engine::builder()
            .shards(SHARDS)
            .arena_bytes(64 << 20)
            .lane_requests(requests)
            .build()
            .unwrap();
        let table: Table<Account> = engine
            .create_table("accounts", Schema::cells(2).keyed())
            .unwrap();
        let keys: Vec<_> = (0..ACCOUNTS).map(SurrogateId).collect();
        let mut session = engine.session().unwrap();
        let rows = vec![[START, 0]; keys.len()];
        session.insert_keyed_batch(&table, &keys, &rows).unwrap();
        let end = Instant::now() + Duration::from_secs(seconds);
        let seen: Vec<Seen> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|seed| {
                    let (engine, table) = (&engine, &table);
                    scope.spawn(move || client(engine, table, seed, is_dropping, end))
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let sum = |part: fn(&Seen) -> u64| seen.iter().map(part).sum::<u64>();
        let rows = session.select_batch(&table, &keys).unwrap();
        let noted: u64 = rows.iter().flatten().map(|row| row[1]).sum();
        let moved = sum(|seen| seen.moved);
        assert_eq!(
            noted,
            2 * moved,
            "every acknowledged transfer has happened once"
        );
        assert_eq!(total(&mut session, &table), START * ACCOUNTS);
        assert!(moved > 0 && sum(|seen| seen.totals) > 0);
        println!(
            "rings of {requests}: {moved} transfers, {} totals read, {} sessions dropped",
            sum(|seen| seen.totals),
            sum(|seen| seen.dropped)
        );
    }
}

fn client(
    engine: &Engine,
    table: &Table<Account>,
    seed: u64,
    is_dropping: bool,
    end: Instant,
) -> Seen {
    let mut random = seed + 1;
    let mut draw = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695);
        (random >> 33) % below
    };
    let mut seen = Seen::default();
    let mut session = engine.session().unwrap();
    while Instant::now() < end {
        let from = draw(ACCOUNTS);
        let to = (from + 1 + draw(ACCOUNTS - 1)) % ACCOUNTS;
        let (from, to, amount) = (SurrogateId(from), SurrogateId(to), draw(100));
        match draw(20) {
            0 => {
                assert_eq!(total(&mut session, table), START * ACCOUNTS);
                seen.totals += 1;
            }
            1 if is_dropping => {
                give_up(session, table, from, to, amount);
                session = engine.session().unwrap();
                seen.dropped += 1;
            }
            _ => {
                transfer(&mut session, table, from, to, amount);
                seen.moved += 1;
            }
        }
    }
    seen
}

fn transfer(
    session: &mut Session,
    table: &Table<Account>,
    from: SurrogateId,
    to: SurrogateId,
    amount: u64,
) {
    let options = TransactionOptions::new(Isolation::Serializable).tries(u32::MAX);
    let moved = session.transaction_with(options, |transaction| {
        let [have, sent] = transaction.select(table, from)?.unwrap();
        let [other, got] = transaction.select(table, to)?.unwrap();
        transaction.update(table, from, &[have - amount, sent + 1])?;
        transaction.update(table, to, &[other + amount, got + 1])?;
        Ok::<_, Error>(())
    });
    moved.unwrap();
}

/// Begins what it does not wait for: a transaction half put together, and a declared transfer, which
/// may happen or not.
fn give_up(
    mut session: Session,
    table: &Table<Account>,
    from: SurrogateId,
    to: SurrogateId,
    amount: u64,
) {
    let rows = session.select_batch(table, &[from, to]).unwrap();
    let (have, other) = (rows[0].unwrap()[0], rows[1].unwrap()[0]);
    let mut transactions = Transactions::new();
    for (key, before, after) in [(from, have, have - amount), (to, other, other + amount)] {
        transactions
            .update_if(table, key, &[(0, before)], &[(0, after)])
            .unwrap();
    }
    session.start_transactions(&mut transactions).unwrap();
    let mut half = session.begin(TransactionOptions::default()).unwrap();
    half.update(table, from, &[0, 0]).unwrap();
    drop(half);
    drop(session);
}

fn total(session: &mut Session, table: &Table<Account>) -> u64 {
    let options = TransactionOptions::new(Isolation::Serializable)
        .read_only()
        .tries(u32::MAX);
    let keys: Vec<_> = (0..ACCOUNTS).map(SurrogateId).collect();
    let rows = session.transaction_with(options, |transaction| {
        transaction.select_batch(table, &keys)
    });
    rows.unwrap().iter().flatten().map(|row| row[0]).sum()
}
