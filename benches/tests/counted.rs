//! Counted facts: what an operation costs in instructions, which no load of the machine changes.

use std::path::Path;

use ancile_benches::sweep::count;
use ancile_benches::workload::Access;

/// An operation on fourteen shards may cost this share more than on one.
const GROWTH_MAX: f64 = 0.10;

#[test]
fn own_shard_operations_cost_the_same_instructions_on_one_shard_and_on_fourteen() {
    if let Err(reason) = count::counter() {
        println!("skipped: {reason}");
        return;
    }
    let program = Path::new(env!("CARGO_BIN_EXE_ancile-bench"));
    let folder = tempfile::tempdir().unwrap();
    for access in [Access::Direct, Access::Surrogate] {
        let [one, four, fourteen] = [1, 4, 14]
            .map(|shards| count::instructions(program, folder.path(), 10, access, shards).unwrap());
        println!("{}: {one:.1}, {four:.1}, {fourteen:.1}", access.name());
        for many in [four, fourteen] {
            assert!(
                many < one * (1.0 + GROWTH_MAX),
                "{one:.1}, {four:.1}, {fourteen:.1}"
            );
        }
    }
}
