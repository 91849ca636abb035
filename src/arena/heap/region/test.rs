//! Regions of a whole process: pool, pages, mappings, threads.
//!
//! Each test runs in a process of its own, as everything else in this one uses the same pool.

#![expect(unsafe_code, reason = "allocators are unsafe to implement and to call")]

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::Command;
use std::{env, fs, ptr, thread};

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use hashbrown::{DefaultHashBuilder, HashMap};
use libmimalloc_sys as mimalloc;

use super::super::{Heap, Placement};
use super::{NODES_MAX, REGIONS_MAX, SEGMENT_BYTES, pool};

const MIB: usize = 1 << 20;

#[test]
fn every_block_lies_in_the_region_of_its_heap() {
    alone("every_block_lies_in_the_region_of_its_heap", || {
        let heaps = [Heap::new(None, 256 * MIB), Heap::new(None, 256 * MIB)];
        let regions = heaps.each_ref().map(|heap| heap.region().unwrap());
        assert!(regions[0].end <= regions[1].start || regions[1].end <= regions[0].start);
        for round in 0..200_000_usize {
            let heap = round % 2;
            let size = if round % 1000 == 0 {
                MIB
            } else {
                round % 500 + 1
            };
            let layout = Layout::array::<u8>(size).unwrap();
            let block = heaps[heap].allocate(layout).unwrap().cast::<u8>();
            let first = block.addr().get();
            assert!(regions[heap].contains(&first) && first + size <= regions[heap].end);
            if round % 3 == 0 {
                // SAFETY: the block was allocated above with this layout.
                unsafe { heaps[heap].deallocate(block, layout) };
            }
        }
    });
}

#[test]
fn full_region_is_an_error_and_freeing_recovers() {
    alone("full_region_is_an_error_and_freeing_recovers", || {
        let heap = super::RegionHeap::open(None, MIB).unwrap().0;
        let room = heap.addresses().len();
        for size in [64, 10_000, MIB] {
            let layout = Layout::array::<u8>(size).unwrap();
            for _ in 0..3 {
                let blocks: std::vec::Vec<_> =
                    std::iter::from_fn(|| heap.allocate(layout).ok()).collect();
                assert!(blocks.len() * size > room / 2, "{} of {size}", blocks.len());
                for block in blocks {
                    assert!(heap.addresses().contains(&block.cast::<u8>().addr().get()));
                    // SAFETY: the block was allocated above with this layout.
                    unsafe { heap.deallocate(block.cast(), layout) };
                }
            }
        }
    });
}

#[test]
fn thousand_openings_and_closings_grow_nothing() {
    alone("thousand_openings_and_closings_grow_nothing", || {
        (0..20).for_each(open_use_close);
        let before = Footprint::now();
        (0..1000).for_each(open_use_close);
        let after = Footprint::now();
        assert!(after.fits(&before), "{before:?} grew to {after:?}");
        assert_eq!(census(), (1, 1));
    });
}

#[test]
fn thousand_threads_with_heaps_grow_nothing() {
    alone("thousand_threads_with_heaps_grow_nothing", || {
        let in_threads = |rounds: Range<u64>| {
            for round in rounds {
                let open = |shard| thread::spawn(move || open_use_close(round + shard));
                let threads = [0, 1].map(open);
                threads
                    .into_iter()
                    .for_each(|thread| thread.join().unwrap());
            }
        };
        in_threads(0..20);
        let before = Footprint::now();
        in_threads(0..500);
        let after = Footprint::now();
        assert!(after.fits(&before), "{before:?} grew to {after:?}");
        assert!(census().0 <= 2);
    });
}

#[test]
fn heap_closed_with_live_blocks_gives_back_its_memory() {
    alone("heap_closed_with_live_blocks_gives_back_its_memory", || {
        for _ in 0..5 {
            let heap = Heap::new(None, 64 * MIB);
            let layout = Layout::new::<[u8; 1000]>();
            let blocks = (0..50_000).filter_map(|_| heap.allocate_zeroed(layout).ok());
            let blocks: std::vec::Vec<_> = blocks.collect();
            blocks.iter().for_each(|block| {
                // SAFETY: the block is live and this long.
                unsafe { block.cast::<[u8; 1000]>().write([1; 1000]) }
            });
            assert_eq!(blocks.len(), 50_000);
            let region = heap.region().unwrap();
            assert!(resident(&region) > 40 * MIB);
            drop(heap);
            assert_eq!(resident(&region), 0);
            assert_eq!(census(), (1, 1));
        }
    });
}

#[test]
fn freed_memory_stays_with_its_heap() {
    alone("freed_memory_stays_with_its_heap", || {
        let heap = super::RegionHeap::open(None, 64 * MIB).unwrap().0;
        let layout = Layout::new::<[u8; 50_000]>();
        let blocks = (0..1000).map(|_| heap.allocate(layout).unwrap());
        for mut block in blocks.collect::<std::vec::Vec<_>>() {
            // SAFETY: the block is live, this long, and nothing else refers to it.
            unsafe { block.as_mut() }.fill(1);
            // SAFETY: the block was allocated above with this layout.
            unsafe { heap.deallocate(block.cast(), layout) };
        }
        // SAFETY: the heap is live, and we are on its thread.
        unsafe {
            mimalloc::mi_heap_collect(heap.heap.as_ptr(), true);
            mimalloc::mi_collect(true);
        }
        assert!(resident(&heap.addresses()) > 40 * MIB);
    });
}

#[test]
fn heaps_beyond_the_pool_use_the_global_allocator() {
    alone("heaps_beyond_the_pool_use_the_global_allocator", || {
        for _ in 0..2 {
            let heaps: std::vec::Vec<_> = (0..200).map(|_| Heap::new(Some(0), MIB)).collect();
            let vectors: std::vec::Vec<_> = heaps.iter().map(filled_vector).collect();
            assert!(vectors.iter().all(|vector| vector.iter().all(|&b| b == 7)));
            let exhausted = |heap: &&Heap| heap.placement() == Placement::PoolExhausted;
            assert_eq!(heaps.iter().filter(exhausted).count(), 200 - REGIONS_MAX);
            let own = |heap: &&Heap| heap.region().is_some();
            assert_eq!(heaps.iter().filter(own).count(), REGIONS_MAX);
            assert!(heaps[199].allocate(Layout::new::<[u8; 2 * MIB]>()).is_err());
        }
        assert_eq!(census(), (REGIONS_MAX, REGIONS_MAX));
        assert_eq!(Heap::new(None, MIB).placement(), Placement::FirstTouch);
        let larger = Heap::new(None, 1000 * MIB);
        assert_eq!(larger.placement(), Placement::PoolExhausted);
    });
}

#[test]
fn region_of_an_ended_thread_serves_another_thread() {
    alone("region_of_an_ended_thread_serves_another_thread", || {
        let regions = [0, 1, 2].map(|_| {
            let thread = thread::spawn(|| {
                let heap = Heap::new(Some(0), 16 * MIB);
                assert_eq!(filled_vector(&heap).len(), MIB / 2);
                heap.region().unwrap()
            });
            thread.join().unwrap()
        });
        assert!(regions.iter().all(|region| *region == regions[0]));
        let heap = Heap::new(None, 16 * MIB);
        assert_eq!(heap.region().as_ref(), Some(&regions[0]));
        assert_eq!(filled_vector(&heap).len(), MIB / 2);
    });
}

#[test]
fn forgotten_heap_keeps_its_region_for_good() {
    alone("forgotten_heap_keeps_its_region_for_good", || {
        let (value, region) = thread::spawn(|| {
            let heap = Heap::new(None, MIB);
            let region = heap.region().unwrap();
            let value: &'static mut [u64; 9] = Box::leak(Box::new_in([3; 9], heap));
            (value, region)
        })
        .join()
        .unwrap();
        for _ in 0..3 {
            let heap = Heap::new(None, MIB);
            assert_ne!(heap.region().unwrap(), region);
            assert_eq!(filled_vector(&heap).len(), MIB / 2);
        }
        assert_eq!(*value, [3; 9]);
        assert_eq!(census(), (2, 1));
    });
}

#[test]
fn smallest_region_that_is_large_enough_is_lent() {
    alone("smallest_region_that_is_large_enough_is_lent", || {
        let sizes = [300 * MIB, MIB, 100 * MIB];
        let heaps = sizes.map(|bytes| Heap::new(None, bytes));
        let regions = heaps.each_ref().map(|heap| heap.region().unwrap());
        assert!(
            regions
                .iter()
                .all(|region| region.start % SEGMENT_BYTES == 0)
        );
        assert!(
            regions
                .iter()
                .zip(sizes)
                .all(|(region, size)| region.len() >= size)
        );
        drop(heaps);
        let small = Heap::new(None, 2 * MIB);
        let large = Heap::new(None, 299 * MIB);
        assert_eq!(small.region().as_ref(), Some(&regions[1]));
        assert_eq!(large.region().as_ref(), Some(&regions[0]));
        assert_eq!(census(), (3, 1));
    });
}

#[test]
fn impossible_size_is_served_by_the_global_allocator() {
    alone("impossible_size_is_served_by_the_global_allocator", || {
        for bytes in [usize::MAX, usize::MAX / 2, 1 << 50] {
            let heap = Heap::new(None, bytes);
            let errno = libc::ENOMEM;
            assert_eq!(heap.placement(), Placement::NoAddressSpace { errno });
            assert_eq!(filled_vector(&heap).len(), MIB / 2);
        }
        assert_eq!(census(), (0, 0));
    });
}

#[test]
fn node_that_does_not_exist_is_told() {
    alone("node_that_does_not_exist_is_told", || {
        for node in [NODES_MAX as u32 - 1, NODES_MAX as u32, u32::MAX] {
            let heap = Heap::new(Some(node), MIB);
            let placement = heap.placement();
            let Placement::NotBound { node: told, errno } = placement else {
                panic!("{placement}");
            };
            assert_eq!(told, node);
            // The kernel knows no such node, or lets nobody ask.
            let reasons = [libc::EINVAL, libc::EPERM, libc::ENOSYS];
            assert!(reasons.contains(&errno), "{placement}");
            assert!(heap.region().is_some());
            assert_eq!(filled_vector(&heap).len(), MIB / 2);
        }
    });
}

#[test]
fn pages_of_a_bound_heap_lie_on_its_node() {
    alone("pages_of_a_bound_heap_lie_on_its_node", || {
        for node in nodes_allowed() {
            let heap = Heap::new(Some(node), 16 * MIB);
            let placement = heap.placement();
            let vector = filled_vector(&heap);
            match placement {
                Placement::Bound { .. } => {
                    let pages = pages_by_node(&vector).unwrap_or_default();
                    assert!(pages.keys().all(|&found| found == node as i32), "{pages:?}");
                }
                Placement::NotBound { errno, .. } => {
                    assert!([libc::EPERM, libc::ENOSYS].contains(&errno), "{placement}");
                }
                other => panic!("{other}"),
            }
        }
    });
}

/// Runs `body` in a process of its own: this program again, with only the named test.
fn alone(name: &str, body: fn()) {
    if env::var_os("ANCILE_TEST_ALONE").is_some() {
        return body();
    }
    let (_, module) = module_path!().split_once("::").unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args([&format!("{module}::{name}"), "--exact", "--nocapture"])
        .env("ANCILE_TEST_ALONE", "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && told.contains("1 passed"),
        "{told}{complained}"
    );
}

/// A shard's life in small: a map, a large block, the end.
fn open_use_close(number: u64) {
    let heap = Heap::new(Some(0), 32 * MIB);
    assert!(heap.region().is_some());
    let mut map = HashMap::with_hasher_in(DefaultHashBuilder::default(), heap.clone());
    for key in 0..1000 {
        map.insert(key, number);
    }
    let vector = filled_vector(&heap);
    assert!(map.values().all(|&value| value == number) && vector[MIB / 4] == 7);
}

fn filled_vector(heap: &Heap) -> Vec<u8, Heap> {
    let mut vector = Vec::new_in(heap.clone());
    vector.try_reserve_exact(MIB / 2).unwrap();
    vector.resize(MIB / 2, 7);
    vector
}

/// Regions in existence, and those of them that no heap uses.
fn census() -> (usize, usize) {
    pool(|pool| (pool.registered, pool.idle.len()))
}

/// What a process that opens and closes for ever must not collect.
#[derive(Debug)]
struct Footprint {
    resident_bytes: usize,
    mappings: usize,
    arenas: usize,
}

impl Footprint {
    fn now() -> Self {
        let pages = fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
        let mappings = fs::read_to_string("/proc/self/maps").unwrap();
        Self {
            resident_bytes: pages * 4096,
            mappings: mappings.lines().count(),
            // SAFETY: asks mimalloc for the address of an arena, if there is one of that number.
            arenas: (1..=132)
                .filter(|&id| !unsafe { mi_arena_area(id, ptr::null_mut()) }.is_null())
                .count(),
        }
    }

    /// Threads come with stacks that the C library keeps for a while: allow a few.
    fn fits(&self, earlier: &Self) -> bool {
        self.resident_bytes <= earlier.resident_bytes + MIB
            && self.mappings <= earlier.mappings + 4
            && self.arenas == earlier.arenas
    }
}

/// Bytes of a range that are in memory.
fn resident(range: &Range<usize>) -> usize {
    let mut pages = std::vec![0_u8; range.len() / 4096];
    let start = ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: the range is mapped, and there is a byte for each of its pages.
    let status = unsafe { libc::mincore(start, range.len(), pages.as_mut_ptr()) };
    assert_eq!(status, 0);
    pages.iter().filter(|&&page| page & 1 == 1).count() * 4096
}

/// Nodes whose memory this process may use.
fn nodes_allowed() -> std::vec::Vec<u32> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Mems_allowed_list:"));
    let ranges = list.unwrap_or("0").trim().split(',');
    ranges
        .flat_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse::<u32>().unwrap()..=last.parse().unwrap()
        })
        .collect()
}

/// Asks the kernel on which node each page of the vector is; it may decline to say.
fn pages_by_node(vector: &Vec<u8, Heap>) -> Option<BTreeMap<i32, usize>> {
    let start = vector.as_ptr().addr() & !4095;
    let end = vector.as_ptr().addr() + vector.len();
    let pages: std::vec::Vec<usize> = (start..end).step_by(4096).collect();
    let mut nodes = std::vec![0_i32; pages.len()];
    // SAFETY: with no nodes given, the call only reports where the pages are.
    let status = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            pages.len(),
            pages.as_ptr(),
            ptr::null::<i32>(),
            nodes.as_mut_ptr(),
            0,
        )
    };
    if status != 0 {
        return None;
    }
    let mut count = BTreeMap::new();
    for node in nodes {
        *count.entry(node).or_default() += 1;
    }
    Some(count)
}

unsafe extern "C" {
    fn mi_arena_area(id: mimalloc::mi_arena_id_t, bytes: *mut usize) -> *mut libc::c_void;
}
