//! The ten schedules of Hermitage, and some more, each for both isolations, over one shard and over two.
//!
//! They are Kleppmann's, with the outcomes that [`Isolation`] promises. Two differ from his: nobody
//! waits for a row that somebody else has changed and not committed, as changes stay with their
//! client; and there are no scans in transactions, so predicates (PMP, G2) are looks for keys that are
//! not there, and phantoms come by key.

use std::rc::Rc;

use super::{Client, Setting, World};
use crate::error::Error;
use crate::id::{RowId, SurrogateId};
use crate::session::{Isolation, Transaction, TransactionOptions, Verbs};
use crate::table::{Compared, Schema, Table};

use Isolation::{ReadCommitted, Serializable};

type Row = [u64; 1];
type Open<'a> = Transaction<'a, Client<'static>>;

/// Two rows that are there, 10 and 20, and two keys that are not.
struct Case {
    world: Rc<World>,
    table: Table<Row>,
    x: SurrogateId,
    y: SurrogateId,
    a: SurrogateId,
    b: SurrogateId,
    isolation: Isolation,
}

impl Case {
    fn client(&self) -> Client<'static> {
        self.world.client()
    }

    fn begin<'a>(&self, client: &'a mut Client<'static>) -> Open<'a> {
        client
            .begin(TransactionOptions::new(self.isolation))
            .unwrap()
    }

    fn is_serializable(&self) -> bool {
        self.isolation == Serializable
    }

    fn read(&self, transaction: &mut Open<'_>, key: SurrogateId) -> Option<u64> {
        transaction
            .select(&self.table, key)
            .unwrap()
            .map(|[value]| value)
    }

    fn write(&self, transaction: &mut Open<'_>, key: SurrogateId, value: u64) {
        assert!(transaction.update(&self.table, key, &[value]).unwrap());
    }

    fn insert(&self, transaction: &mut Open<'_>, key: SurrogateId, value: u64) {
        transaction
            .insert_keyed(&self.table, key, &[value])
            .unwrap();
    }

    /// Commits, which is a conflict where the case allows nothing else.
    fn commit(&self, transaction: Open<'_>, is_conflict: bool) {
        let expected = if is_conflict {
            Err(Error::Conflict { tries: 1 })
        } else {
            Ok(())
        };
        assert_eq!(transaction.commit(), expected, "{:?}", self.isolation);
    }

    /// What is committed of the two rows.
    fn rows(&self) -> [Option<u64>; 2] {
        let mut client = self.client();
        [self.x, self.y].map(|key| {
            client
                .select(&self.table, key)
                .unwrap()
                .map(|[value]| value)
        })
    }
}

/// Runs a schedule for each isolation, with the rows in one shard, and with each in another.
fn for_each_case(schedule: impl Fn(&Case)) {
    for isolation in [ReadCommitted, Serializable] {
        for shards in [1, 2] {
            let setting = Setting {
                shards,
                lane_requests: 3,
                block_operations: 2,
                delay_max: 3,
                relay_delay_max: 3,
            };
            let world = World::new(7, setting);
            let table = world.table("rows", &Schema::cells(1).keyed());
            let key_in = |shard: usize, nth: usize| {
                let mut keys = (0..).map(SurrogateId);
                let is_there = |key: &SurrogateId| key.shard_of(shards) == shard;
                keys.by_ref().filter(is_there).nth(nth).unwrap()
            };
            let last = shards - 1;
            let case = Case {
                x: key_in(last, 0),
                y: key_in(0, 1),
                a: key_in(0, 2),
                b: key_in(last, 3),
                world,
                table,
                isolation,
            };
            let mut client = case.client();
            client.insert_keyed(&case.table, case.x, &[10]).unwrap();
            client.insert_keyed(&case.table, case.y, &[20]).unwrap();
            schedule(&case);
        }
    }
}

#[test]
fn g0_two_transactions_never_mix_their_changes() {
    for_each_case(|case| {
        let (mut one, mut two) = (case.client(), case.client());
        let (mut one, mut two) = (case.begin(&mut one), case.begin(&mut two));
        case.write(&mut one, case.x, 11);
        case.write(&mut two, case.x, 12);
        case.write(&mut one, case.y, 21);
        case.commit(one, false);
        assert_eq!(case.rows(), [Some(11), Some(21)]);
        case.write(&mut two, case.y, 22);
        // Changing a row looks at it first, which is what a serializable transaction relies on.
        case.commit(two, case.is_serializable());
        let expected = if case.is_serializable() {
            [Some(11), Some(21)]
        } else {
            [Some(12), Some(22)]
        };
        assert_eq!(case.rows(), expected);
    });
}

#[test]
fn g1a_what_is_rolled_back_is_never_seen() {
    for_each_case(|case| {
        let (mut one, mut two) = (case.client(), case.client());
        let (mut one, mut two) = (case.begin(&mut one), case.begin(&mut two));
        case.write(&mut one, case.x, 101);
        assert_eq!(case.read(&mut two, case.x), Some(10));
        one.roll_back();
        assert_eq!(case.read(&mut two, case.x), Some(10));
        case.commit(two, false);
        assert_eq!(case.rows(), [Some(10), Some(20)]);
    });
}

#[test]
fn g1b_what_is_changed_again_is_never_seen() {
    for_each_case(|case| {
        let (mut one, mut two) = (case.client(), case.client());
        let (mut one, mut two) = (case.begin(&mut one), case.begin(&mut two));
        case.write(&mut one, case.x, 101);
        assert_eq!(case.read(&mut two, case.x), Some(10));
        case.write(&mut one, case.x, 11);
        case.commit(one, false);
        let expected = if case.is_serializable() { 10 } else { 11 };
        assert_eq!(case.read(&mut two, case.x), Some(expected));
        // A transaction that has read one row comes before whoever changed it.
        case.commit(two, false);
    });
}

#[test]
fn g1c_two_transactions_never_both_see_each_others_changes() {
    for_each_case(|case| {
        let (mut one, mut two) = (case.client(), case.client());
        let (mut one, mut two) = (case.begin(&mut one), case.begin(&mut two));
        case.write(&mut one, case.x, 11);
        case.write(&mut two, case.y, 22);
        assert_eq!(case.read(&mut one, case.y), Some(20));
        assert_eq!(case.read(&mut two, case.x), Some(10));
        case.commit(one, false);
        case.commit(two, case.is_serializable());
    });
}

#[test]
fn otv_a_transaction_that_was_seen_vanishes_only_from_reads_committed() {
    for_each_case(|case| {
        let (mut one, mut two, mut three) = (case.client(), case.client(), case.client());
        let mut reader = case.begin(&mut three);
        let mut writer = case.begin(&mut one);
        case.write(&mut writer, case.x, 11);
        case.write(&mut writer, case.y, 19);
        case.commit(writer, false);
        assert_eq!(case.read(&mut reader, case.x), Some(11));
        let mut writer = case.begin(&mut two);
        case.write(&mut writer, case.x, 12);
        case.write(&mut writer, case.y, 18);
        case.commit(writer, false);
        // Of the first writer's two changes, one is seen and the other is not any more.
        assert_eq!(case.read(&mut reader, case.y), Some(18));
        let expected = if case.is_serializable() { 11 } else { 12 };
        assert_eq!(case.read(&mut reader, case.x), Some(expected));
        case.commit(reader, case.is_serializable());
    });
}

#[test]
fn pmp_a_key_that_was_not_there_appears_only_to_reads_committed() {
    for_each_case(|case| {
        let (mut one, mut two) = (case.client(), case.client());
        let mut reader = case.begin(&mut one);
        assert_eq!(case.read(&mut reader, case.a), None);
        let mut writer = case.begin(&mut two);
        case.insert(&mut writer, case.a, 30);
        case.insert(&mut writer, case.b, 30);
        case.commit(writer, false);
        let expected = (!case.is_serializable()).then_some(30);
        assert_eq!(case.read(&mut reader, case.a), expected);
        assert_eq!(case.read(&mut reader, case.b), Some(30));
        case.commit(reader, case.is_serializable());
    });
}

#[test]
fn pmp_a_key_that_was_not_there_is_inserted_once() {
    for_each_case(|case| {
        let (mut one, mut two) = (case.client(), case.client());
        let (mut one, mut two) = (case.begin(&mut one), case.begin(&mut two));
        case.insert(&mut one, case.a, 31);
        case.insert(&mut two, case.a, 32);
        case.insert(&mut two, case.b, 32);
        case.commit(one, false);
        // Whatever the isolation: a key is there once.
        case.commit(two, true);
        let mut client = case.client();
        assert_eq!(client.select(&case.table, case.a).unwrap(), Some([31]));
        assert_eq!(client.select(&case.table, case.b).unwrap(), None);
    });
}

#[test]
fn p4_an_update_is_lost_only_where_reads_are_committed_and_nothing_is_compared() {
    for compares in [false, true] {
        for_each_case(|case| {
            let (mut one, mut two) = (case.client(), case.client());
            let (mut one, mut two) = (case.begin(&mut one), case.begin(&mut two));
            assert_eq!(case.read(&mut one, case.x), Some(10));
            assert_eq!(case.read(&mut two, case.x), Some(10));
            case.write(&mut one, case.x, 11);
            if compares {
                let columns = ([(0, 10)], [(0, 12)]);
                let compared = two.update_if(&case.table, case.x, &columns.0, &columns.1);
                assert_eq!(compared, Ok(Compared::Updated));
            } else {
                case.write(&mut two, case.x, 12);
            }
            case.commit(one, false);
            let is_kept = compares || case.is_serializable();
            case.commit(two, is_kept);
            assert_eq!(case.rows()[0], Some(if is_kept { 11 } else { 12 }));
        });
    }
}

#[test]
fn g_single_rows_from_before_and_after_a_commit_only_reads_committed_sees() {
    for_each_case(|case| {
        let (mut one, mut two) = (case.client(), case.client());
        let mut reader = case.begin(&mut one);
        assert_eq!(case.read(&mut reader, case.x), Some(10));
        let mut writer = case.begin(&mut two);
        assert_eq!(case.read(&mut writer, case.x), Some(10));
        assert_eq!(case.read(&mut writer, case.y), Some(20));
        case.write(&mut writer, case.x, 12);
        case.write(&mut writer, case.y, 18);
        case.commit(writer, false);
        assert_eq!(case.read(&mut reader, case.y), Some(18));
        case.commit(reader, case.is_serializable());
    });
}

#[test]
fn g2_item_two_changes_that_rely_on_each_others_rows_only_read_committed_allows() {
    for_each_case(|case| {
        let (mut one, mut two) = (case.client(), case.client());
        let (mut one, mut two) = (case.begin(&mut one), case.begin(&mut two));
        for transaction in [&mut one, &mut two] {
            assert_eq!(case.read(transaction, case.x), Some(10));
            assert_eq!(case.read(transaction, case.y), Some(20));
        }
        case.write(&mut one, case.x, 11);
        case.write(&mut two, case.y, 21);
        case.commit(one, false);
        case.commit(two, case.is_serializable());
    });
}

#[test]
fn g2_two_inserts_that_rely_on_each_others_absence_only_read_committed_allows() {
    for_each_case(|case| {
        let (mut one, mut two) = (case.client(), case.client());
        let (mut one, mut two) = (case.begin(&mut one), case.begin(&mut two));
        for transaction in [&mut one, &mut two] {
            assert_eq!(case.read(transaction, case.a), None);
            assert_eq!(case.read(transaction, case.b), None);
        }
        case.insert(&mut one, case.a, 30);
        case.insert(&mut two, case.b, 42);
        case.commit(one, false);
        case.commit(two, case.is_serializable());
    });
}

#[test]
fn condition_is_looked_at_again_whatever_columns_were_set_before() {
    for_each_case(|case| {
        let pairs: Table<[u64; 2]> = case.world.table("pairs", &Schema::cells(2).keyed());
        let (mut one, mut two) = (case.client(), case.client());
        one.insert_keyed(&pairs, case.x, &[10, 0]).unwrap();
        let mut transaction = case.begin(&mut one);
        let set = transaction.update_columns(&pairs, case.x, &[(1, 5)]);
        assert_eq!(set, Ok(true));
        let compared = transaction.update_if(&pairs, case.x, &[(0, 10), (1, 5)], &[(0, 12)]);
        assert_eq!(compared, Ok(Compared::Updated));
        assert!(two.update_columns(&pairs, case.x, &[(0, 11)]).unwrap());
        case.commit(transaction, true);
        assert_eq!(two.select(&pairs, case.x).unwrap(), Some([11, 0]));
    });
}

#[test]
fn condition_that_was_taken_back_counts_no_more() {
    for_each_case(|case| {
        let (mut one, mut two) = (case.client(), case.client());
        let mut transaction = case.begin(&mut one);
        let savepoint = transaction.savepoint();
        let compared = transaction.update_if(&case.table, case.x, &[(0, 10)], &[(0, 11)]);
        assert_eq!(compared, Ok(Compared::Updated));
        transaction.roll_back_to(savepoint);
        assert!(two.update(&case.table, case.x, &[12]).unwrap());
        case.write(&mut transaction, case.x, 13);
        // What was seen stays seen, where that counts.
        case.commit(transaction, case.is_serializable());
    });
}

#[test]
fn row_is_not_absent_by_key_and_there_by_direct_id() {
    for_each_case(|case| {
        let (mut one, mut two) = (case.client(), case.client());
        let mut transaction = case.begin(&mut one);
        assert_eq!(case.read(&mut transaction, case.a), None);
        let id = two.insert_keyed(&case.table, case.a, &[30]).unwrap();
        let found = transaction.select(&case.table, id).unwrap();
        assert_eq!(found, (!case.is_serializable()).then_some([30]));
        case.commit(transaction, case.is_serializable());
    });
}

#[test]
fn change_by_direct_id_never_reaches_a_later_row_with_the_same_key() {
    for_each_case(|case| {
        let (mut one, mut two) = (case.client(), case.client());
        let id = two.insert_keyed(&case.table, case.a, &[30]).unwrap();
        let mut transaction = case.begin(&mut one);
        assert!(transaction.update(&case.table, id, &[31]).unwrap());
        assert!(two.delete(&case.table, case.a).unwrap());
        two.insert_keyed(&case.table, case.a, &[32]).unwrap();
        case.commit(transaction, true);
        assert_eq!(two.select(&case.table, case.a).unwrap(), Some([32]));
    });
}
