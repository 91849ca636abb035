//! loom models: every interleaving of two threads over rings of one and two slots.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --lib ring::`.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::{Consumer, Producer, ring};
use crate::sync::WEAKENED;

#[test]
fn messages_arrive_in_order_and_whole_through_one_slot() {
    loom::model(|| in_order_and_whole(1, 3));
}

#[test]
fn messages_arrive_in_order_and_whole_through_two_slots() {
    loom::model(|| in_order_and_whole(2, 4));
}

#[test]
fn full_ring_gives_the_value_back_and_takes_it_after_a_pop() {
    loom::model(|| full_then_taken(1));
    loom::model(|| full_then_taken(2));
}

#[test]
fn readiness_is_never_taken_back() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(1);
        let sender = thread::spawn(move || producer.push(7_u8).is_ok());
        if consumer.is_ready() {
            assert_eq!(consumer.pop(), Some(7));
        }
        assert!(sender.join().unwrap());
    });
}

#[test]
fn consumer_that_sees_the_producer_gone_finds_all_it_sent() {
    loom::model(all_found_after_farewell);
}

#[test]
fn producer_that_sees_the_consumer_gone_sees_its_work_done() {
    loom::model(work_seen_after_farewell);
}

#[test]
fn dropping_either_end_first_drops_each_message_once() {
    loom::model(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut producer, mut consumer) = ring(2);
        let counted = Arc::clone(&drops);
        let sender = thread::spawn(move || {
            for _ in 0..2 {
                assert!(producer.push(Counted(Arc::clone(&counted))).is_ok());
            }
        });
        drop(consumer.pop());
        drop(consumer);
        sender.join().unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), 2);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn unpublished_message_is_noticed() {
    weakened("publish", || in_order_and_whole(1, 1));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn unreceived_message_is_noticed() {
    weakened("receive", || in_order_and_whole(1, 1));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn slot_not_given_back_in_order_is_noticed() {
    weakened("give_back", || in_order_and_whole(1, 2));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn slot_not_reclaimed_in_order_is_noticed() {
    weakened("reclaim", || in_order_and_whole(1, 2));
}

#[test]
#[should_panic(expected = "a message was lost")]
fn farewell_not_said_in_order_is_noticed() {
    weakened("say_farewell", all_found_after_farewell);
}

#[test]
#[should_panic(expected = "a message was lost")]
fn farewell_not_seen_in_order_is_noticed() {
    weakened("see_farewell", all_found_after_farewell);
}

fn weakened(name: &'static str, model: fn()) {
    WEAKENED.set(Some(name));
    loom::model(model);
}

fn in_order_and_whole(capacity: usize, messages: u8) {
    let (mut producer, mut consumer) = ring(capacity);
    let sender = thread::spawn(move || {
        for number in 0..messages {
            push_waiting(&mut producer, [number; 9]);
        }
    });
    for number in 0..messages {
        assert_eq!(pop_waiting(&mut consumer), [number; 9]);
    }
    assert!(!consumer.is_ready() && consumer.pop().is_none());
    sender.join().unwrap();
}

fn full_then_taken(capacity: usize) {
    let (mut producer, mut consumer) = ring(capacity);
    for number in 0..capacity {
        producer.push(number).unwrap();
    }
    assert_eq!(producer.push(capacity).unwrap_err().0, capacity);
    let receiver = thread::spawn(move || {
        assert_eq!(consumer.pop(), Some(0));
        consumer
    });
    push_waiting(&mut producer, capacity);
    let mut consumer = receiver.join().unwrap();
    assert!((1..=capacity).all(|number| consumer.pop() == Some(number)));
}

fn all_found_after_farewell() {
    let (mut producer, mut consumer) = ring(2);
    let sender = thread::spawn(move || {
        assert!(producer.push(1).is_ok() && producer.push(2).is_ok());
    });
    if consumer.is_abandoned() {
        let found = [consumer.pop(), consumer.pop()];
        assert_eq!(found, [Some(1), Some(2)], "a message was lost");
    }
    sender.join().unwrap();
}

fn work_seen_after_farewell() {
    let (mut producer, mut consumer) = ring(1);
    producer.push(1).unwrap();
    let receiver = thread::spawn(move || assert_eq!(consumer.pop(), Some(1)));
    if producer.is_abandoned() {
        assert!(producer.push(2).is_ok(), "the slot was not given back");
    }
    receiver.join().unwrap();
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

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
