//! Accounts in one table: typed rows, keys, a transfer that is all or nothing.

use ancile::{Engine, Error, Schema, SurrogateId, Table, Verbs};

ancile::row! {
    /// An account.
    pub struct Account {
        /// In cents; never negative.
        pub balance: i64,
        /// Transfers so far.
        pub transfers: u64,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder().arena_bytes(64 << 20).build()?;
    let table: Table<Account> = engine.create_table(
        "accounts",
        Schema::of::<Account>().keyed().expect_rows(1_000),
    )?;
    let mut session = engine.session()?;

    let keys: Vec<SurrogateId> = (0..1_000).map(SurrogateId).collect();
    let accounts = vec![
        Account {
            balance: 10_000,
            transfers: 0
        };
        keys.len()
    ];
    session.insert_keyed_batch(&table, &keys, &accounts)?;

    // Two accounts of one shard, so that one transaction reaches both.
    let shard = engine.shard_of(&table, keys[0]);
    let mut here = keys
        .iter()
        .copied()
        .filter(|&key| engine.shard_of(&table, key) == shard);
    let (Some(from), Some(to)) = (here.next(), here.next()) else {
        return Err("no accounts".into());
    };

    for amount in [2_500, 50_000] {
        let moved = session.on(shard, |context| {
            let mut rows = context.rows(&table)?;
            for (key, change) in [(to, amount), (from, -amount)] {
                let Some(mut account) = rows.select(key) else {
                    return Err(Transfer::NoAccount);
                };
                account.balance += change;
                account.transfers += 1;
                rows.update(key, &account)?;
                if account.balance < 0 {
                    return Err(Transfer::Overdrawn);
                }
            }
            Ok(())
        });
        println!("{amount:>6} cents: {moved:?}");
    }

    let balance = |account: Option<Account>| account.map(|account| account.balance);
    assert_eq!(balance(session.select(&table, from)?), Some(7_500));
    assert_eq!(balance(session.select(&table, to)?), Some(12_500));
    Ok(())
}

/// Why a transfer did not happen.
#[derive(Debug)]
enum Transfer {
    NoAccount,
    Overdrawn,
    Engine(#[expect(dead_code, reason = "shown by Debug")] Error),
}

impl From<Error> for Transfer {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}
