//! The 3n+1 problem on an ordered store: halve even numbers, take 3n+1 of odd ones; how many steps to 1?
//! In each shard, one resident drives many walks, which stop at the first number that somebody knows.

use ancile::{Engine, GlobalEntries, Globals, Number, Resident, Result, Verbs, key};

const STARTS: i64 = 10_000;
const WALKS: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder().shards(2).arena_bytes(64 << 20).build()?;
    let store = engine.globals()?;
    let mut session = engine.session()?;
    session.globals(&store).set_number(&key!["steps", 1]?, 0)?;
    let walked = store.clone();
    let walkers = engine.on_every_shard(move |resident| walk(resident, &walked))?;
    walkers.into_iter().collect::<Result<()>>()?;
    let starts = (1..=STARTS).map(|start| key!["steps", start]);
    let starts = starts.collect::<Result<Vec<_>, _>>()?;
    let steps = session.globals(&store).get_batch(&starts)?;
    let steps = steps
        .into_iter()
        .map(|steps| number(&steps.unwrap_or_default()));
    let longest = steps.zip(1..).max().unwrap_or_default();
    println!("{} takes {} steps", longest.1, longest.0);
    assert_eq!(longest, (261, 6171));
    Ok(())
}

/// Walks until no start is left; each round asks for the steps of all walks' numbers.
fn walk(resident: &mut Resident<'_>, store: &Globals) -> Result<()> {
    let mut globals = resident.globals(store);
    let mut walks: Vec<Vec<i64>> = Vec::new();
    loop {
        let free = (WALKS - walks.len()) as i64;
        let taken = globals.increment(&key!["starts"]?, free)?;
        let taken = taken.to_i64().unwrap_or(STARTS + free);
        walks.extend((taken - free + 1..=taken.min(STARTS)).map(|start| vec![start]));
        if walks.is_empty() {
            return Ok(());
        }
        let keys = walks.iter().map(|walk| key!["steps", walk[walk.len() - 1]]);
        let known = globals.get_batch(&keys.collect::<Result<Vec<_>, _>>()?)?;
        let mut found = GlobalEntries::new();
        for (mut walk, known) in std::mem::take(&mut walks).into_iter().zip(known) {
            if let Some(steps) = known {
                // All numbers on the way take one step more than the one behind them.
                for (&at, steps) in walk.iter().rev().zip(number(&steps)..) {
                    found.push("steps", &[at.into()], steps.to_string())?;
                }
                continue;
            }
            let at = walk[walk.len() - 1];
            walk.push(if at % 2 == 0 { at / 2 } else { 3 * at + 1 });
            walks.push(walk);
        }
        globals.set_batch(&found)?;
    }
}

fn number(value: &[u8]) -> i64 {
    let number = Number::of_value(value).ok();
    number.and_then(Number::to_i64).unwrap_or(0)
}
