//! Accounts in one table: typed rows, keys, a transfer that is all or nothing.

use ancile::{Engine, Error, Schema, SurrogateId, Verbs};

ancile::row! {
    struct Account {
        /// In cents; never negative.
        balance: i64,
        transfers: u64,
    }
}

#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("there is no account {0}")]
    NoAccount(u64),
    #[error("account {0} has not enough")]
    Overdrawn(u64),
    #[error(transparent)]
    Engine(#[from] Error),
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder().arena_bytes(64 << 20).build()?;
    let schema = Schema::of::<Account>().keyed().expect_rows(1_000);
    let accounts = engine.create_table::<Account>("accounts", schema)?;
    let mut session = engine.session()?;

    let keys: Vec<SurrogateId> = (0..1_000).map(SurrogateId).collect();
    let (balance, transfers) = (10_000, 0);
    let rows = vec![Account { balance, transfers }; keys.len()];
    session.insert_keyed_batch(&accounts, &keys, &rows)?;

    for (to, cents) in [(7, 2_500), (7, 50_000), (7_000, 1)] {
        // An error takes back what was changed before, in whichever shards that is.
        let transfer = session.transaction(|transaction| {
            for (number, change) in [(to, cents), (3, -cents)] {
                let key = SurrogateId(number);
                let found = transaction.select(&accounts, key)?;
                let mut account = found.ok_or(Refused::NoAccount(number))?;
                account.balance += change;
                account.transfers += 1;
                if account.balance < 0 {
                    return Err(Refused::Overdrawn(number));
                }
                transaction.update(&accounts, key, &account)?;
            }
            Ok(())
        });
        match transfer {
            Ok(()) => println!("{cents} cents to {to}"),
            Err(refused) => println!("{cents} cents to {to}: {refused}"),
        }
    }

    let rows = session.select_batch(&accounts, &[3, 7].map(SurrogateId))?;
    let balances: Vec<i64> = rows.into_iter().flatten().map(|row| row.balance).collect();
    assert_eq!(balances, [7_500, 12_500]);
    Ok(())
}
