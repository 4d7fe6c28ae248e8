//! Owns the queue of messages to the webhook: they are sent one after the other, and each failed one is tried again after
//! growing pauses. Never knows the content of a message.

use super::message::{Message, Sender, signature};
use super::{Delivery, Webhook};
use crate::webhook::{self, Failure};
use base::clock::wall_ms;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most messages that wait. If there are more, the oldest is dropped, and the log says so.
const WAITING_MAX: usize = 200;
/// The pauses before further attempts: about a quarter of an hour in total. Later messages wait too, because they go to the
/// same address.
const PAUSES_S: [u64; 6] = [1, 5, 30, 120, 300, 600];

pub struct Outbox(Arc<Shared>);

struct Shared {
    state: Mutex<OutboxState>,
    woken: Condvar,
    sender: Sender,
}

struct OutboxState {
    webhook: Webhook,
    waiting: VecDeque<Message>,
    is_closed: bool,
    /// The number of changes of the webhook. A change ends a pause, because the new webhook may be reachable.
    changes: u64,
}

impl Outbox {
    pub fn open(webhook: Webhook, sender: Sender) -> io::Result<Outbox> {
        let state = OutboxState { webhook, waiting: VecDeque::new(), is_closed: false, changes: 0 };
        let shared = Arc::new(Shared { state: Mutex::new(state), woken: Condvar::new(), sender });
        let mine = Arc::clone(&shared);
        // The thread is not joined: nothing needs to wait until a message in progress is sent.
        std::thread::Builder::new().name("flintkv-webhook".to_owned()).spawn(move || mine.run())?;
        Ok(Outbox(shared))
    }

    pub fn push(&self, message: Message) {
        let mut state = self.0.state.lock();
        if !state.webhook.is_on() {
            return;
        }
        if state.waiting.len() == WAITING_MAX
            && let Some(dropped) = state.waiting.pop_front()
        {
            tracing::warn!("too many messages are waiting for the webhook: {} was dropped", dropped.delivery());
        }
        state.waiting.push_back(message);
        self.0.woken.notify_all();
    }

    pub fn webhook(&self) -> Webhook {
        self.0.state.lock().webhook.clone()
    }

    pub fn set(&self, webhook: Webhook) {
        let mut state = self.0.state.lock();
        state.webhook = webhook;
        state.changes += 1;
        self.0.woken.notify_all();
    }

    /// One attempt, without waiting in the queue.
    pub fn try_now(&self, message: &Message) -> Delivery {
        let webhook = self.webhook();
        let delivery = delivery(message, &send(&webhook, message, &self.0.sender), "");
        self.0.state.lock().webhook.last = Some(delivery.clone());
        delivery
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.0.woken.notify_all();
    }
}

impl Shared {
    fn run(&self) {
        while let Some(message) = self.next() {
            let mut pauses = PAUSES_S.iter();
            loop {
                let (webhook, changes) = {
                    let state = self.state.lock();
                    (state.webhook.clone(), state.changes)
                };
                if !webhook.is_on() {
                    break;
                }
                let outcome = send(&webhook, &message, &self.sender);
                let pause_s = match &outcome {
                    Err(Failure::Passing(_)) => pauses.next(),
                    _ => None,
                };
                let then = pause_s.map_or(String::new(), |seconds| format!("; it is tried again in {seconds} s"));
                let delivery = delivery(&message, &outcome, &then);
                if outcome.is_err() && pause_s.is_none() {
                    tracing::warn!(
                        "the webhook did not receive the message '{}': {}",
                        message.delivery(),
                        delivery.message
                    );
                }
                self.state.lock().webhook.last = Some(delivery);
                let Some(&pause_s) = pause_s else { break };
                if !self.rest(Duration::from_secs(pause_s), changes) {
                    return;
                }
            }
        }
    }

    /// Waits for a message. `None`: the outbox is closed.
    fn next(&self) -> Option<Message> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(message) = state.waiting.pop_front() {
                return Some(message);
            }
            self.woken.wait(&mut state);
        }
    }

    /// False: no more attempts are wanted.
    fn rest(&self, pause: Duration, changes: u64) -> bool {
        let until = Instant::now() + pause;
        let mut state = self.state.lock();
        while !state.is_closed && state.changes == changes {
            if self.woken.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        !state.is_closed
    }
}

fn send(webhook: &Webhook, message: &Message, sender: &Sender) -> Result<(), Failure> {
    let target = webhook::parse(&webhook.url).map_err(|error| Failure::Final(error.message().to_owned()))?;
    let body = message.body(webhook.format, sender);
    let mut headers = vec![("flintkv-delivery", message.delivery())];
    if let Some(secret) = &webhook.secret {
        let at_s = wall_ms() / 1000;
        headers.push(("flintkv-timestamp", at_s.to_string()));
        headers.push(("flintkv-signature", signature(secret, at_s, &body)));
    }
    webhook::post(&target, &headers, &body)
}

fn delivery(message: &Message, outcome: &Result<(), Failure>, then: &str) -> Delivery {
    let text = match outcome {
        Ok(()) => "delivered".to_owned(),
        Err(Failure::Passing(why) | Failure::Final(why)) => format!("{why}{then}"),
    };
    Delivery { at_ms: message.at_ms(), ok: outcome.is_ok(), message: text }
}
