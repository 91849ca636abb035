//! Many clients at work, a crash in the midst of it, and what was left goes on; for many seeds.
//!
//! The shards' own list of changes is the truth that the checker compares with what clients were told
//! ([`check`]). A crash takes from it what the scopes under way have changed, and opening the files
//! adds what is brought to its end there ([`recovery`](super::recovery)). What is then in the tables
//! must be exactly that. A crash may also happen while the files are opened.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Instant;

use super::recovery::{Crash, RESOLVER, recover};
use super::{Files, Parts};
use crate::arena::{Access, crash};
use crate::shard::panic_message;
use crate::simulation::chain::{check_rows, furnish, live, live_inside, scene, setting};
use crate::simulation::check::check;
use crate::simulation::history::Cells;
use crate::simulation::scripts::{Focus, Scene};
use crate::simulation::strand::Strands;
use crate::simulation::{Choices, Setting};
use crate::table::watch::{self, RowName};

/// Seeds of one run of the test, unless the environment says otherwise.
const SEEDS: u64 = 150;

/// Crashes of one seed at most, those while files are opened left out.
const CRASHES_MAX: u64 = 3;

/// How often something happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    crashes: u64,
    /// While files were opened.
    again: u64,
    commits: u64,
    others: u64,
    /// Changes of scopes under way.
    undone: u64,
    /// Changes that opening the files has made.
    made: u64,
    /// Parts of transactions that were brought to their end when files were opened.
    parts: Parts,
}

/// The files, and whoever lives in them.
struct Life {
    files: Rc<Files>,
    scene: Rc<Scene>,
    setting: Setting,
    seed: u64,
    counts: Counts,
}

/// Runs one seed; what happened in it, or what is wrong.
pub(super) fn run_seed(seed: u64) -> Result<Counts, String> {
    let run = AssertUnwindSafe(|| {
        let choices = Choices::new(seed);
        let chosen = [Focus::Any, Focus::Any, Focus::Any, Focus::Writers];
        let focus = chosen[choices.below(4) as usize];
        let setting = Setting {
            shards: [1, 2, 2, 3, 3, 4][choices.below(6) as usize],
            ..Setting::chosen(&choices)
        };
        let files = Rc::new(Files::new(setting.shards));
        let world = files.create(seed, setting);
        watch::begin();
        watch::act_for(0);
        let scene = Rc::new(scene(&world, focus));
        drop(world);
        furnish(&scene);
        let mut life = Life {
            files,
            scene,
            setting,
            seed,
            counts: Counts::default(),
        };
        for _ in 0..choices.below(CRASHES_MAX + 1) {
            let crash = life.live(Some(&choices));
            if let Some(crash) = crash {
                life = life.recover(crash, &choices)?;
            }
        }
        life.live(None);
        life.check()?;
        let counts = life.scene.counts.get();
        life.counts.commits = counts.commits;
        life.counts.others = counts.others;
        watch::end();
        Ok(life.counts)
    });
    let result = catch_unwind(run).unwrap_or_else(|panic| Err(panic_message(panic)));
    crash::unwatch();
    result
}

impl Life {
    /// Lets clients live to their end, or until a crash, by chance.
    fn live(&self, crashes: Option<&Choices>) -> Option<Crash> {
        let scene = &self.scene;
        let world = &scene.world;
        let mut strands = Strands::new(world);
        for _ in 0..2 + world.choices.below(6) {
            let rounds = 2 + world.choices.below(8);
            let scene = Rc::clone(scene);
            let is_inside = world.choices.below(6) == 0;
            strands.add(!is_inside, move |turns| {
                if is_inside {
                    live_inside(&scene, turns, rounds);
                } else {
                    live(&scene, turns, rounds);
                }
            });
        }
        let Some(choices) = crashes else {
            strands.run(|world| assert!(world.is_idle(), "intents stand, and nobody is there"));
            return None;
        };
        let crash = self.crash_after(choices.below([30, 300, 3_000][choices.below(3) as usize]));
        let all_ended = strands.run_until(|| crash.borrow().is_some());
        if all_ended {
            // The process ends although nothing is under way; what nobody waits for may be.
            let mut crash = crash.borrow_mut();
            crash.get_or_insert_with(|| Crash::now(&self.files, &self.scene));
        }
        crash::unwatch();
        strands.crash();
        // Strands hold the world: it is never dropped.
        std::mem::forget(Rc::clone(world));
        crash.take()
    }

    /// Watches until so many moments have passed, and keeps what is there then.
    fn crash_after(&self, moments: u64) -> Rc<RefCell<Option<Crash>>> {
        let crash = Rc::new(RefCell::new(None));
        let (kept, files, scene) = (
            Rc::clone(&crash),
            Rc::clone(&self.files),
            Rc::clone(&self.scene),
        );
        let mut ended = vec![watch::moment(); self.setting.shards];
        let mut rest = moments;
        crash::watch(move |moment| match moment {
            crash::Moment::Ended(shard) => ended[shard as usize] = watch::moment(),
            crash::Moment::Between if rest > 0 => rest -= 1,
            crash::Moment::Between if kept.borrow().is_none() => {
                let mut now = Crash::now(&files, &scene);
                now.ended.clone_from(&ended);
                kept.replace(Some(now));
            }
            crash::Moment::Between => {}
        });
        crash
    }

    /// Opens what a crash has left; the checker looks at all that has happened.
    fn recover(self, mut crash: Crash, choices: &Choices) -> Result<Self, String> {
        let Self {
            scene,
            setting,
            seed,
            mut counts,
            ..
        } = self;
        counts.crashes += 1;
        let tables = scene.world.tables.borrow().clone();
        let seed = seed ^ counts.crashes << 32;
        counts.undone += crash.undo();
        watch::act_for(RESOLVER);
        let world = loop {
            let files = Rc::clone(&crash.files);
            let next: Rc<RefCell<Option<Crash>>> = Rc::default();
            if choices.below(3) == 0 {
                crash.watch_opening(&next, choices.below(40));
            }
            let world = files.open(seed, setting, &tables, Access::Shared);
            crash::unwatch();
            let Some(again) = next.take() else {
                let (world, parts) = world?;
                counts.parts.applied += parts.applied;
                counts.parts.taken_back += parts.taken_back;
                break world;
            };
            counts.again += 1;
            drop(world);
            crash = again;
            counts.undone += crash.undo();
        };
        world.audit()?;
        counts.made += recover(&crash)?;
        let scene = Rc::new(Scene {
            world,
            book: std::mem::take(&mut *crash.book.borrow_mut()),
            keys: scene.keys.clone(),
            plain: scene.plain.clone(),
            places: RefCell::new(std::mem::take(&mut crash.places)),
            keyed_places: RefCell::new(std::mem::take(&mut crash.keyed_places)),
            mix: scene.mix,
            focus: scene.focus,
            steps_max: scene.steps_max,
            counts: Cell::clone(&scene.counts),
        });
        let life = Self {
            files: Rc::clone(&crash.files),
            scene,
            setting,
            seed,
            counts,
        };
        life.check()?;
        Ok(life)
    }

    /// Whether all is there that must be, and nothing else.
    fn check(&self) -> Result<BTreeMap<RowName, Cells>, String> {
        let events = watch::so_far();
        let rows = check(&self.scene.book.nodes.borrow(), &events)?;
        check_rows(&self.scene, &rows)?;
        Ok(rows)
    }
}

#[test]
fn transactions_keep_their_promises_over_crashes() {
    let seeds = setting("ANCILE_SEEDS", SEEDS);
    let from = setting("ANCILE_SEED_FROM", 0);
    let start = Instant::now();
    let mut sum = Counts::default();
    for seed in from..from + seeds {
        match run_seed(seed) {
            Ok(counts) => {
                sum.crashes += counts.crashes;
                sum.again += counts.again;
                sum.commits += counts.commits;
                sum.others += counts.others;
                sum.made += counts.made;
                sum.parts.applied += counts.parts.applied;
                sum.parts.taken_back += counts.parts.taken_back;
                sum.undone += counts.undone;
            }
            Err(failure) => panic!("seed {seed} (scripts/simulate-crashes 1 {seed}): {failure}"),
        }
    }
    let rate = seeds as f64 / start.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds from {from}, {rate:.0} a second: {} crashes at work and {} while files were \
         opened; {} transactions and {} other operations acknowledged; {} changes undone; of \
         transactions under way {} parts applied and {} taken back, with {} changes",
        sum.crashes,
        sum.again,
        sum.commits,
        sum.others,
        sum.undone,
        sum.parts.applied,
        sum.parts.taken_back,
        sum.made
    );
    let all = [sum.undone, sum.again, sum.made];
    assert!(seeds < SEEDS || all.iter().all(|&count| count > 0));
}
