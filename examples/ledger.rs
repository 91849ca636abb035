//! A ledger that survives the power cord: journals, a backup, and the way back from a mistake.

use std::path::Path;

use ancile::{Durability, Engine, Journals, Schema, Session, SurrogateId, Table, Verbs};

type Accounts = Table<[u64; 1]>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("ancile-ledger-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (ledger, backup) = (folder.join("ledger"), folder.join("backup"));

    let engine = open(&ledger)?;
    let accounts: Accounts = engine.create_table("accounts", Schema::cells(1).keyed())?;
    let mut session = engine.session()?;
    session.insert_keyed_batch(&accounts, &[1, 2].map(SurrogateId), &[[100], [100]])?;
    transfer(&mut session, &accounts, 1, 2)?; // On the disk when this returns.
    engine.backup(&backup)?; // Others may go on meanwhile.
    transfer(&mut session, &accounts, 1, 2)?;
    let before = engine.durable_epoch().ok_or("no journals")?;

    // A mistake, and it is durable, too.
    session.delete(&accounts, SurrogateId(1))?;
    engine.close()?;

    let journals = Journals::open(&ledger)?;
    let undone = journals.roll_back(before, Some(&folder.join("lost")))?;
    println!("back at the end of epoch {}", undone.to);
    assert_eq!(balance(&ledger, 1)?, Some([40]));

    ancile::restore(&backup, folder.join("restored"))?;
    assert_eq!(balance(&folder.join("restored"), 1)?, Some([70]));
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn open(path: &Path) -> Result<Engine, ancile::OpenError> {
    let settings = Engine::builder().shards(2).arena_bytes(64 << 20);
    let settings = settings.journal_segment_bytes(1 << 20);
    settings.durability(Durability::Commit).open(path)
}

/// Thirty from one account to another, in whichever shards they are: all of it or nothing.
fn transfer(session: &mut Session, table: &Accounts, from: u64, to: u64) -> ancile::Result<()> {
    session.transaction(|transaction| {
        let [paid] = transaction.select(table, SurrogateId(from))?.unwrap_or([0]);
        let [got] = transaction.select(table, SurrogateId(to))?.unwrap_or([0]);
        transaction.update(table, SurrogateId(from), &[paid - 30])?;
        transaction.update(table, SurrogateId(to), &[got + 30])?;
        Ok(())
    })
}

fn balance(path: &Path, account: u64) -> Result<Option<[u64; 1]>, Box<dyn std::error::Error>> {
    let engine = open(path)?;
    let accounts: Accounts = engine.open_table("accounts")?;
    Ok(engine.session()?.select(&accounts, SurrogateId(account))?)
}
