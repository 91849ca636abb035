//! Sessions whose calls are futures, on an executor of fifteen lines.

use std::task::{Context, Poll, Wake, Waker};
use std::{pin::pin, sync::Arc};

use ancile::{AsyncSession, Engine, Error, Schema, SurrogateId, Table};

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

async fn transfer(
    session: &mut AsyncSession,
    accounts: &Table<[u64; 1]>,
    [from, to]: [SurrogateId; 2],
) -> Result<bool, Error> {
    let body = async |transaction: &mut ancile::AsyncTransaction<'_>| {
        let [paid] = transaction.select(accounts, from).await?.unwrap();
        let [got] = transaction.select(accounts, to).await?.unwrap();
        transaction.update(accounts, from, &[paid - 1]).await?;
        transaction.update(accounts, to, &[got + 1]).await
    };
    session.transaction(body).await
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder().shards(2).arena_bytes(64 << 20).build()?;
    let accounts = engine.create_table("accounts", Schema::cells(1).keyed())?;
    let mut session = engine.async_session()?;
    let keys = [1, 2].map(SurrogateId);
    let rows = block_on(async {
        let rows = [[100]; 2];
        session.insert_keyed_batch(&accounts, &keys, &rows).await?;
        for _ in 0..30 {
            transfer(&mut session, &accounts, keys).await?;
        }
        session.select_batch(&accounts, &keys).await
    })?;
    assert_eq!(rows, [Some([70]), Some([130])]);
    println!("{rows:?}\n{}", engine.stats()?);
    Ok(())
}
