//! Rows of the program's own type whose code panics while they are stored: no half row is left.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ancile::{
    DirectId, Engine, Error, Fixed, Kind, Outcome, Result, Row, Schema, SurrogateId, Table, Verbs,
};

use super::support::{engine, watchdog};

/// A row that is two equal cells, unless storing it panics between the two.
#[derive(Clone, Debug, PartialEq)]
struct Brittle(u64);

const BREAKS: Brittle = Brittle(13);

impl Row for Brittle {
    type Width = Fixed<2>;

    fn fields() -> Option<&'static [(&'static str, Kind)]> {
        None
    }

    fn columns(&self) -> usize {
        2
    }

    fn store(&self, cells: &mut [u64]) {
        cells[0] = self.0;
        assert_ne!(*self, BREAKS, "storing breaks");
        cells[1] = self.0;
    }

    fn load(cells: &[u64]) -> Self {
        assert_eq!(cells[0], cells[1], "half a row");
        Self(cells[0])
    }
}

const KEY: SurrogateId = SurrogateId(1);

fn tables(engine: &Engine) -> (Table<Brittle>, Table<Brittle>) {
    let schema = Schema::cells(2);
    let unkeyed = engine.create_table("t", schema.clone()).unwrap();
    (unkeyed, engine.create_table("k", schema.keyed()).unwrap())
}

fn breaks<T>(work: impl FnOnce() -> T) {
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
}

/// One row in the table without keys, none in the other, and room for more.
fn check(client: &mut impl Verbs, unkeyed: &Table<Brittle>, keyed: &Table<Brittle>, id: DirectId) {
    assert_eq!(client.select(unkeyed, id), Ok(Some(Brittle(1))));
    let counts = (client.count(unkeyed), client.count(keyed));
    assert_eq!(counts, (Ok(1), Ok(0)));
    assert_eq!(client.select(keyed, KEY), Ok(None));
    for n in 20..30 {
        let id = client.insert(unkeyed, &Brittle(n)).unwrap();
        client.insert_keyed(keyed, KEY, &Brittle(n)).unwrap();
        assert_eq!(client.select(unkeyed, id), Ok(Some(Brittle(n))));
        assert_eq!(client.select(keyed, KEY), Ok(Some(Brittle(n))));
        assert_eq!(client.delete(unkeyed, id), Ok(true));
        assert_eq!(client.delete(keyed, KEY), Ok(true));
    }
}

#[test]
fn row_that_breaks_in_a_transaction_is_undone() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let (unkeyed, keyed) = tables(&engine);
    let owner = engine.shard_of(&keyed, KEY);
    let mut session = engine.session().unwrap();
    let id = session.insert(&unkeyed, &Brittle(1)).unwrap();
    let is_broken = |result: Result<()>| match result {
        Err(Error::Panicked { message }) => assert!(message.contains("storing breaks")),
        other => panic!("{other:?}"),
    };
    is_broken(session.on(owner, |context| {
        context.rows(&unkeyed)?.insert(&BREAKS).map(drop)
    }));
    is_broken(session.on(owner, |context| {
        context.rows(&keyed)?.insert_keyed(KEY, &BREAKS).map(drop)
    }));
    is_broken(session.on(id.shard(), |context| {
        context.rows(&unkeyed)?.update(id, &BREAKS).map(drop)
    }));
    check(&mut session, &unkeyed, &keyed, id);
}

#[test]
fn row_that_breaks_in_a_resident_is_not_there() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let (unkeyed, keyed) = tables(&engine);
    let owner = engine.shard_of(&keyed, KEY);
    let task = engine.spawn(owner, move |resident| {
        let id = resident.insert(&unkeyed, &Brittle(1)).unwrap();
        breaks(|| resident.insert(&unkeyed, &BREAKS));
        breaks(|| resident.insert_keyed(&keyed, KEY, &BREAKS));
        breaks(|| resident.rows(&keyed).unwrap().insert_keyed(KEY, &BREAKS));
        // Of a batch those before it are there.
        let rows = [Brittle(20), BREAKS, Brittle(21)];
        breaks(|| {
            let mut here = resident.rows(&unkeyed).unwrap();
            here.insert_batch(&rows, &mut Vec::new())
        });
        let mut here = resident.rows(&unkeyed).unwrap();
        let first = here.scan().find(|(_, row)| *row == rows[0]);
        assert_eq!(here.count(), 2);
        assert_eq!(here.delete(first.unwrap().0), Ok(true));
        check(resident, &unkeyed, &keyed, id);
    });
    task.unwrap().join().unwrap();
}

#[test]
fn row_that_breaks_in_a_session_or_its_pipeline_is_not_sent() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let (unkeyed, keyed) = tables(&engine);
    let mut session = engine.session().unwrap();
    let id = session.insert(&unkeyed, &Brittle(1)).unwrap();
    breaks(|| session.insert(&unkeyed, &BREAKS));
    breaks(|| session.insert_keyed(&keyed, KEY, &BREAKS));
    breaks(|| session.update(&unkeyed, id, &BREAKS));
    let mut pipeline = session.pipeline(&keyed);
    breaks(|| pipeline.upsert(KEY, &BREAKS));
    pipeline.upsert(SurrogateId(5), &Brittle(5)).unwrap();
    breaks(|| pipeline.upsert(SurrogateId(5), &BREAKS));
    pipeline.delete(SurrogateId(5)).unwrap();
    let (mut answers, mut deleted) = (0, 0);
    while let Some((_, outcome)) = pipeline.wait().unwrap() {
        answers += 1;
        deleted += u32::from(outcome == Outcome::Deleted);
    }
    assert_eq!((answers, deleted), (2, 1));
    drop(pipeline);
    check(&mut session, &unkeyed, &keyed, id);
}
