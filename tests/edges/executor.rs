//! A tiny executor that counts: how often futures were polled, and how often they were woken.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Tasks that were woken, in order; shared with their wakers.
#[derive(Default)]
struct Woken {
    tasks: Mutex<VecDeque<usize>>,
    more: Condvar,
}

struct TaskWaker {
    task: usize,
    woken: Arc<Woken>,
    wakes: AtomicUsize,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.woken.tasks.lock().unwrap().push_back(self.task);
        self.woken.more.notify_one();
    }
}

/// What it took to bring a future to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effort {
    pub(super) polls: usize,
    pub(super) wakes: usize,
}

/// Polls a future whenever it was woken, and never else.
pub(super) fn run<T>(future: impl Future<Output = T>) -> (T, Effort) {
    let mut future = pin!(future);
    let mut stepper = Stepper::new();
    loop {
        if let Poll::Ready(value) = stepper.poll(future.as_mut()) {
            return (value, stepper.effort());
        }
        stepper.sleep();
    }
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    run(future).0
}

/// Polls a future so often at most, and drops it then.
pub(super) async fn partly<T>(future: impl Future<Output = T>, polls_max: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut polls = 0;
    let poll = |task: &mut Context<'_>| {
        if polls == polls_max {
            return Poll::Ready(None);
        }
        polls += 1;
        match future.as_mut().poll(task) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if polls == polls_max => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    };
    poll_fn(poll).await
}

/// Polls one future by hand.
pub(super) struct Stepper {
    waker: Arc<TaskWaker>,
    polls: usize,
}

impl Stepper {
    pub(super) fn new() -> Self {
        let waker = TaskWaker {
            task: 0,
            woken: Arc::default(),
            wakes: AtomicUsize::new(0),
        };
        let (waker, polls) = (Arc::new(waker), 0);
        Self { waker, polls }
    }

    pub(super) fn poll<T>(&mut self, future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        self.polls += 1;
        let waker = Waker::from(Arc::clone(&self.waker));
        future.poll(&mut Context::from_waker(&waker))
    }

    /// Sleeps until the future was woken.
    pub(super) fn sleep(&self) {
        let woken = &self.waker.woken;
        let mut tasks = woken.tasks.lock().unwrap();
        while tasks.pop_front().is_none() {
            tasks = woken.more.wait(tasks).unwrap();
        }
    }

    pub(super) fn effort(&self) -> Effort {
        Effort {
            polls: self.polls,
            wakes: self.waker.wakes.load(Ordering::SeqCst),
        }
    }
}

/// Runs many futures on this thread, each when it was woken.
pub(super) fn run_all<'a>(futures: Vec<Pin<Box<dyn Future<Output = ()> + 'a>>>) -> Vec<Effort> {
    let woken = Arc::new(Woken::default());
    let wakers: Vec<_> = (0..futures.len())
        .map(|task| {
            let (woken, wakes) = (Arc::clone(&woken), AtomicUsize::new(0));
            Arc::new(TaskWaker { task, woken, wakes })
        })
        .collect();
    let mut futures: Vec<_> = futures.into_iter().map(Some).collect();
    let mut polls = vec![0; futures.len()];
    woken.tasks.lock().unwrap().extend(0..futures.len());
    while futures.iter().any(Option::is_some) {
        let mut tasks = woken.tasks.lock().unwrap();
        let task = loop {
            match tasks.pop_front() {
                Some(task) => break task,
                None => tasks = woken.more.wait(tasks).unwrap(),
            }
        };
        drop(tasks);
        let Some(future) = &mut futures[task] else {
            continue;
        };
        polls[task] += 1;
        let waker = Waker::from(Arc::clone(&wakers[task]));
        if future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            futures[task] = None;
        }
    }
    let effort = |(&polls, waker): (&usize, &Arc<TaskWaker>)| Effort {
        polls,
        wakes: waker.wakes.load(Ordering::SeqCst),
    };
    polls.iter().zip(&wakers).map(effort).collect()
}
