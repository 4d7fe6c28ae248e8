//! Owns the threads that run commands: one per core, each with its own runtime, shared by all databases. Never knows
//! a database: it runs the tasks that it is given.

use engine::beside_scripts;
use parking_lot::Mutex;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::JoinHandle;
use tokio::runtime::{Builder, LocalOptions, RuntimeMetrics};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The stack of a worker's thread: scripts recurse and decode nested data. Untouched pages take no memory. Without
/// optimisation the same depth needs several times as much.
const STACK_BYTES: usize = if cfg!(debug_assertions) { 32 << 20 } else { 8 << 20 };
/// The number of tasks that run between two polls of the sockets. It bounds how long a busy connection delays the
/// others. It is large enough to spread the cost of the poll (a system call) over many tasks.
const EVENT_INTERVAL: u32 = 31;

/// Called on a thread of the worker pool. The task that it returns runs there.
pub type Begin = Box<dyn FnOnce() -> Task + Send>;
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What the event loops of all threads have done since the start of the process. The runtime counts it anyway, whenever it sleeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounds {
    /// A round ends in a sleep, until there is work or a timer is due.
    pub count: u64,
    /// The time besides the sleeps.
    pub busy_us: u64,
}

pub struct Loops(Vec<RuntimeMetrics>);

impl Loops {
    pub fn rounds(&self) -> Rounds {
        // Each runtime has one worker.
        self.0.iter().fold(Rounds::default(), |sum, metrics| Rounds {
            count: sum.count + metrics.worker_park_count(0),
            busy_us: sum.busy_us + metrics.worker_total_busy_duration(0).as_micros() as u64,
        })
    }
}

impl std::fmt::Debug for Loops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.rounds().fmt(f)
    }
}

pub struct WorkerPool {
    count: usize,
    loops: Arc<Loops>,
    threads: Mutex<Vec<(UnboundedSender<Begin>, JoinHandle<()>)>>,
}

impl WorkerPool {
    pub fn start(count: usize) -> io::Result<WorkerPool> {
        let (mut threads, mut loops) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for index in 0..count {
            let (sender, inbox) = unbounded_channel();
            let (started, answer) = mpsc::channel();
            let builder = std::thread::Builder::new().name(format!("worker-{index}")).stack_size(STACK_BYTES);
            threads.push((sender, builder.spawn(move || run(inbox, &started))?));
            loops.push(answer.recv().unwrap_or(Err(io::ErrorKind::BrokenPipe.into()))?);
        }
        Ok(WorkerPool { count, loops: Arc::new(Loops(loops)), threads: Mutex::new(threads) })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn loops(&self) -> Arc<Loops> {
        Arc::clone(&self.loops)
    }

    pub fn begin(&self, thread: usize, begin: Begin) {
        // A missing thread means that the worker pool has ended, and then nothing can run.
        if let Some((sender, _)) = self.threads.lock().get(thread) {
            let _ = sender.send(begin);
        }
    }

    /// Waits for the threads to end. Tasks that have not ended are dropped.
    pub fn end(&self) {
        for (sender, thread) in self.threads.lock().drain(..) {
            drop(sender);
            if thread.join().is_err() {
                tracing::error!("a worker's thread panicked");
            }
        }
    }
}

/// So many threads of this process compute for long at this moment.
static COMPUTING: AtomicUsize = AtomicUsize::new(0);

/// As long as it lives, a thread besides the workers computes for long: see [`yield_first`].
pub struct Computing;

impl Computing {
    pub fn begins() -> Computing {
        COMPUTING.fetch_add(1, Relaxed);
        Computing
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        COMPUTING.fetch_sub(1, Relaxed);
    }
}

/// Before a worker sleeps, it yields its core to other processes, perhaps clients, which often send more work: this saves the sleep and the
/// wake-up. If the worker is alone on its core, the yield costs a third of a microsecond. While a thread computes, the worker does not
/// yield: that thread could have the core for milliseconds, even if work for the worker comes. A worker that sleeps is woken at once.
fn yield_first() {
    if COMPUTING.load(Relaxed) == 0 {
        std::thread::yield_now();
    }
}

fn run(mut inbox: UnboundedReceiver<Begin>, started: &mpsc::Sender<io::Result<RuntimeMetrics>>) {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        .on_thread_park(yield_first)
        .build_local(LocalOptions::default());
    // The starter waits for this answer. If the starter is gone, nobody needs the answer.
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(error))),
    };
    let _ = started.send(Ok(runtime.handle().metrics()));
    // A new link must be taken even if a script has blocked the thread for long.
    runtime.block_on(beside_scripts(async move {
        while let Some(begin) = inbox.recv().await {
            drop(tokio::task::spawn_local(begin()));
        }
    }));
}
