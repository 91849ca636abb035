//! What a heap promises, with regions and without.

#![expect(unsafe_code, reason = "allocators are unsafe to implement and to call")]

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use hashbrown::{DefaultHashBuilder, HashMap};

use super::{Heap, Placement};

const MIB: usize = 1 << 20;

#[test]
fn blocks_are_aligned_disjoint_and_keep_their_contents() {
    let heap = Heap::new(None, 64 * MIB);
    let mut blocks = std::vec::Vec::new();
    for round in 0..2000_usize {
        let layout = Layout::from_size_align(round * 7 % 5000, 1 << (round % 13)).unwrap();
        let block = heap.allocate(layout).unwrap();
        assert_eq!(block.cast::<u8>().addr().get() % layout.align(), 0);
        assert_eq!(block.len(), layout.size());
        fill(block, round as u8);
        blocks.push((block, layout, round as u8));
        if round % 3 == 0 {
            let (block, layout, byte) = blocks.swap_remove(round % blocks.len());
            check_and_free(&heap, block, layout, byte);
        }
    }
    for (block, layout, byte) in blocks {
        check_and_free(&heap, block, layout, byte);
    }
    assert_eq!(heap.bytes(), 0);
}

#[test]
fn zeroed_blocks_are_zero_in_memory_that_was_used_before() {
    let heap = Heap::new(None, 64 * MIB);
    for size in [1, 64, 4096, 100_000, 20 * MIB] {
        let layout = Layout::array::<u8>(size).unwrap();
        for _ in 0..3 {
            let block = heap.allocate_zeroed(layout).unwrap();
            assert!(bytes_of(block).iter().all(|&byte| byte == 0));
            fill(block, 0xA5);
            check_and_free(&heap, block, layout, 0xA5);
        }
    }
}

#[test]
fn map_in_a_heap_holds_what_was_put_in() {
    let heap = Heap::new(None, 64 * MIB);
    let mut map = HashMap::with_hasher_in(DefaultHashBuilder::default(), heap.clone());
    for key in 0..100_000_u64 {
        map.try_reserve(1).unwrap();
        map.insert(key, key * 3);
    }
    for key in (0..100_000).step_by(2) {
        map.remove(&key);
    }
    assert_eq!(map.len(), 50_000);
    assert!((0..100_000).all(|key| map.get(&key).copied() == (key % 2 == 1).then_some(key * 3)));
    assert!(heap.bytes() >= 50_000 * 16);
    drop(map);
    assert_eq!(heap.bytes(), 0);
}

#[test]
fn vector_in_a_heap_grows_and_shrinks() {
    let heap = Heap::new(None, 64 * MIB);
    let mut vector = Vec::new_in(heap.clone());
    for number in 0..1_000_000_u64 {
        vector.try_reserve(1).unwrap();
        vector.push(number);
    }
    vector.truncate(10);
    vector.shrink_to_fit();
    assert_eq!(vector[..], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(heap.bytes(), vector.capacity() * 8);
}

#[test]
fn collections_outlive_every_handle_but_their_own() {
    let heap = Heap::new(None, 64 * MIB);
    let mut vector = Vec::new_in(heap.clone());
    vector.extend(0..1000);
    let boxed = Box::new_in([7_u8; 300], heap.clone());
    let leaked = Box::leak(Box::new_in(5_u64, heap.clone()));
    drop(heap);
    vector.extend(1000..100_000);
    assert!((0..100_000).eq(vector.iter().copied()));
    drop(vector);
    assert_eq!((boxed[299], *leaked), (7, 5));
}

#[test]
fn limit_is_an_error_and_freeing_recovers() {
    let heap = Heap::new(None, 8 * MIB);
    let layout = Layout::new::<[u8; 1024]>();
    for _ in 0..3 {
        let blocks = allocate_all(&heap, layout);
        assert_eq!(blocks.len(), 8 * 1024);
        assert_eq!(heap.bytes(), heap.bytes_max());
        assert!(heap.allocate(Layout::new::<u8>()).is_err());
        for block in blocks {
            check_and_free(&heap, block, layout, 1);
        }
        assert_eq!(heap.bytes(), 0);
    }
    assert!(heap.allocate(Layout::new::<[u8; 9 * MIB]>()).is_err());

    let mut map = HashMap::with_hasher_in(DefaultHashBuilder::default(), heap.clone());
    let mut key = 0_u64;
    while map.try_reserve(1).is_ok() {
        map.insert(key, key);
        key += 1;
    }
    assert!((0..key).all(|key| map.get(&key) == Some(&key)));
    assert!(key > 100_000, "{key} entries of 17 bytes in 8 MiB");
}

#[test]
fn limit_can_be_filled_with_blocks_of_any_size() {
    let heap = Heap::new(None, 64 * MIB);
    for size in [100, 1000, 30_000, 300_000, 3 * MIB, 11 * MIB, 17 * MIB] {
        let layout = Layout::array::<u8>(size).unwrap();
        let blocks = allocate_all(&heap, layout);
        assert_eq!(blocks.len(), 64 * MIB / size, "blocks of {size} bytes");
        for block in blocks {
            check_and_free(&heap, block, layout, 1);
        }
    }
}

#[test]
fn heap_of_no_bytes_serves_empty_blocks_only() {
    let heap = Heap::new(None, 0);
    assert!(heap.allocate(Layout::new::<u8>()).is_err());
    let empty = Layout::from_size_align(0, 256).unwrap();
    let block = heap.allocate(empty).unwrap();
    assert_eq!(block.cast::<u8>().addr().get() % 256, 0);
    check_and_free(&heap, block, empty, 0);
}

#[test]
fn placement_is_told_in_words() {
    let told = [
        (Placement::Bound { node: 3 }, "bound to node 3"),
        (
            Placement::NotBound { node: 1, errno: 1 },
            "not bound to node 1 (EPERM)",
        ),
        (
            Placement::PoolExhausted,
            "global allocator (pool exhausted)",
        ),
        (
            Placement::NoAddressSpace { errno: 12 },
            "global allocator (ENOMEM)",
        ),
    ];
    for (placement, words) in told {
        assert_eq!(placement.to_string(), words);
    }
}

#[cfg(not(feature = "mimalloc"))]
#[test]
fn heap_without_mimalloc_says_that_it_is_global() {
    let heap = Heap::new(Some(0), MIB);
    assert_eq!((heap.placement(), heap.region()), (Placement::Global, None));
}

/// Allocates blocks until the heap refuses, and fills them with ones.
fn allocate_all(heap: &Heap, layout: Layout) -> std::vec::Vec<NonNull<[u8]>> {
    let blocks: std::vec::Vec<_> = std::iter::from_fn(|| heap.allocate(layout).ok()).collect();
    blocks.iter().for_each(|&block| fill(block, 1));
    blocks
}

/// Checks that a block still holds `byte` everywhere, and frees it.
fn check_and_free(heap: &Heap, block: NonNull<[u8]>, layout: Layout, byte: u8) {
    assert!(bytes_of(block).iter().all(|&found| found == byte));
    // SAFETY: the tests pass a live block of this heap with its layout, once.
    unsafe { heap.deallocate(block.cast(), layout) };
}

fn fill(mut block: NonNull<[u8]>, byte: u8) {
    // SAFETY: the tests pass a live block that nothing else refers to.
    unsafe { block.as_mut() }.fill(byte);
}

fn bytes_of<'block>(block: NonNull<[u8]>) -> &'block [u8] {
    // SAFETY: the tests pass a live block that they filled, and let go of the bytes at once.
    unsafe { block.as_ref() }
}
