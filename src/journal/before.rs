//! Before-images: the pages that a checkpoint is about to overwrite, as they were.
//!
//! File `pre.<n>` leads from checkpoint n back to n - 1: it undoes a checkpoint that was interrupted,
//! and takes the image back in time. It is bound to both by their lineage, a random number, because
//! after a rollback there may be files of a future that was abandoned, with the same numbers.
//!
//! ```text
//!    0 magic 8 | major 2 | minor 2 | zeros 4 | database 16 | shard 4 | shards 4
//!   40 number 8 | lineage of the parent 8 | lineage of the child 8 | zeros | checksum at 504
//!  512 superblock of the parent
//! 4096 groups
//!  end trailer, twice: magic 8 | its place 8 | groups 8 | pages 8 | chain 8 | both lineages 16
//!      checksum at 504
//!
//! group: magic 8 | pages 8 | chain 8 | checksum 8 | up to 254 x (page 8, sum 8)    one page
//!        then the content of each page whose sum is not zero
//! ```
//! The trailer is written when all else is durable. So where there is a trailer everything before it
//! was there once, and if it is not, that is damage; where there is none, the image was not touched.

use std::sync::Arc;

use super::bytes::{checksum, put, u16_at, u32_at, u64_at};
use super::disk::{Disk, DiskError, DiskFile, SECTOR_BYTES, remove_if_there};
use super::error::RecoveryError;
use super::image::{Image, Page};
use super::mutant::{Mutant, is};
use super::superblock::{Identity, Superblock};
use crate::limits::PAGE_BYTES;

const MAGIC: &[u8; 8] = b"ancile\0B";
const MAGIC_GROUP: &[u8; 8] = b"ancile\0G";
const MAGIC_TRAILER: &[u8; 8] = b"ancile\0T";
const MAJOR: u16 = 1;
const MINOR: u16 = 0;
const CHECKSUM_AT: usize = 504;
const GROUPS_AT: u64 = PAGE_BYTES as u64;
const TRAILER_BYTES: u64 = 2 * SECTOR_BYTES as u64;
const GROUP_HEAD_BYTES: usize = 32;
const ENTRY_BYTES: usize = 16;
/// Pages of one group.
pub(super) const GROUP_PAGES: usize = (PAGE_BYTES - GROUP_HEAD_BYTES) / ENTRY_BYTES;
const PREFIX: &str = "pre.";
/// No arena has more pages.
const PAGES_MAX: u64 = 1 << 44;

pub(super) fn name(number: u64) -> String {
    format!("{PREFIX}{number:010}")
}

/// The number in a file's name.
pub(super) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let is_plain = digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain)
}

/// A file that is being written.
pub(super) struct BeforeWriter {
    file: Box<dyn DiskFile>,
    /// Both lineages, as the trailer repeats them.
    lineages: [u64; 2],
    offset: u64,
    chain: u64,
    groups: u64,
    pages: u64,
}

impl BeforeWriter {
    /// Begins the file that leads from `child` back to `parent`.
    pub(super) fn create(
        disk: &dyn Disk,
        parent: &Superblock,
        child: &Superblock,
    ) -> Result<Self, DiskError> {
        let name = name(child.checkpoint);
        remove_if_there(disk, &name)?;
        disk.sync_directory()?;
        let mut head = [0; 2 * SECTOR_BYTES];
        put(
            &mut head,
            0,
            &[
                MAGIC,
                &MAJOR.to_le_bytes(),
                &MINOR.to_le_bytes(),
                &[0; 4],
                &child.identity.database.to_le_bytes(),
                &child.identity.shard.to_le_bytes(),
                &child.identity.shards.to_le_bytes(),
                &child.checkpoint.to_le_bytes(),
                &parent.lineage.to_le_bytes(),
                &child.lineage.to_le_bytes(),
            ],
        );
        let sum = checksum(0, &[&head[..CHECKSUM_AT]]);
        put(&mut head, CHECKSUM_AT, &[&sum.to_le_bytes()]);
        put(&mut head, SECTOR_BYTES, &[&parent.encode()]);
        let mut file = disk.create(&name)?;
        file.write_at(0, &head)?;
        Ok(Self {
            file,
            lineages: [parent.lineage, child.lineage],
            offset: GROUPS_AT,
            chain: checksum(0, &[&head]),
            groups: 0,
            pages: 0,
        })
    }

    /// Copies up to [`GROUP_PAGES`] pages from the image.
    pub(super) fn copy(&mut self, image: &mut Image, pages: &[u64]) -> Result<(), DiskError> {
        let mut bytes = vec![0; PAGE_BYTES];
        put(
            &mut bytes,
            0,
            &[
                MAGIC_GROUP,
                &(pages.len() as u64).to_le_bytes(),
                &self.chain.to_le_bytes(),
            ],
        );
        let mut written = Vec::with_capacity(pages.len());
        for (index, page) in pages.iter().enumerate() {
            let sum = image.sum(*page)?;
            let at = GROUP_HEAD_BYTES + index * ENTRY_BYTES;
            put(&mut bytes, at, &[&page.to_le_bytes(), &sum.to_le_bytes()]);
            if sum != 0 {
                written.push(*page);
            }
        }
        for run in written.chunk_by(|page, next| page + 1 == *next) {
            let start = bytes.len();
            bytes.resize(start + run.len() * PAGE_BYTES, 0);
            image.read_unchecked(run[0], &mut bytes[start..])?;
        }
        self.chain = group_checksum(&bytes);
        put(
            &mut bytes,
            GROUP_HEAD_BYTES - 8,
            &[&self.chain.to_le_bytes()],
        );
        self.file.write_at(self.offset, &bytes)?;
        self.offset += bytes.len() as u64;
        self.groups += 1;
        self.pages += pages.len() as u64;
        Ok(())
    }

    /// Makes all of it durable, and then says so in the trailer.
    pub(super) fn finish(mut self, disk: &dyn Disk) -> Result<(), DiskError> {
        if !is(Mutant::BeforeImagesUnsynced) {
            self.file.sync()?;
        }
        disk.sync_directory()?;
        let trailer = Trailer {
            at: self.offset,
            groups: self.groups,
            pages: self.pages,
            chain: self.chain,
            lineages: self.lineages,
        };
        self.file.write_at(self.offset, &trailer.encode())?;
        if !is(Mutant::BeforeImagesUnsynced) {
            self.file.sync()?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trailer {
    /// Where it begins; it ends with the file.
    at: u64,
    groups: u64,
    pages: u64,
    chain: u64,
    lineages: [u64; 2],
}

impl Trailer {
    fn encode(&self) -> [u8; TRAILER_BYTES as usize] {
        let mut both = [0; TRAILER_BYTES as usize];
        let (sector, copy) = both.split_at_mut(SECTOR_BYTES);
        put(
            sector,
            0,
            &[
                MAGIC_TRAILER,
                &self.at.to_le_bytes(),
                &self.groups.to_le_bytes(),
                &self.pages.to_le_bytes(),
                &self.chain.to_le_bytes(),
                &self.lineages[0].to_le_bytes(),
                &self.lineages[1].to_le_bytes(),
            ],
        );
        let sum = checksum(0, &[&sector[..CHECKSUM_AT]]);
        put(sector, CHECKSUM_AT, &[&sum.to_le_bytes()]);
        copy.copy_from_slice(sector);
        both
    }

    fn decode(sector: &[u8]) -> Option<Self> {
        let is_whole = sector.starts_with(MAGIC_TRAILER)
            && u64_at(sector, CHECKSUM_AT) == checksum(0, &[&sector[..CHECKSUM_AT]]);
        is_whole.then(|| Self {
            at: u64_at(sector, 8),
            groups: u64_at(sector, 16),
            pages: u64_at(sector, 24),
            chain: u64_at(sector, 32),
            lineages: [u64_at(sector, 40), u64_at(sector, 48)],
        })
    }
}

fn group_checksum(bytes: &[u8]) -> u64 {
    checksum(
        0,
        &[&bytes[..GROUP_HEAD_BYTES - 8], &bytes[GROUP_HEAD_BYTES..]],
    )
}

/// A file that has its trailer.
pub(crate) struct BeforeImages {
    file: Box<dyn DiskFile>,
    /// The superblock of the checkpoint that the file leads back to.
    pub(super) parent: Superblock,
    /// Lineage of the checkpoint that it leads back from.
    pub(super) child_lineage: u64,
    trailer: Trailer,
    chain: u64,
    bytes: u64,
}

impl BeforeImages {
    /// The file that leads back from checkpoint `number`, if it was made to its end.
    pub(super) fn open(
        disk: &Arc<dyn Disk>,
        identity: &Identity,
        number: u64,
    ) -> Result<Option<Self>, RecoveryError> {
        let file = match disk.open(&name(number)) {
            Err(error) if error.is_not_found() => return Ok(None),
            opened => opened?,
        };
        let bytes = file.bytes()?;
        let Some(trailer) = read_trailer(&*file, bytes)? else {
            return Ok(None);
        };
        let mut head = [0; 2 * SECTOR_BYTES];
        file.read_at(0, &mut head)?;
        let (sector, slot) = head.split_at(SECTOR_BYTES);
        let lineages = [u64_at(sector, 48), u64_at(sector, 56)];
        let is_whole = sector.starts_with(MAGIC)
            && u16_at(sector, 8) == MAJOR
            && u64_at(sector, CHECKSUM_AT) == checksum(0, &[&sector[..CHECKSUM_AT]])
            && lineages == trailer.lineages
            && u64_at(sector, 40) == number;
        let parent = Superblock::decode(slot).filter(|parent| {
            is_whole
                && parent.lineage == lineages[0]
                && parent.checkpoint.checked_add(1) == Some(number)
        });
        let Some(parent) = parent else {
            let what = "the head of the before-images is not what was written";
            return Err(RecoveryError::damaged(file.path(), 0, what));
        };
        let is_own = parent.identity == *identity
            && u64_at(sector, 16) == identity.database as u64
            && u32_at(sector, 32) == identity.shard;
        if !is_own {
            return Err(RecoveryError::Stranger {
                file: file.path().to_owned(),
                difference: format!("it is of {:?}, not of {identity:?}", parent.identity),
            });
        }
        Ok(Some(Self {
            file,
            parent,
            child_lineage: lineages[1],
            trailer,
            chain: checksum(0, &[&head]),
            bytes,
        }))
    }

    /// Length of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads all of it; damage is an error.
    pub(super) fn verify(&self) -> Result<(), RecoveryError> {
        self.each_group(|_, _| Ok(()))
    }

    /// Puts all pages back into the image, and makes them durable. May be done any number of times.
    pub(super) fn apply(&self, image: &mut Image) -> Result<(), RecoveryError> {
        self.verify()?;
        image.forget();
        self.each_group(|entries, mut contents| {
            for (page, sum) in entries {
                if *sum != 0 {
                    let Some((content, rest)) = contents.split_first_chunk::<PAGE_BYTES>() else {
                        break;
                    };
                    contents = rest;
                    image.write(*page, &[content])?;
                }
            }
            image.write_sums(entries.iter().copied())?;
            Ok(())
        })?;
        image.sync()?;
        Ok(())
    }

    /// Visits all pages that had been written before.
    pub(super) fn each_page(&self, mut visit: impl FnMut(u64, &Page)) -> Result<(), RecoveryError> {
        self.verify()?;
        self.each_group(|entries, mut contents| {
            for (page, _) in entries.iter().filter(|(_, sum)| *sum != 0) {
                let Some((content, rest)) = contents.split_first_chunk::<PAGE_BYTES>() else {
                    break;
                };
                contents = rest;
                visit(*page, content);
            }
            Ok(())
        })
    }

    fn each_group(
        &self,
        mut visit: impl FnMut(&[(u64, u64)], &[u8]) -> Result<(), RecoveryError>,
    ) -> Result<(), RecoveryError> {
        let (mut offset, mut chain, mut pages) = (GROUPS_AT, self.chain, 0);
        for _ in 0..self.trailer.groups {
            let what = "before-images are not what was written";
            let damaged = || RecoveryError::damaged(self.file.path(), offset, what);
            let mut group = vec![0; PAGE_BYTES];
            self.read(offset, &mut group)?;
            let count = u64_at(&group, 8) as usize;
            if !group.starts_with(MAGIC_GROUP) || count > GROUP_PAGES || u64_at(&group, 16) != chain
            {
                return Err(damaged());
            }
            let entry = |index: usize| {
                let at = GROUP_HEAD_BYTES + index * ENTRY_BYTES;
                (u64_at(&group, at), u64_at(&group, at + 8))
            };
            let entries = Vec::from_iter((0..count).map(entry));
            // A page that was written before lies within the arena of that time.
            let pages_before = self.parent.arena_bytes.div_ceil(PAGE_BYTES as u64);
            let is_strange =
                |(page, sum): &(u64, u64)| *page > PAGES_MAX || *sum != 0 && *page >= pages_before;
            if entries.iter().any(is_strange) {
                return Err(damaged());
            }
            let written = entries.iter().filter(|(_, sum)| *sum != 0).count();
            group.resize(PAGE_BYTES * (1 + written), 0);
            self.read(offset + PAGE_BYTES as u64, &mut group[PAGE_BYTES..])?;
            chain = u64_at(&group, GROUP_HEAD_BYTES - 8);
            if chain != group_checksum(&group) {
                return Err(damaged());
            }
            visit(&entries, &group[PAGE_BYTES..])?;
            offset += group.len() as u64;
            pages += count as u64;
        }
        let is_all =
            chain == self.trailer.chain && pages == self.trailer.pages && offset == self.trailer.at;
        if !is_all {
            let what = "before-images are missing";
            return Err(RecoveryError::damaged(self.file.path(), offset, what));
        }
        Ok(())
    }

    /// Reads from within what lies before the trailer.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), RecoveryError> {
        if into.is_empty() {
            return Ok(());
        }
        Ok(self.file.read_at(offset, into)?)
    }
}

fn read_trailer(file: &dyn DiskFile, bytes: u64) -> Result<Option<Trailer>, DiskError> {
    let Some(at) = bytes
        .checked_sub(TRAILER_BYTES)
        .filter(|at| *at >= GROUPS_AT)
    else {
        return Ok(None);
    };
    let mut both = [0; TRAILER_BYTES as usize];
    file.read_at(at, &mut both)?;
    let (first, second) = both.split_at(SECTOR_BYTES);
    let found = Trailer::decode(first).or_else(|| Trailer::decode(second));
    Ok(found.filter(|trailer| trailer.at == at))
}
