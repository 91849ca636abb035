//! A table against a model: random histories, through every way in.

use std::collections::BTreeMap;

use super::{
    Block, Code, Dynamic, Fixed, Kind, PartName, Schema, Single, TablePart, Verb, Verbs, Width,
};
use crate::arena::{Arena, ExtentKind, ExtentUse, MapOptions};
use crate::error::{Error, TableError};
use crate::id::{DirectId, RowId, SurrogateId, hash};

const NAME: PartName = PartName {
    place: 0,
    serial: 1,
};

const ROWS: ExtentUse = ExtentUse {
    owner: 1,
    kind: ExtentKind::Slab,
    number: 9,
    detail: 0,
};

fn arena() -> Arena {
    Arena::new(&MapOptions {
        bytes: 64 << 20,
        node: None,
        huge_pages: false,
    })
    .unwrap()
}

fn row<const N: usize>(seed: u64) -> [u64; N] {
    std::array::from_fn(|column| hash(seed ^ (column as u64) << 48))
}

/// A row, or nothing, by id, through `each`.
fn select<W: Width, I: RowId>(table: &mut TablePart, width: W, ids: &[I]) -> Vec<Option<Vec<u64>>> {
    let mut rows = Vec::new();
    table.each(
        width,
        super::Rolling::ALONE,
        ids.len(),
        |at| ids[at],
        |table, _, place| {
            rows.push(place.map(|place| table.cells(width, place).to_vec()));
        },
    );
    rows
}

#[test]
fn random_history_by_direct_id_matches_the_model_and_stale_ids_find_nothing() {
    let mut arena = arena();
    let mut table = TablePart::new(&mut arena, NAME, 3, 4, false, 0).unwrap();
    let mut model: Vec<(DirectId, Option<[u64; 4]>)> = Vec::new();
    let mut random = 11;
    for step in 0..60_000_u64 {
        random = hash(random);
        let at = (random >> 8) as usize % model.len().max(1);
        match random % 8 {
            0..3 => {
                let new = row(step);
                let place = table.insert(&mut arena, Fixed::<4>, None, &mut Single, |cells| {
                    cells.copy_from_slice(&new)
                });
                model.push((table.id(place.unwrap()), Some(new)));
            }
            3..6 if !model.is_empty() => {
                let place = table.find(model[at].0);
                assert_eq!(place.is_some(), model[at].1.is_some());
                if let Some(place) = place {
                    let new = row(step);
                    table.update(&mut arena, Fixed::<4>, place, &mut Single, |cells| {
                        cells.copy_from_slice(&new)
                    });
                    model[at].1 = Some(new);
                }
            }
            _ if !model.is_empty() => {
                let place = table.find(model[at].0);
                assert_eq!(place.is_some(), model[at].1.is_some());
                if let Some(place) = place {
                    table.delete(&mut arena, place, &mut Single);
                    model[at].1 = None;
                }
            }
            _ => {}
        }
    }
    let ids: Vec<DirectId> = model.iter().map(|(id, _)| *id).collect();
    let expected: Vec<Option<Vec<u64>>> = model
        .iter()
        .map(|(_, row)| row.map(|row| row.to_vec()))
        .collect();
    assert_eq!(select(&mut table, Fixed::<4>, &ids), expected);
    assert_eq!(select(&mut table, Dynamic(4), &ids), expected);
    let live = model.iter().filter(|(_, row)| row.is_some()).count();
    assert_eq!(table.len(), live as u64);
    assert_eq!(table.scan(0..u32::MAX).count(), live);
    table.release(&mut arena);
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn random_mixed_blocks_by_key_match_the_model() {
    let mut arena = arena();
    let mut table = TablePart::new(&mut arena, NAME, 0, 3, true, 0).unwrap();
    let mut model: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
    let mut random = 5;
    for block in 0..600_u64 {
        let count = 1 + (hash(block) % 130) as usize;
        let (mut ids, mut verbs, mut rows, mut expected) = (vec![], vec![], vec![], vec![]);
        for operation in 0..count as u64 {
            random = hash(random);
            let key = random % 3_000;
            let new: [u64; 3] = row(block << 32 | operation);
            let verb = match random >> 40 & 7 {
                0 | 1 => Verb::Insert,
                2 => Verb::Delete,
                3 => Verb::Update,
                4 => Verb::Upsert,
                _ => Verb::Select,
            };
            let old = model.get(&key).copied();
            expected.push(match (verb, old) {
                (Verb::Insert, Some(_)) => (Code::Duplicate, None),
                (Verb::Select, Some(row)) => (Code::Done, Some(row)),
                (Verb::Select | Verb::Update | Verb::Delete, None) => (Code::NotFound, None),
                (Verb::Upsert, None) => (Code::Inserted, None),
                _ => (Code::Done, None),
            });
            match (verb, old) {
                (Verb::Insert, None) | (Verb::Update, Some(_)) | (Verb::Upsert, _) => {
                    model.insert(key, new);
                }
                (Verb::Delete, _) => {
                    model.remove(&key);
                }
                _ => {}
            }
            ids.push(key);
            verbs.push(verb);
            rows.extend(new);
        }
        let mut outcomes = vec![Code::Pending; count];
        let mut block = Block {
            ids: &mut ids,
            verbs: Verbs::Each(&verbs),
            outcomes: &mut outcomes,
            rows: &mut rows,
            rolling: super::Rolling::ALONE,
        };
        table.run::<_, SurrogateId>(&mut arena, Fixed::<3>, &mut block);
        for (at, (code, selected)) in expected.into_iter().enumerate() {
            assert_eq!(outcomes[at], code, "operation {at}: {:?}", verbs[at]);
            if let Some(selected) = selected {
                assert_eq!(rows[at * 3..][..3], selected);
            }
        }
        assert_eq!(table.len(), model.len() as u64);
    }
    let keys: Vec<SurrogateId> = (0..3_000).map(SurrogateId).collect();
    let expected: Vec<_> = keys
        .iter()
        .map(|key| model.get(&key.0).map(|row| row.to_vec()))
        .collect();
    assert_eq!(select(&mut table, Fixed::<3>, &keys), expected);
}

#[test]
fn uniform_blocks_do_what_mixed_blocks_do() {
    for uniform in [true, false] {
        let mut arena = arena();
        let mut table = TablePart::new(&mut arena, NAME, 0, 1, true, 0).unwrap();
        let mut codes = Vec::new();
        for verb in [
            Verb::Insert,
            Verb::Insert,
            Verb::Update,
            Verb::Select,
            Verb::Delete,
            Verb::Delete,
        ] {
            let mut ids: Vec<u64> = (0..100).collect();
            let mut rows: Vec<u64> = (0..100).map(|n| n * 7).collect();
            let mut outcomes = vec![Code::Pending; 100];
            let verbs = vec![verb; 100];
            let verbs = if uniform {
                Verbs::All(verb)
            } else {
                Verbs::Each(&verbs)
            };
            let mut block = Block {
                ids: &mut ids,
                verbs,
                outcomes: &mut outcomes,
                rows: &mut rows,
                rolling: super::Rolling::ALONE,
            };
            table.run::<_, SurrogateId>(&mut arena, Dynamic(1), &mut block);
            codes.push(outcomes[0]);
            assert!(outcomes.iter().all(|&code| code == outcomes[0]));
        }
        use Code::{Done, Duplicate, NotFound};
        assert_eq!(codes, [Done, Duplicate, Done, Done, Done, NotFound]);
    }
}

#[test]
fn slot_is_retired_when_its_generations_are_spent() {
    let mut arena = arena();
    let mut table = TablePart::new(&mut arena, NAME, 0, 1, false, 0).unwrap();
    let mut first = None;
    let mut reused = 0_u64;
    loop {
        let place = table
            .insert(&mut arena, Fixed::<1>, None, &mut Single, |cells| {
                cells[0] = 1
            })
            .unwrap();
        let id = table.id(place);
        if id.slot() != 0 {
            break;
        }
        first.get_or_insert(id);
        reused += 1;
        table.delete(&mut arena, place, &mut Single);
    }
    assert_eq!(reused, u64::from(crate::limits::GENERATION_MAX) - 1);
    assert!(table.find(first.unwrap()).is_none());
}

#[test]
fn full_arena_fails_inserts_and_never_deletes() {
    let mut arena = Arena::new(&MapOptions {
        bytes: 4 << 20,
        node: None,
        huge_pages: false,
    })
    .unwrap();
    let mut table = TablePart::new(&mut arena, NAME, 0, 2, true, 0).unwrap();
    let mut keys = 0;
    let fill = |cells: &mut [u64]| cells.fill(9);
    let error = loop {
        match table.insert(&mut arena, Fixed::<2>, Some(keys), &mut Single, fill) {
            Ok(_) => keys += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error, Error::ArenaFull(full) if full.bound_bytes == 4 << 20),
        "{error}"
    );
    assert_eq!(table.len(), keys);
    // The rest of the arena goes, too, so that the free stack finds no room.
    while arena.allocate(4096, ROWS).is_ok() {}
    for key in 0..keys {
        let place = table.find(SurrogateId(key)).unwrap();
        table.delete(&mut arena, place, &mut Single);
    }
    assert_eq!(table.len(), 0);
    for key in 0..keys {
        table
            .insert(&mut arena, Fixed::<2>, Some(key), &mut Single, fill)
            .unwrap();
    }
    assert_eq!(
        select(&mut table, Fixed::<2>, &[SurrogateId(keys - 1)]),
        [Some(vec![9, 9])]
    );
}

#[test]
fn widths_from_one_to_the_largest_keep_their_cells() {
    for columns in [1, 2, 7, 25, 100, 1023, 1024] {
        let mut arena = arena();
        let mut table = TablePart::new(&mut arena, NAME, 0, columns, true, 0).unwrap();
        for key in 0..50 {
            let fill = |cells: &mut [u64]| {
                cells
                    .iter_mut()
                    .enumerate()
                    .for_each(|(at, cell)| *cell = key ^ at as u64)
            };
            table
                .insert(&mut arena, Dynamic(columns), Some(key), &mut Single, fill)
                .unwrap();
        }
        for key in 0..50 {
            let place = table.find(SurrogateId(key)).unwrap();
            let cells = table.cells(Dynamic(columns), place);
            assert!(
                cells
                    .iter()
                    .enumerate()
                    .all(|(at, &cell)| cell == key ^ at as u64)
            );
        }
    }
}

#[test]
fn schemas_say_what_is_wrong_with_them() {
    let columns = |count| Schema::cells(count).check("t");
    assert_eq!(columns(0), Err(TableError::Columns(0)));
    assert_eq!(columns(1024), Ok(()));
    assert_eq!(columns(1_000_000), Err(TableError::Columns(1025)));
    let twice = Schema::new().column("a", Kind::U64).column("a", Kind::F64);
    assert_eq!(
        twice.check("t"),
        Err(TableError::ColumnTwice("a".to_owned()))
    );
    assert!(matches!(
        Schema::cells(1).check(""),
        Err(TableError::Name(_))
    ));
    assert!(matches!(
        Schema::cells(1).check(&"x".repeat(256)),
        Err(TableError::Name(_))
    ));
    let error = Schema::cells(3)
        .width_of::<[u64; 4]>("t")
        .unwrap_err()
        .to_string();
    assert!(error.contains("the table has 3 columns"), "{error}");
}
