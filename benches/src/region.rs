//! Large flat memory on huge pages, touched before use: what the hardware limit stands on.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::AnyBitPattern;
use bytemuck::NoUninit;
use memmap2::{Advice, MmapMut, MmapOptions};

use crate::failure::Failure;

/// Linux and most others round a mapping up to this much before they use huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// `len` zeroed items in one anonymous mapping, huge pages asked for, every page touched.
pub struct Region<T> {
    map: MmapMut,
    len: usize,
    items: PhantomData<T>,
}

impl<T: AnyBitPattern + NoUninit> Region<T> {
    /// Maps and touches memory for `len` items.
    ///
    /// # Errors
    /// When the system has no such memory: measure fewer rows.
    pub fn new(len: usize) -> Result<Self, Failure> {
        let bytes = (len * size_of::<T>())
            .max(1)
            .next_multiple_of(HUGE_PAGE_BYTES);
        let mut map = MmapOptions::new().len(bytes).map_anon()?;
        advise(&map);
        for page in map.chunks_mut(4096) {
            page[0] = 0;
        }
        Ok(Self {
            map,
            len,
            items: PhantomData,
        })
    }
}

#[cfg(target_os = "linux")]
fn advise(map: &MmapMut) {
    // Both are wishes: without them the pages are small and are touched one by one.
    let _ = map.advise(Advice::HugePage);
    let _ = map.advise(Advice::PopulateWrite);
}

#[cfg(not(target_os = "linux"))]
fn advise(_map: &MmapMut) {}

impl<T: AnyBitPattern + NoUninit> Deref for Region<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.map[..self.len * size_of::<T>()])
    }
}

impl<T: AnyBitPattern + NoUninit> DerefMut for Region<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.map[..self.len * size_of::<T>()])
    }
}
