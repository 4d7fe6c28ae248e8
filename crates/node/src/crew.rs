//! Owns the threads that carry out commands: one per core, each with its runtime, shared by all databases.
//! Never knows a database: what runs on a thread is given to it.

use parking_lot::Mutex;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::mpsc;
use std::thread::JoinHandle;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Of a worker's thread: scripts return and decode nested data. What is not touched takes no memory. Without optimisation the
/// same depth takes several times as much.
const STACK_BYTES: usize = if cfg!(debug_assertions) { 32 << 20 } else { 8 << 20 };
/// Tasks that run before the sockets are looked at again: bounds what a busy connection costs the others, and is
/// large enough that looking (a system call) is shared by many.
const EVENT_INTERVAL: u32 = 31;

/// Called on a thread of the crew; the task it returns runs there.
pub type Begin = Box<dyn FnOnce() -> Task + Send>;
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

pub struct Crew {
    count: usize,
    threads: Mutex<Vec<(UnboundedSender<Begin>, JoinHandle<()>)>>,
}

impl Crew {
    pub fn start(count: usize) -> io::Result<Crew> {
        let mut threads = Vec::with_capacity(count);
        for index in 0..count {
            let (sender, inbox) = unbounded_channel();
            let (started, answer) = mpsc::channel();
            let builder = std::thread::Builder::new().name(format!("worker-{index}")).stack_size(STACK_BYTES);
            threads.push((sender, builder.spawn(move || run(inbox, &started))?));
            answer.recv().unwrap_or(Err(io::ErrorKind::BrokenPipe.into()))?;
        }
        Ok(Crew { count, threads: Mutex::new(threads) })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn begin(&self, thread: usize, begin: Begin) {
        // A thread ends with the crew, not before.
        if let Some((sender, _)) = self.threads.lock().get(thread) {
            let _ = sender.send(begin);
        }
    }

    /// Waits for the threads. Tasks that have not ended are dropped.
    pub fn end(&self) {
        for (sender, thread) in self.threads.lock().drain(..) {
            drop(sender);
            if thread.join().is_err() {
                tracing::error!("a worker's thread ended by a panic");
            }
        }
    }
}

fn run(mut inbox: UnboundedReceiver<Begin>, started: &mpsc::Sender<io::Result<()>>) {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        // Whoever shares the processor goes first, clients perhaps: then there is more to do, and no need to sleep
        // and be woken. Alone on its processor a worker loses a third of a microsecond.
        .on_thread_park(std::thread::yield_now)
        .build_local(LocalOptions::default());
    // The starter waits for this answer; if it is gone there is nobody to tell.
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(error))),
    };
    let _ = started.send(Ok(()));
    runtime.block_on(async {
        while let Some(begin) = inbox.recv().await {
            drop(tokio::task::spawn_local(begin()));
        }
    });
}
