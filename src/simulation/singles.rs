//! What simulated clients do besides transactions with a handle: single operations, blocks, closures,
//! and transactions that are written down before they run.

use std::collections::BTreeSet;
use std::panic::resume_unwind;

use super::history::{Cells, Draft, Fate, Kind, columns_of, row_of, value_of};
use super::scripts::{Focus, Key, Rows, Scene, name_of, name_of_key};
use crate::error::Error;
use crate::id::{RowId, SurrogateId};
use crate::session::{TransactionOutcome, Transactions, Verbs};
use crate::shard::Context;
use crate::table::{Batch, Compared, Outcome, watch};

/// A single operation on a row of a keyed table.
pub(super) fn single(scene: &Scene, session: &mut impl Verbs) {
    let Key { table, key } = scene.any_key();
    let row = name_of_key(*key);
    let value = scene.book.new_value();
    let verb = match scene.focus {
        // Rows come and go.
        Focus::Readers => [1, 5, 5][scene.choices().below(3) as usize],
        _ => scene.choices().below(8),
    };
    let kind = if verb == 0 {
        Kind::ReadCommitted
    } else {
        Kind::Atomic
    };
    let condition = if verb == 6 {
        session.select(table, *key).unwrap().map(value_of)
    } else {
        None
    };
    let node = scene.book.begin(kind);
    let mut draft = Draft::new(kind);
    let from = watch::moment();
    let mut told = |there: bool, value: Option<u64>, whole: bool| {
        if there {
            draft.made(row, true, value, whole);
        } else {
            draft.saw(row, None, from);
        }
    };
    match verb {
        0 => {
            let seen = session.select(table, *key).unwrap();
            draft.saw(row, seen.map(value_of), from);
        }
        1 => match session.insert_keyed(table, *key, &row_of(value)) {
            Ok(id) => {
                draft.made(row, false, Some(value), true);
                let key = Key {
                    table: table.clone(),
                    key: *key,
                };
                scene.keyed_places.borrow_mut().push((key, id));
            }
            Err(error) => assert!(matches!(error, Error::Duplicate { .. }), "{error:?}"),
        },
        2 => {
            let there = session.upsert(table, *key, &row_of(value)).unwrap();
            draft.made(row, there, Some(value), true);
        }
        3 => told(
            session.update(table, *key, &row_of(value)).unwrap(),
            Some(value),
            true,
        ),
        4 => {
            let there = session.update_columns(table, *key, &columns_of(value));
            told(there.unwrap(), Some(value), false);
        }
        5 => told(session.delete(table, *key).unwrap(), None, false),
        _ => change_if(session, &mut draft, (table, *key), condition, value),
    }
    scene.book.note(node, &draft, Fate::Committed);
    scene.count(|counts| counts.others += 1);
}

/// A change on a condition, which is that the row has a value, if one is known.
fn change_if(
    session: &mut impl Verbs,
    draft: &mut Draft,
    (table, key): (&Rows, SurrogateId),
    condition: Option<u64>,
    value: u64,
) {
    let row = name_of_key(key);
    let from = watch::moment();
    let expected = condition.unwrap_or(value);
    let compared = session.update_if(table, key, &[(0, expected)], &columns_of(value));
    match compared.unwrap() {
        Compared::Updated => {
            draft.relies_on(row, expected, from);
            draft.made(row, true, Some(value), false);
        }
        Compared::Differs => {}
        Compared::NotFound => draft.saw(row, None, from),
    }
}

/// A single operation on the table without keys.
pub(super) fn place(scene: &Scene, session: &mut impl Verbs) {
    let value = scene.book.new_value();
    let verb = scene.choices().below(4);
    let id = scene.any_place();
    let kind = if verb == 0 {
        Kind::ReadCommitted
    } else {
        Kind::Atomic
    };
    let node = scene.book.begin(kind);
    let mut draft = Draft::new(kind);
    let from = watch::moment();
    match (verb, id) {
        (0, Some(id)) => {
            let seen = session.select(&scene.plain, id).unwrap();
            draft.saw(name_of(id), seen.map(value_of), from);
        }
        (1, Some(id)) => {
            if session.delete(&scene.plain, id).unwrap() {
                draft.made(name_of(id), true, None, false);
            } else {
                draft.saw(name_of(id), None, from);
            }
        }
        (2, Some(id)) => {
            if session.update(&scene.plain, id, &row_of(value)).unwrap() {
                draft.made(name_of(id), true, Some(value), true);
            } else {
                draft.saw(name_of(id), None, from);
            }
        }
        _ => {
            let id = session.insert(&scene.plain, &row_of(value)).unwrap();
            draft.made(name_of(id), false, Some(value), true);
            scene.places.borrow_mut().push(id);
        }
    }
    scene.book.note(node, &draft, Fate::Committed);
    scene.count(|counts| counts.others += 1);
}

/// Operations on different rows in one batch, each a node of its own.
pub(super) fn block(scene: &Scene, session: &mut impl Verbs) {
    let table = &scene.any_key().table;
    let mut batch = Batch::<Cells, SurrogateId>::new(table, scene.keys.len());
    let mut nodes = Vec::new();
    let from = watch::moment();
    for key in &scene.keys {
        if key.table.key() != table.key() || scene.one_in(3) {
            continue;
        }
        let value = scene.book.new_value();
        let verb = scene.choices().below(5);
        let (id, row) = (key.key, row_of(value));
        match verb {
            0 => batch.select(id),
            1 => batch.update(id, &row),
            2 => batch.delete(id),
            3 => batch.insert(id, &row),
            _ => batch.upsert(id, &row),
        }
        .unwrap();
        let kind = if verb == 0 {
            Kind::ReadCommitted
        } else {
            Kind::Atomic
        };
        nodes.push((scene.book.begin(kind), Draft::new(kind), key, value));
    }
    session.run(&mut batch).unwrap();
    assert_eq!(batch.outcomes().len(), nodes.len());
    for ((node, mut draft, key, value), outcome) in nodes.into_iter().zip(batch.outcomes()) {
        let row = key.name();
        match outcome {
            Outcome::Selected(cells) => draft.saw(row, Some(value_of(*cells)), from),
            Outcome::Updated => draft.made(row, true, Some(value), true),
            Outcome::Inserted(_) => draft.made(row, false, Some(value), true),
            Outcome::Deleted => draft.made(row, true, None, false),
            Outcome::NotFound => draft.saw(row, None, from),
            Outcome::Failed(Error::Duplicate { .. }) => {}
            Outcome::Failed(error) => panic!("{error:?}"),
        }
        scene.book.note(node, &draft, Fate::Committed);
    }
    scene.count(|counts| counts.others += 1);
}

/// A closure shipped to a shard: some changes there, all or none.
pub(super) fn closure(scene: &Scene, session: &mut impl Verbs) {
    let shards = scene.world.peers.shards();
    let shard = scene.choices().below(shards as u64) as usize;
    let keys: Vec<&Key> = scene
        .keys
        .iter()
        .filter(|key| key.key.shard_of(shards) == shard)
        .collect();
    if keys.is_empty() {
        return;
    }
    let mut plan = Vec::new();
    for _ in 0..1 + scene.choices().below(4) {
        let key = keys[scene.choices().below(keys.len() as u64) as usize];
        plan.push((
            key.clone(),
            scene.choices().below(5),
            scene.book.new_value(),
        ));
    }
    let end = scene.choices().below(8);
    let node = scene.book.begin(Kind::Atomic);
    let mut draft = Draft::new(Kind::Atomic);
    let result = session.on(shard, |context| {
        for (key, verb, value) in &plan {
            closure_step(context, &mut draft, key, *verb, *value)?;
        }
        match end {
            0 => Err(Error::NotKeyed),
            1 => resume_unwind(Box::new("as planned")),
            _ => Ok(()),
        }
    });
    let fate = if result.is_ok() {
        Fate::Committed
    } else {
        Fate::Failed
    };
    scene.book.note(node, &draft, fate);
    scene.count(|counts| counts.others += 1);
}

fn closure_step(
    context: &mut Context<'_>,
    draft: &mut Draft,
    key: &Key,
    verb: u64,
    value: u64,
) -> Result<(), Error> {
    let row = key.name();
    let from = watch::moment();
    let mut rows = context.rows(&key.table)?;
    match verb {
        0 => draft.saw(row, rows.select(key.key).map(value_of), from),
        1 => {
            let there = rows.upsert(key.key, &row_of(value))?;
            draft.made(row, there, Some(value), true);
        }
        2 => {
            if rows.delete(key.key)? {
                draft.made(row, true, None, false);
            }
        }
        3 => {
            if rows.update_columns(key.key, &columns_of(value))? {
                draft.made(row, true, Some(value), false);
            }
        }
        _ => {
            if rows.update(key.key, &row_of(value))? {
                draft.made(row, true, Some(value), true);
            }
        }
    }
    Ok(())
}

/// Transactions that are written down before they run, each a node of its own.
pub(super) fn declared(scene: &Scene, session: &mut impl Verbs) {
    let mut transactions = Transactions::new();
    let mut nodes = Vec::new();
    let mut deleted = BTreeSet::new();
    for _ in 0..1 + scene.choices().below(5) {
        transactions.begin();
        let node = scene.book.begin(Kind::ReadCommitted);
        let mut draft = Draft::new(Kind::ReadCommitted);
        let mut rows = Vec::new();
        for key in &scene.keys {
            if scene.one_in(2) {
                let draft = &mut draft;
                declare(scene, session, &mut transactions, draft, key, &mut deleted);
                rows.push(key.name());
            }
        }
        if scene.one_in(3) {
            let value = scene.book.new_value();
            transactions.insert(&scene.plain, &row_of(value)).unwrap();
            draft.placed.push(value);
        }
        nodes.push((node, draft, rows));
    }
    for (node, draft, _) in &nodes {
        scene.book.send(*node, draft);
    }
    let from = watch::moment();
    let committed = session.run_transactions(&mut transactions).unwrap();
    let is_committed = |outcome: &&TransactionOutcome| **outcome == TransactionOutcome::Committed;
    let outcomes = transactions.outcomes();
    assert_eq!(outcomes.iter().filter(is_committed).count(), committed);
    for ((node, draft, rows), outcome) in nodes.into_iter().zip(outcomes) {
        let mut found = Draft::new(Kind::ReadCommitted);
        match outcome {
            TransactionOutcome::Committed => {
                scene.book.note(node, &draft, Fate::Committed);
                continue;
            }
            TransactionOutcome::NotFound { operation } => found.saw(rows[*operation], None, from),
            TransactionOutcome::Duplicate { .. } | TransactionOutcome::Differs { .. } => {}
            other => panic!("{other:?}"),
        }
        scene.book.note(node, &found, Fate::Failed);
    }
    scene.count(|counts| counts.others += 1);
}

/// One operation of a declared transaction.
fn declare(
    scene: &Scene,
    session: &mut impl Verbs,
    transactions: &mut Transactions,
    draft: &mut Draft,
    Key { table, key }: &Key,
    deleted: &mut BTreeSet<u64>,
) {
    let row = name_of_key(*key);
    let value = scene.book.new_value();
    let (cells, columns) = (row_of(value), columns_of(value));
    match scene.choices().below(6) {
        0 => {
            transactions.upsert(table, *key, &cells).unwrap();
            draft.wants(row, None, Some(value), true);
        }
        1 => {
            transactions.insert_keyed(table, *key, &cells).unwrap();
            draft.wants(row, Some(false), Some(value), true);
        }
        // Of two deletes it would not be known which one it was.
        2 if deleted.insert(key.0) => {
            transactions.delete(table, *key).unwrap();
            draft.wants(row, Some(true), None, false);
        }
        3 | 4 => {
            let from = watch::moment();
            let seen = session.select(table, *key).unwrap().map(value_of);
            let condition = [(0, seen.unwrap_or(value))];
            transactions
                .update_if(table, *key, &condition, &columns)
                .unwrap();
            draft.wants(row, Some(true), Some(value), false);
            draft.relies_on(row, condition[0].1, from);
        }
        _ => {
            transactions.update_columns(table, *key, &columns).unwrap();
            draft.wants(row, Some(true), Some(value), false);
        }
    }
}

/// Operations that are under way when their client goes away.
pub(super) fn forgotten(scene: &Scene, session: &mut impl Verbs) -> bool {
    let table = &scene.any_key().table;
    let mut pipeline = session.pipeline::<_, SurrogateId>(table);
    for key in &scene.keys {
        if key.table.key() != table.key() {
            continue;
        }
        let value = scene.book.new_value();
        let node = scene.book.begin(Kind::Atomic);
        let mut draft = Draft::new(Kind::Atomic);
        if scene.one_in(2) {
            pipeline.upsert(key.key, &row_of(value)).unwrap();
            draft.wants(key.name(), None, Some(value), true);
        } else {
            pipeline.delete(key.key).unwrap();
            draft.wants(key.name(), Some(true), None, false);
        }
        scene.book.send(node, &draft);
    }
    if scene.one_in(2) {
        pipeline.flush().unwrap();
    }
    std::mem::forget(pipeline);
    false
}
