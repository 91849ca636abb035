//! Worlds whose shards live in files, and what a crash leaves of them.
//!
//! A crash is a moment between two changes of memory ([`crate::arena::crash::Moment::Between`]): what the files hold then is
//! all that there is. [`points`] looks at every such moment of short histories, [`nodes`] at those of globals,
//! [`records`] at those of records; [`chain`] lets many
//! clients work, crash, and go on with what was left; [`mutants`] shows that both would notice.

mod chain;
mod expected;
mod mutants;
mod nodes;
mod points;
mod records;
mod recovery;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Setting, World};
use crate::arena::{Access, Arena, ArenaFile, Identity, MapOptions};
use crate::limits::PAGE_BYTES;
use crate::shard::{Decisions, TableShape};

const OPTIONS: MapOptions = MapOptions {
    bytes: 64 << 20,
    node: None,
    huge_pages: false,
};

/// The files of a world's shards, in a directory that is gone with this value.
struct Files {
    directory: PathBuf,
    shards: usize,
}

/// Parts of transactions that were under way when there was a crash.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    applied: u64,
    taken_back: u64,
}

impl Files {
    fn new(shards: usize) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let base = Path::new("/dev/shm");
        let base = if base.is_dir() {
            base.to_owned()
        } else {
            std::env::temp_dir()
        };
        let directory = base.join(format!("ancile-world-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        Self { directory, shards }
    }

    fn path(&self, shard: usize) -> PathBuf {
        self.directory.join(shard.to_string())
    }

    fn file(&self, shard: usize, access: Access) -> ArenaFile {
        ArenaFile {
            path: self.path(shard),
            identity: Identity {
                database: [7; 16],
                shard: shard as u32,
                shards: self.shards as u32,
            },
            access,
            is_salvage: false,
        }
    }

    /// A world in new files.
    fn create(&self, seed: u64, setting: Setting) -> Rc<World> {
        assert_eq!(setting.shards, self.shards);
        let arena = |shard| {
            let file = self.file(shard, Access::Shared);
            file.create(&OPTIONS).unwrap().arena
        };
        World::with(seed, setting, (0..self.shards).map(arena).collect(), None)
    }

    /// What the files hold at this moment, in files of their own.
    fn copy(&self) -> Self {
        let copy = Self::new(self.shards);
        for shard in 0..self.shards {
            let bytes = fs::read(self.path(shard)).unwrap();
            let file = fs::File::create(copy.path(shard)).unwrap();
            file.set_len(bytes.len() as u64).unwrap();
            for (number, page) in bytes.chunks(PAGE_BYTES).enumerate() {
                if page != &[0; PAGE_BYTES][..page.len()] {
                    let at = (number * PAGE_BYTES) as u64;
                    file.write_all_at(page, at).unwrap();
                }
            }
        }
        copy
    }

    /// The world that the files hold, brought in order as an engine does when it opens them. With
    /// [`Access::Copy`] the files stay as they are.
    fn open(
        &self,
        seed: u64,
        setting: Setting,
        tables: &[TableShape],
        access: Access,
    ) -> Result<(Rc<World>, Parts), String> {
        let mut contents = Vec::new();
        let mut arenas: Vec<Arena> = Vec::new();
        for shard in 0..self.shards {
            let opened = self.file(shard, access).open(&OPTIONS);
            let opened = opened.map_err(|error| error.to_string())?;
            arenas.push(opened.arena);
            contents.push(opened.entries);
        }
        let world = World::with(seed, setting, arenas, None);
        let mut decisions = Decisions::new();
        for (index, entries) in contents.into_iter().enumerate() {
            let shard = &mut world.shards[index].borrow_mut().shard;
            shard.open(tables, entries)?;
            for decision in shard.decisions() {
                decisions.insert((index, decision.ticket), decision.members);
            }
        }
        let mut parts = Parts::default();
        // Whoever decides is the last participant: the worst order, if it forgets too soon.
        for seat in world.shards.iter().rev() {
            let (applied, taken_back) = seat.borrow_mut().shard.resolve(&decisions)?;
            parts.applied += applied as u64;
            parts.taken_back += taken_back as u64;
        }
        for seat in &world.shards {
            seat.borrow_mut().shard.forget_decisions();
        }
        *world.tables.borrow_mut() = tables.to_vec();
        Ok((world, parts))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl World {
    /// What is wrong with the tables, or with the shards' own lists, when nothing is under way in
    /// files that were just opened.
    fn audit(&self) -> Result<(), String> {
        let tables = self.tables.borrow();
        for (index, seat) in self.shards.iter().enumerate() {
            let catalog = &mut seat.borrow_mut().shard.catalog;
            for shape in &*tables {
                let (part, _) = catalog
                    .table(shape.key)
                    .map_err(|error| error.to_string())?;
                let wrong = |error| format!("shard {index}, table {}: {error}", shape.serial);
                part.audit().map_err(wrong)?;
            }
            let serials = || tables.iter().map(|shape| shape.serial);
            let owners = catalog.arena().owners();
            let stray = owners
                .iter()
                .find(|&&owner| !serials().any(|serial| serial == owner));
            if let Some(owner) = stray {
                return Err(format!("shard {index} has an extent of {owner}"));
            }
        }
        Ok(())
    }
}
