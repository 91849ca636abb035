//! What a ring promises, on one thread and on two.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{Consumer, Full, Producer, Slot, ring, ring_at_lap};

const CAPACITIES: [usize; 6] = [1, 2, 3, 5, 64, 1000];

#[test]
fn values_come_out_in_the_order_they_went_in() {
    for capacity in CAPACITIES {
        let (mut producer, mut consumer) = ring(capacity);
        let mut sent = 0_usize;
        let mut received = 0_usize;
        for step in 0..5 * capacity + 7 {
            for _ in 0..step % capacity + 1 {
                sent += usize::from(producer.push(sent).is_ok());
            }
            for _ in 0..(3 * step) % capacity + 1 {
                if let Some(value) = consumer.pop() {
                    assert_eq!(value, received);
                    received += 1;
                }
            }
        }
        while let Some(value) = consumer.pop() {
            assert_eq!(value, received);
            received += 1;
        }
        assert_eq!(sent, received);
        assert!(sent > 2 * capacity, "the ring went round {sent}/{capacity}");
    }
}

#[test]
fn ring_takes_exactly_its_capacity() {
    for capacity in CAPACITIES {
        let (mut producer, mut consumer) = ring(capacity);
        for value in 0..capacity {
            assert_eq!(producer.push(value), Ok(()));
        }
        assert_eq!(producer.push(77), Err(Full(77)));
        assert_eq!(consumer.pop(), Some(0));
        assert_eq!(producer.push(78), Ok(()));
        assert_eq!(producer.push(79), Err(Full(79)));
    }
}

#[test]
fn ready_says_whether_pop_returns_a_message() {
    let (mut producer, mut consumer) = ring(3);
    for value in 0..10 {
        assert!(!consumer.is_ready());
        assert_eq!(consumer.pop(), None);
        producer.push(value).unwrap();
        assert!(consumer.is_ready());
        assert_eq!(consumer.pop(), Some(value));
    }
}

#[test]
fn stamps_pass_the_end_of_their_range() {
    for capacity in [1, 2, 3] {
        let (mut producer, mut consumer) = ring_at_lap(capacity, u32::MAX / 2 - 3);
        for value in 0..40 {
            assert_eq!(producer.push(value), Ok(()));
            assert_eq!(consumer.pop(), Some(value));
            assert_eq!(consumer.pop(), None);
        }
    }
}

#[test]
fn small_message_takes_one_line_and_larger_one_two() {
    assert_eq!(size_of::<Slot<()>>(), 64);
    assert_eq!(size_of::<Slot<[u64; 7]>>(), 64);
    assert_eq!(size_of::<Slot<[u8; 60]>>(), 64);
    assert_eq!(size_of::<Slot<[u64; 8]>>(), 128);
    assert_eq!(align_of::<Slot<u8>>(), 64);
}

#[test]
#[should_panic(expected = "at least one slot")]
fn ring_without_slots_is_refused() {
    drop(ring::<u8>(0));
}

#[test]
fn peek_shows_what_pop_takes() {
    let (mut producer, mut consumer) = ring(2);
    assert_eq!(consumer.peek(), None::<&String>);
    for text in ["a", "b", "c"] {
        producer.push(text.to_owned()).unwrap();
        assert_eq!(consumer.peek().map(String::as_str), Some(text));
        assert_eq!(consumer.pop().as_deref(), Some(text));
    }
}

#[test]
fn each_end_learns_that_the_other_is_gone() {
    let (producer, consumer) = ring::<u8>(2);
    assert!(!producer.is_abandoned() && !consumer.is_abandoned());
    drop(consumer);
    assert!(producer.is_abandoned());

    let (mut producer, mut consumer) = ring(2);
    producer.push(1).unwrap();
    drop(producer);
    assert!(consumer.is_abandoned());
    assert_eq!(consumer.pop(), Some(1));
    assert_eq!(consumer.pop(), None);
}

#[test]
fn undelivered_values_are_dropped_once_at_every_offset() {
    for capacity in [1, 2, 3, 5, 8] {
        for offset in 0..2 * capacity {
            for undelivered in 0..=capacity {
                let drops = AtomicUsize::new(0);
                let (mut producer, mut consumer) = ring(capacity);
                for _ in 0..offset {
                    assert!(producer.push(Counted(&drops)).is_ok());
                    drop(consumer.pop());
                }
                for _ in 0..undelivered {
                    assert!(producer.push(Counted(&drops)).is_ok());
                }
                assert_eq!(drops.load(Ordering::Relaxed), offset);
                if undelivered % 2 == 0 {
                    drop(producer);
                    drop(consumer);
                } else {
                    drop(consumer);
                    drop(producer);
                }
                assert_eq!(drops.load(Ordering::Relaxed), offset + undelivered);
            }
        }
    }
}

#[test]
fn panicking_drop_of_a_received_value_drops_it_once() {
    let drops = AtomicUsize::new(0);
    let (mut producer, mut consumer) = ring(2);
    assert!(producer.push(Panicking(&drops)).is_ok());
    assert!(producer.push(Panicking(&drops)).is_ok());
    for expected in 1..=2 {
        let caught = catch_unwind(AssertUnwindSafe(|| drop(consumer.pop())));
        assert!(caught.is_err());
        assert_eq!(drops.load(Ordering::Relaxed), expected);
    }
    assert!(consumer.pop().is_none());
    drop((producer, consumer));
    assert_eq!(drops.load(Ordering::Relaxed), 2);
}

#[test]
fn panicking_drop_of_an_undelivered_value_lets_the_others_be_dropped() {
    let drops = AtomicUsize::new(0);
    let (mut producer, consumer) = ring::<Box<dyn Anything + '_>>(4);
    assert!(producer.push(Box::new(Counted(&drops))).is_ok());
    assert!(producer.push(Box::new(Panicking(&drops))).is_ok());
    assert!(producer.push(Box::new(Counted(&drops))).is_ok());
    drop(consumer);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(producer))).is_err());
    assert_eq!(drops.load(Ordering::Relaxed), 3);
}

#[test]
fn values_cross_threads_whole_and_in_order() {
    for capacity in [1, 2, 3, 64, 1000] {
        let (producer, consumer) = ring(capacity);
        thread::scope(|scope| {
            scope.spawn(|| send_numbers(producer, 1_000_000));
            receive_numbers(consumer, 1_000_000);
        });
    }
}

#[test]
fn ends_may_move_between_threads_while_the_ring_is_in_use() {
    let (mut producer, mut consumer) = ring(3);
    for round in 0..100_u64 {
        let (sender, receiver) = thread::scope(|scope| {
            let sender = scope.spawn(move || {
                for number in 0..10 {
                    push_waiting(&mut producer, round * 10 + number);
                }
                producer
            });
            let receiver = scope.spawn(move || {
                for number in 0..10 {
                    assert_eq!(pop_waiting(&mut consumer), round * 10 + number);
                }
                consumer
            });
            (sender.join().unwrap(), receiver.join().unwrap())
        });
        (producer, consumer) = (sender, receiver);
    }
}

#[test]
fn consumer_dropped_under_a_sending_producer_loses_no_drop() {
    for round in 0..200 {
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut producer, mut consumer) = ring(4);
        let counted = Arc::clone(&drops);
        let sender = thread::spawn(move || {
            let mut made = 0;
            while !producer.is_abandoned() {
                made += 1;
                if producer.push(CountedShared(Arc::clone(&counted))).is_err() {
                    thread::yield_now();
                }
            }
            made
        });
        for _ in 0..round {
            drop(pop_waiting(&mut consumer));
        }
        drop(consumer);
        let made = sender.join().unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), made);
    }
}

#[test]
fn ends_are_send_and_not_sync_and_not_clone() {
    fn is_send<T: Send>() {}
    is_send::<Producer<Box<u8>>>();
    is_send::<Consumer<Box<u8>>>();
    // Each call below is ambiguous, and does not compile, if an end gains one of the traits.
    <Producer<u8> as Lacks<_>>::checked();
    <Consumer<u8> as Lacks<_>>::checked();
}

trait Lacks<Which> {
    fn checked() {}
}
struct Sharing;
struct Copying;
impl<T> Lacks<()> for T {}
impl<T: Sync> Lacks<Sharing> for T {}
impl<T: Clone> Lacks<Copying> for T {}

/// Any value; boxed so that one ring can carry values with different ways to be dropped.
trait Anything {}
impl<T> Anything for T {}

fn send_numbers(mut producer: Producer<[u64; 7]>, count: u64) {
    for number in 0..count {
        push_waiting(&mut producer, [number; 7]);
    }
}

fn receive_numbers(mut consumer: Consumer<[u64; 7]>, count: u64) {
    for number in 0..count {
        assert_eq!(pop_waiting(&mut consumer), [number; 7]);
    }
    assert!(consumer.pop().is_none());
}

fn push_waiting<T>(producer: &mut Producer<T>, mut value: T) {
    while let Err(full) = producer.push(value) {
        value = full.0;
        thread::yield_now();
    }
}

fn pop_waiting<T>(consumer: &mut Consumer<T>) -> T {
    loop {
        match consumer.pop() {
            Some(value) => return value,
            None => thread::yield_now(),
        }
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct CountedShared(Arc<AtomicUsize>);

impl Drop for CountedShared {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Panicking<'a>(&'a AtomicUsize);

impl Drop for Panicking<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("a message that does not want to be dropped");
    }
}
