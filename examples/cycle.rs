//! The 3n+1 problem on an ordered store: in each shard, one resident drives many walks at once.
//!
//! From any number, halve the even ones and take 3n+1 of the odd ones: how many steps is it to 1?
//! Walks stop at the first number whose steps somebody has found already.

use std::ops::ControlFlow;

use ancile::{Engine, GlobalEntries, GlobalKey, Globals, Number, Resident, Result, Verbs, key};

const STARTS: i64 = 10_000;
const WALKS_PER_SHARD: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder().shards(2).arena_bytes(64 << 20).build()?;
    let store = engine.globals()?;
    let mut session = engine.session()?;
    let mut globals = session.globals(&store);
    globals.set_number(&key!["steps", 1]?, 0)?;

    let walked = store.clone();
    let walkers = engine.on_every_shard(move |resident| walk(resident, &walked))?;
    walkers.into_iter().collect::<Result<()>>()?;

    // A key is its name and its subscripts, and those are in the order of numbers.
    let mut longest = (0, 0);
    globals.scan(&key!["steps"]?, |key, steps| {
        let start = key.last().and_then(|start| start.to_i64()).unwrap_or(0);
        if start > STARTS {
            return ControlFlow::Break(());
        }
        longest = longest.max((number(steps), start));
        ControlFlow::Continue(())
    })?;
    println!("{} takes {} steps", longest.1, longest.0);
    assert_eq!(longest, (261, 6171));
    Ok(())
}

/// Walks until no start is left: each round asks for the steps of all walks' numbers together.
fn walk(resident: &mut Resident<'_>, store: &Globals) -> Result<()> {
    let mut globals = resident.globals(store);
    let mut walks: Vec<Vec<i64>> = Vec::new();
    loop {
        let free = (WALKS_PER_SHARD - walks.len()) as i64;
        let taken = globals.increment(&key!["starts"]?, free)?;
        let taken = taken.to_i64().unwrap_or(STARTS + free);
        walks.extend((taken - free + 1..=taken.min(STARTS)).map(|start| vec![start]));
        if walks.is_empty() {
            return Ok(());
        }
        let keys = walks.iter().map(|walk| key!["steps", walk[walk.len() - 1]]);
        let keys: Vec<GlobalKey> = keys.collect::<Result<_, _>>()?;
        let known = globals.get_batch(&keys)?;

        let mut found = GlobalEntries::new();
        for (mut walk, known) in std::mem::take(&mut walks).into_iter().zip(known) {
            let at = walk[walk.len() - 1];
            match known.as_deref().map(number) {
                // All numbers on the way take one step more than the one behind them.
                Some(steps) => {
                    for (&at, steps) in walk.iter().rev().zip(steps..) {
                        found.push("steps", &[at.into()], steps.to_string())?;
                    }
                }
                None => {
                    walk.push(if at % 2 == 0 { at / 2 } else { 3 * at + 1 });
                    walks.push(walk);
                }
            }
        }
        globals.set_batch(&found)?;
    }
}

fn number(value: &[u8]) -> i64 {
    let number = Number::of_value(value).ok();
    number.and_then(Number::to_i64).unwrap_or(0)
}
