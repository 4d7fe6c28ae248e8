//! Owns a watch at one member: its stream, and why it ended. Never knows who resumes it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt};

use crate::Watch;
use crate::error::{Error, Failure};
use crate::etcd::connection::{failure, wants_new_token};
use crate::etcd::messages::{DELETE, WatchCreateRequest, WatchEvent, WatchRequest};
use crate::etcd::{Shared, entry, text};
use crate::types::{Event, WatchEnd};

/// Batches that the reader has not taken. A full queue stops the reading of the stream, and etcd waits.
const QUEUED_MAX: usize = 16;

type Item = Result<Vec<Event>, WatchEnd>;

/// The end of the queue that the reader of the watch has.
struct Queue(mpsc::Receiver<Item>);

impl Stream for Queue {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        self.0.poll_recv(cx)
    }
}

pub fn begin(shared: Arc<Shared>, create: WatchCreateRequest) -> Watch {
    let (sender, receiver) = mpsc::channel(QUEUED_MAX);
    tokio::spawn(async move {
        // `closed`: the reader has dropped the watch, and the dropped stream cancels it at etcd.
        tokio::select! {
            end = follow(&shared, create, &sender) => drop(sender.send(Err(end)).await),
            () = sender.closed() => {}
        }
    });
    Box::pin(Queue(receiver))
}

async fn follow(shared: &Shared, create: WatchCreateRequest, sender: &mpsc::Sender<Item>) -> WatchEnd {
    let connection = &shared.connections[shared.watches.fetch_add(1, Relaxed) % shared.connections.len()];
    let cut = |failure: Failure| WatchEnd::Cut(Error::from(failure).to_string());
    let began = async {
        let token = shared.token(connection).await.map_err(cut)?;
        // etcd ends a watch when no more requests can come, so this stream of requests has no end.
        let requests = tokio_stream::once(WatchRequest { create: Some(create) }).chain(tokio_stream::pending());
        let mut stream = connection.stream(requests, token.clone()).await.map_err(|status| {
            if wants_new_token(&status) {
                shared.forget(token);
            }
            cut(failure(&status))
        })?;
        // The first answer says whether there is a watch. It may have events already.
        let first = stream.message().await.map_err(|status| cut(failure(&status)))?;
        Ok((stream, first))
    };
    let (mut stream, mut answer) = match timeout(shared.options.timeout, began).await {
        Ok(Ok(began)) => began,
        Ok(Err(end)) => return end,
        Err(_) => {
            connection.give_up();
            return WatchEnd::Cut("etcd did not begin the watch in time".to_owned());
        }
    };
    loop {
        let Some(said) = answer else { return WatchEnd::Cut("etcd ended the watch".to_owned()) };
        if said.compact_revision > 0 {
            return WatchEnd::Compacted { revision: said.compact_revision };
        }
        if said.canceled {
            return WatchEnd::Cut(said.cancel_reason);
        }
        if !said.events.is_empty() {
            let events = match said.events.into_iter().map(event).collect() {
                Ok(events) => events,
                Err(error) => return WatchEnd::Cut(Error::to_string(&error)),
            };
            if sender.send(Ok(events)).await.is_err() {
                return WatchEnd::Cut("nobody reads the watch".to_owned());
            }
        }
        answer = match stream.message().await {
            Ok(answer) => answer,
            Err(status) => return cut(failure(&status)),
        };
    }
}

fn event(event: WatchEvent) -> Result<Event, Error> {
    let kv = event.kv.unwrap_or_default();
    Ok(match event.kind {
        DELETE => Event::Deleted { revision: kv.mod_revision, key: text(kv.key)? },
        _ => Event::Put(entry(kv)?),
    })
}
