//! The engine's globals: in the own shard, and from a session.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use ancile::{Engine, Error, GlobalKey, Globals, LocalGlobals, Session, Verbs};

use super::{BATCH, Data, Measured, Phase, Store, sum_of};
use crate::failure::Failure;

const ARENA_BYTES: u64 = 8 << 30;

fn engine(shards: Option<usize>) -> Result<(Engine, Globals), Failure> {
    let mut settings = Engine::builder().arena_bytes(ARENA_BYTES);
    if let Some(shards) = shards {
        settings = settings.shards(shards);
    }
    let engine = settings.build()?;
    let globals = engine.globals()?;
    Ok((engine, globals))
}

/// Code in the shard that has all nodes.
pub(super) struct Own {
    engine: Engine,
    globals: Globals,
    in_batches: bool,
}

impl Own {
    pub(super) fn new(in_batches: bool) -> Result<Self, Failure> {
        let (engine, globals) = engine(Some(1))?;
        Ok(Self {
            engine,
            globals,
            in_batches,
        })
    }
}

impl Store for Own {
    fn name(&self) -> &'static str {
        if self.in_batches {
            "Ancile, own shard, batches"
        } else {
            "Ancile, own shard, calls"
        }
    }

    fn run(&mut self, phase: Phase, data: &Arc<Data>) -> Result<Measured, Failure> {
        let (globals, data, in_batches) = (self.globals.clone(), Arc::clone(data), self.in_batches);
        let task = self.engine.spawn(0, move |resident| {
            let start = Instant::now();
            let sum = match phase {
                Phase::Order | Phase::Scan | Phase::Kill => {
                    walk(&mut resident.own_globals(&globals)?, phase, &data)?
                }
                _ if in_batches => {
                    let mut sum = 0;
                    for from in (0..data.keys.len()).step_by(BATCH) {
                        let to = data.keys.len().min(from + BATCH);
                        let mut own = resident.own_globals(&globals)?;
                        if phase == Phase::Get {
                            own.get_each(&data.lookups[from..to], |_, value| {
                                sum += value.map_or(0, sum_of);
                            })?;
                        } else {
                            own.set_batch(&data.entries[from..to])?;
                        }
                    }
                    sum
                }
                Phase::Get => {
                    let own = resident.own_globals(&globals)?;
                    let mut sum = 0;
                    for key in &data.lookups {
                        sum += own.get_with(key, |value| value.map_or(0, sum_of))?;
                    }
                    sum
                }
                _ => {
                    let mut own = resident.own_globals(&globals)?;
                    for (key, value) in &data.entries {
                        own.set(key, value)?;
                    }
                    0
                }
            };
            let time = start.elapsed();
            Ok::<_, Error>(Measured { time, sum })
        })?;
        Ok(task.join()??)
    }
}

fn walk(own: &mut LocalGlobals<'_>, phase: Phase, data: &Data) -> Result<u64, Error> {
    let mut sum: u64 = 0;
    match phase {
        Phase::Order => {
            for key in &data.keys {
                sum += u64::from(own.next(key)?.is_some());
            }
        }
        Phase::Scan => {
            let name = GlobalKey::new("n")?;
            own.scan(&name, |_, value| {
                sum = sum.wrapping_add(sum_of(value));
                ControlFlow::Continue(())
            })?;
        }
        _ => {
            for subtree in &data.subtrees {
                sum += own.kill(subtree)?;
            }
        }
    }
    Ok(sum)
}

/// A session, over all shards.
pub(super) struct FromSession {
    session: Session,
    globals: Globals,
    _engine: Engine,
}

impl FromSession {
    pub(super) fn new() -> Result<Self, Failure> {
        let (engine, globals) = engine(None)?;
        Ok(Self {
            session: engine.session()?,
            globals,
            _engine: engine,
        })
    }
}

impl Store for FromSession {
    fn name(&self) -> &'static str {
        "Ancile, session, batches"
    }

    fn run(&mut self, phase: Phase, data: &Arc<Data>) -> Result<Measured, Failure> {
        let mut globals = self.session.globals(&self.globals);
        let start = Instant::now();
        let mut sum: u64 = 0;
        match phase {
            Phase::Set | Phase::Replace => globals.set_batch(&data.entries)?,
            Phase::Get => globals.get_each(&data.lookups, |_, value| {
                sum += value.map_or(0, sum_of);
            })?,
            Phase::Order => {
                for key in &data.keys {
                    sum += u64::from(globals.next(key)?.is_some());
                }
            }
            Phase::Scan => globals.scan(&GlobalKey::new("n")?, |_, value| {
                sum = sum.wrapping_add(sum_of(value));
                ControlFlow::Continue(())
            })?,
            Phase::Kill => {
                for subtree in &data.subtrees {
                    sum += globals.kill(subtree)?;
                }
            }
        }
        let time = start.elapsed();
        Ok(Measured { time, sum })
    }
}
