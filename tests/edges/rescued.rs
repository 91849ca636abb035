//! Databases with journals whose files are damaged: what is whole of them is saved, and what is not is told.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ancile::{Durability, Engine, OpenError, Salvage, Schema, SurrogateId, Value, Verbs};

use super::database::{Place, settings};
use super::dump::ancile;
use super::journals::copy;
use super::support::watchdog;

const KEYS: u64 = 40;
const ROUNDS: u64 = 30;
/// In every row, to find it in a file.
const MARK: u64 = 0x5a17_a9ed_0000_0000;

type Row = [u64; 30];

fn row(key: u64, round: u64) -> Row {
    let mut row = [round; 30];
    row[0] = MARK + key;
    row
}

/// A database in which each round has changed all rows of both shards in one transaction; closed, and as
/// it was before.
fn worked(name: &str) -> (Place, Place) {
    let (closed, left) = (Place::new(name), Place::new("left"));
    let engine = settings()
        .durability(Durability::Commit)
        .journal_segment_bytes(1 << 20)
        .open(closed.path())
        .unwrap();
    let table = engine
        .create_table::<Row>("table", Schema::cells(30).keyed())
        .unwrap();
    let mut session = engine.session().unwrap();
    for round in 1..=ROUNDS {
        let done = session.transaction(|transaction| {
            (0..KEYS).try_for_each(|key| {
                let row = row(key, round);
                transaction.upsert(&table, SurrogateId(key), &row).map(drop)
            })
        });
        done.unwrap();
    }
    drop(session);
    copy(closed.path(), left.path());
    engine.close().unwrap();
    (closed, left)
}

/// The round of each row that is saved, by shard and key; and what is told to be lost.
type Saved = (BTreeMap<(usize, u64), u64>, Vec<String>);

fn saved(path: &Path) -> Saved {
    let mut salvage = Salvage::open(path).unwrap();
    let told = |finding: &ancile::Finding| format!("{}: {}", finding.shard, finding.what);
    let lost = salvage.lost().iter().map(told).collect();
    let mut rows = BTreeMap::new();
    let count = salvage.rows("table", |saved| {
        let key = saved.key.unwrap().0;
        let Value::U64(round) = saved.values[1] else {
            panic!("{saved:?}");
        };
        let expected = row(key, round).map(Value::U64);
        assert_eq!(saved.values, expected, "a row that never was");
        rows.insert((saved.id.shard(), key), round);
    });
    assert_eq!(count.unwrap().rows, rows.len() as u64);
    (rows, lost)
}

/// Rounds of the rows of one shard.
fn rounds(saved: &Saved, shard: usize) -> Vec<u64> {
    let rows = saved.0.iter().filter(|((of, _), _)| *of == shard);
    rows.map(|(_, round)| *round).collect()
}

fn segment(base: &Path, shard: usize) -> PathBuf {
    let entries = fs::read_dir(base.join(format!("shard-{shard:04}"))).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_segment = |path: &PathBuf| path.to_str().unwrap().contains("segment.");
    let has_blocks = |path: &PathBuf| last_byte(&fs::read(path).unwrap()) > 4096;
    paths.filter(is_segment).filter(has_blocks).max().unwrap()
}

fn last_byte(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0)
}

fn refusal(path: &Path) -> String {
    let opened = settings().must_exist(true).open(path).map(drop);
    assert!(matches!(opened, Err(OpenError::Recovery(_))), "{opened:?}");
    opened.unwrap_err().to_string()
}

#[test]
fn database_with_whole_journals_is_saved_whole_closed_or_not() {
    let _watchdog = watchdog(300);
    let (closed, left) = worked("rescued-whole");
    for path in [closed.path(), left.path()] {
        let saved = saved(path);
        assert_eq!(saved.1, [""; 0]);
        assert_eq!(saved.0.len() as u64, KEYS);
        assert!(saved.0.values().all(|round| *round == ROUNDS));
    }
}

#[test]
fn shard_whose_journal_is_damaged_is_saved_as_it_was_before_the_damage() {
    let _watchdog = watchdog(300);
    let (_closed, left) = worked("rescued-journal");
    let segment = segment(left.path(), 1);
    let mut bytes = fs::read(&segment).unwrap();
    let middle = (last_byte(&bytes) / 2) & !511;
    bytes[middle..middle + 512].fill(0);
    fs::write(&segment, bytes).unwrap();
    println!("{}", refusal(left.path()));
    let saved = saved(left.path());
    assert!(rounds(&saved, 0).iter().all(|round| *round == ROUNDS));
    let damaged = rounds(&saved, 1);
    assert_eq!((rounds(&saved, 0).len() + damaged.len()) as u64, KEYS);
    assert!(
        damaged.iter().all(|round| *round == damaged[0]),
        "{damaged:?}"
    );
    assert!((2..ROUNDS).contains(&damaged[0]), "{damaged:?}");
    let lost = &saved.1;
    assert!(lost.iter().all(|lost| lost.starts_with("1: ")), "{lost:?}");
    assert!(lost.iter().any(|lost| lost.contains("is lost")), "{lost:?}");
    let Some(output) = ancile(&["salvage", left.path().to_str().unwrap()], "") else {
        return;
    };
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("shard 1: journal: "), "{told}");
}

#[test]
fn rows_in_damaged_pages_of_an_image_are_left_out_and_all_others_are_saved() {
    let _watchdog = watchdog(300);
    let (closed, _left) = worked("rescued-image");
    let path = closed.path().join("shard-0000/image");
    let mut bytes = fs::read(&path).unwrap();
    let whole = saved(closed.path());
    let key = whole.0.keys().find(|(shard, _)| *shard == 0).unwrap().1;
    let mark = (MARK + key).to_le_bytes();
    let at = bytes.windows(8).position(|window| window == mark).unwrap();
    // A cell of this row, which nothing but the page's sum protects.
    bytes[at + 16] ^= 1;
    fs::write(&path, bytes).unwrap();
    println!("{}", refusal(closed.path()));
    let saved = saved(closed.path());
    assert!(!saved.0.contains_key(&(0, key)));
    let missing = whole.0.len() - saved.0.len();
    // A page holds not more rows than that, and two more reach into it.
    assert!((1..=4096 / 240 + 2).contains(&missing), "{missing}");
    assert!(saved.0.values().all(|round| *round == ROUNDS));
    let lost = &saved.1;
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(lost[0].starts_with("0: 1 pages of the image"), "{lost:?}");
}

#[test]
fn shard_without_any_superblock_costs_its_own_rows_only() {
    let _watchdog = watchdog(300);
    let (closed, left) = worked("rescued-superblock");
    for place in [&closed, &left] {
        for lost in [0, 1] {
            let path = place.path().join(format!("shard-{lost:04}/superblock"));
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, vec![0xff; bytes.len()]).unwrap();
            let saved = saved(place.path());
            assert!(rounds(&saved, lost).is_empty());
            let others = rounds(&saved, 1 - lost);
            assert!(others.len() > 5 && others.iter().all(|round| *round == ROUNDS));
            let told = saved
                .1
                .iter()
                .filter(|told| told.starts_with(&format!("{lost}: ")));
            assert!(told.count() > 0, "{:?}", saved.1);
            fs::write(&path, bytes).unwrap();
        }
    }
    drop(Engine::open(closed.path()).unwrap());
}
