//! Many operations under way from one thread: submit now, complete later.

use ancile::{Engine, Outcome, Schema, SurrogateId, Table, Verbs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder().arena_bytes(64 << 20).build()?;
    let table: Table<[u64; 2]> = engine.create_table("squares", Schema::cells(2).keyed())?;
    let mut session = engine.session()?;
    let mut pipeline = session.pipeline::<_, SurrogateId>(&table);

    let (mut inserted, mut found) = (0, 0);
    for n in 0..10_000 {
        pipeline.insert(SurrogateId(n), &[n, n * n])?;
        pipeline.select(SurrogateId(n / 2))?;
        // Take what is there, without waiting.
        while let Some((_, outcome)) = pipeline.complete()? {
            count(&outcome, &mut inserted, &mut found);
        }
    }
    while let Some((_, outcome)) = pipeline.wait()? {
        count(&outcome, &mut inserted, &mut found);
    }
    println!("{inserted} inserted, {found} found");
    assert_eq!((inserted, found), (10_000, 10_000));
    Ok(())
}

fn count(outcome: &Outcome<[u64; 2]>, inserted: &mut u64, found: &mut u64) {
    match outcome {
        Outcome::Inserted(_) => *inserted += 1,
        Outcome::Selected([n, square]) if square == &(n * n) => *found += 1,
        other => panic!("{other:?}"),
    }
}
