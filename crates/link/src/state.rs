//! Owns a link's state: what each call and each frame does to it. Never knows the stream or the time, and calls no waker: it hands them
//! to the caller, who calls them without the lock.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, Waker};

use tokio::io::ReadBuf;

use crate::end::{End, Violation};
use crate::frame::{Header, Kind, SESSIONS_MAX, TARGET_BYTES_MAX, WINDOW_BYTES};
use crate::messages::Messages;
use crate::options::{Options, Role};
use crate::outgoing::Outgoing;
use crate::slot::{Peer, Slot, Spare};
use crate::wake::{Waiting, register};

pub struct Multiplexer {
    role: Role,
    pub options: Options,
    pub ended: Option<End>,
    /// `Link`s.
    pub handles: usize,
    /// `Session`s.
    held: usize,
    /// By number.
    slots: Vec<Option<Box<Slot>>>,
    /// How much the windows of the held sessions have grown.
    grown: usize,
    /// Slots that are used.
    pub live: usize,
    /// Numbers below `slots.len()` that an opener can use again.
    free: Vec<u32>,
    pub out: Outgoing,
    pub messages: Messages,
    spare: Spare,
    /// Opened by the peer, and not yet accepted.
    opened: VecDeque<(Vec<u8>, u32)>,
    /// The driver, while it sleeps and was not woken.
    pub driver: Option<Waker>,
    acceptors: Waiting,
    receivers: Waiting,
}

/// What sessions and handles do.
impl Multiplexer {
    pub fn new(role: Role, mut options: Options) -> Multiplexer {
        options.sessions_max = options.sessions_max.min(SESSIONS_MAX);
        options.first_window_bytes = options.first_window_bytes.clamp(2, WINDOW_BYTES);
        Multiplexer {
            role,
            ended: None,
            handles: 1,
            held: 0,
            slots: Vec::new(),
            grown: 0,
            live: 0,
            free: Vec::new(),
            out: Outgoing::new(options.outgoing_bytes_max),
            messages: Messages::default(),
            spare: Spare::default(),
            opened: VecDeque::new(),
            driver: None,
            acceptors: Waiting::default(),
            receivers: Waiting::default(),
            options,
        }
    }

    /// The caller wakes it, once the lock is released.
    pub fn take_driver(&mut self) -> Option<Waker> {
        self.driver.take()
    }

    /// Whether the driver has something to do now. While a write is under way, its end wakes the driver.
    pub fn needs_driver(&self) -> bool {
        let has_to_send = self.out.in_flight == 0 && self.has_outgoing();
        has_to_send || self.out.watches_turns()
    }

    /// Of a session that is held, and so has a slot.
    fn slot(&mut self, number: u32) -> &mut Slot {
        self.slots[number as usize].as_mut().expect("a held session has a slot")
    }

    pub fn open(&mut self, target: &[u8]) -> io::Result<u32> {
        if self.role == Role::Acceptor {
            return Err(io::Error::new(ErrorKind::Unsupported, "only the end that connected opens sessions"));
        }
        if let Some(end) = &self.ended {
            return Err(io::Error::new(ErrorKind::NotConnected, end.clone()));
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the target of a session is too long"));
        }
        if self.live >= self.options.sessions_max {
            return Err(io::Error::new(ErrorKind::QuotaExceeded, "the link has too many sessions"));
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[number as usize] = Some(Box::new(Slot::new(self.options.first_window_bytes)));
        self.live += 1;
        self.held += 1;
        self.out.push(Kind::Open, number, target);
        Ok(number)
    }

    pub fn poll_accept(&mut self, context: &Context<'_>) -> Poll<Option<(Vec<u8>, u32)>> {
        if let Some(opened) = self.opened.pop_front() {
            self.held += 1;
            return Poll::Ready(Some(opened));
        }
        if self.ended.is_some() || self.role == Role::Opener {
            return Poll::Ready(None);
        }
        self.acceptors.register(context);
        Poll::Pending
    }

    pub fn poll_read(&mut self, number: u32, context: &Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let slot = self.slots[number as usize].as_mut().expect("a held session has a slot");
        if to.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if !slot.received.is_empty() {
            slot.read(to, &mut self.spare);
            slot.is_used = true;
            // Credit is given back when half a window was read.
            if slot.consumed >= slot.window / 2 && slot.peer == Peer::Open && self.ended.is_none() {
                let (first, room) = (self.options.first_window_bytes, self.options.grown_bytes_max - self.grown);
                let before = slot.window;
                let credit = slot.give_credit(first, room);
                self.grown = self.grown + slot.window as usize - before as usize;
                self.out.push(Kind::Credit, number, &credit.to_le_bytes());
            }
            return Poll::Ready(Ok(()));
        }
        match (slot.peer, &self.ended) {
            (Peer::Refused, _) => Poll::Ready(Err(refused())),
            (Peer::Ended | Peer::Closed, _) => Poll::Ready(Ok(())),
            (Peer::Open, Some(end)) => Poll::Ready(Err(reset(end))),
            (Peer::Open, None) => {
                register(&mut slot.reader, context);
                Poll::Pending
            }
        }
    }

    pub fn poll_write(&mut self, number: u32, context: &Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let slot = self.slots[number as usize].as_mut().expect("a held session has a slot");
        if let Some(error) = write_error(slot, self.ended.as_ref()) {
            return Poll::Ready(Err(error));
        }
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if slot.credit == 0 {
            register(&mut slot.writer, context);
            return Poll::Pending;
        }
        let out = &mut self.out;
        if slot.turn == out.round {
            slot.turn = 0;
            out.unused_turns -= 1;
        } else if !out.waiting.is_empty() || !out.has_room() {
            if !slot.is_queued {
                slot.is_queued = true;
                out.waiting.push_back(number);
            }
            register(&mut slot.writer, context);
            return Poll::Pending;
        }
        let bytes = data.len().min(slot.credit as usize).min(out.share);
        out.push_data(number, &data[..bytes]);
        slot.credit -= bytes as u32;
        slot.is_used = true;
        Poll::Ready(Ok(bytes))
    }

    /// Sends END, once.
    pub fn shut_down(&mut self, number: u32) -> io::Result<()> {
        let slot = self.slots[number as usize].as_mut().expect("a held session has a slot");
        if slot.has_ended || slot.peer.is_gone() {
            return Ok(());
        }
        if let Some(end) = &self.ended {
            return Err(reset(end));
        }
        slot.has_ended = true;
        slot.is_used = true;
        self.out.push(Kind::End, number, &[]);
        Ok(())
    }

    /// A `Session` is dropped.
    pub fn drop_session(&mut self, number: u32, is_refusal: bool, wakers: &mut Vec<Waker>) {
        self.held -= 1;
        self.close(number, is_refusal);
        self.close_unused(wakers);
        wakers.extend(self.take_driver());
    }

    fn close(&mut self, number: u32, is_refusal: bool) {
        let kind = match is_refusal && self.role == Role::Acceptor && !self.slot(number).is_used {
            true => Kind::Refuse,
            false => Kind::Close,
        };
        self.leave_queue(number);
        let slot = self.slots[number as usize].as_mut().expect("a held session has a slot");
        slot.is_held = false;
        slot.has_closed = true;
        // What still comes is discarded.
        self.grown -= (slot.window - self.options.first_window_bytes) as usize;
        (slot.reader, slot.writer) = (None, None);
        self.spare.give(std::mem::take(&mut slot.received));
        if self.ended.is_none() {
            self.out.push(kind, number, &[]);
        }
        if slot.peer.is_gone() || self.ended.is_some() {
            self.free(number);
        }
    }

    fn free(&mut self, number: u32) {
        self.slots[number as usize] = None;
        self.live -= 1;
        if self.role == Role::Opener {
            self.free.push(number);
        }
    }

    /// The session waits for no turn, and gives back the one that it has.
    fn leave_queue(&mut self, number: u32) {
        let slot = self.slots[number as usize].as_mut().expect("the session has a slot");
        if std::mem::take(&mut slot.is_queued) {
            self.out.waiting.retain(|waiting| *waiting != number);
        }
        if slot.turn == self.out.round {
            slot.turn = 0;
            self.out.unused_turns -= 1;
        }
    }

    pub fn drop_handle(&mut self, wakers: &mut Vec<Waker>) {
        self.handles -= 1;
        if self.handles == 0 {
            for (_, number) in std::mem::take(&mut self.opened) {
                self.close(number, true);
            }
            self.close_unused(wakers);
            wakers.extend(self.take_driver());
        }
    }

    fn close_unused(&mut self, wakers: &mut Vec<Waker>) {
        if self.handles == 0 && self.held == 0 {
            self.end(End::Closed, wakers);
        }
    }

    pub fn send_message(&mut self, message: &[u8]) -> bool {
        self.ended.is_none() && self.messages.send(message, &self.options)
    }

    pub fn poll_message(&mut self, context: &Context<'_>) -> Poll<Option<Vec<u8>>> {
        match self.messages.take() {
            Some(message) => Poll::Ready(Some(message)),
            None if self.ended.is_some() => Poll::Ready(None),
            None => {
                self.receivers.register(context);
                Poll::Pending
            }
        }
    }

    /// Only the first reason counts. Everybody who waits is woken.
    pub fn end(&mut self, end: End, wakers: &mut Vec<Waker>) {
        if self.ended.is_some() {
            return;
        }
        // What was written before a close is still sent.
        if end != End::Closed {
            self.out.bytes = Vec::new();
            self.messages.drop_outgoing();
        }
        self.ended = Some(end);
        self.out.waiting = VecDeque::new();
        for slot in self.slots.iter_mut().flatten() {
            wakers.extend(slot.reader.take());
            wakers.extend(slot.writer.take());
        }
        self.acceptors.take(wakers);
        self.receivers.take(wakers);
        wakers.extend(self.take_driver());
    }

    pub fn session_mem_bytes(&self, number: u32) -> usize {
        self.slots[number as usize].as_ref().map_or(0, |slot| slot.mem_bytes())
    }

    pub fn mem_bytes(&self) -> usize {
        let targets: usize = self.opened.iter().map(|(target, _)| target.capacity()).sum();
        size_of::<Multiplexer>()
            + self.slots.capacity() * size_of::<Option<Box<Slot>>>()
            + self.slots.iter().flatten().map(|slot| slot.mem_bytes()).sum::<usize>()
            + self.opened.capacity() * size_of::<(Vec<u8>, u32)>()
            + targets
            + self.out.bytes.capacity()
            + self.out.in_flight_capacity
            + self.messages.mem_bytes()
            + self.spare.mem_bytes()
            + crate::options::READ_BYTES
    }
}

/// What the driver does.
impl Multiplexer {
    /// Exchanges an empty buffer for what is to be sent next, with a share of messages. `false`: there is nothing.
    pub fn take_outgoing(&mut self, empty: &mut Vec<u8>) -> bool {
        self.out.take(empty);
        self.messages.append_to(empty);
        self.out.in_flight = empty.len();
        self.out.in_flight_capacity = empty.capacity();
        !empty.is_empty()
    }

    pub fn has_outgoing(&self) -> bool {
        !self.out.bytes.is_empty() || self.messages.has_outgoing()
    }

    /// Gives turns while there is room, and wakes those who have one.
    pub fn give_turns(&mut self, wakers: &mut Vec<Waker>) {
        while self.out.has_room()
            && let Some(number) = self.out.waiting.pop_front()
        {
            let round = self.out.round;
            let slot = self.slot(number);
            slot.is_queued = false;
            slot.turn = round;
            wakers.extend(slot.writer.take());
            self.out.unused_turns += 1;
        }
    }

    /// Takes back the turns that were not used.
    pub fn end_round(&mut self) {
        self.out.round += 1;
        self.out.unused_turns = 0;
    }

    /// Nothing was sent for a while: buffers that a burst has left are released.
    pub fn ping(&mut self) {
        self.out.bytes = Vec::new();
        self.out.in_flight_capacity = 0;
        self.spare = Spare::default();
        self.out.push(Kind::Ping, 0, &[]);
    }

    /// The header of a frame has come: whether the frame is allowed is decided before its payload is looked at.
    pub fn begin(&mut self, header: Header) -> Result<(), Violation> {
        let Header { kind, length, session } = header;
        if !kind.can_have(length) {
            return Err(Violation::Length { kind, length });
        }
        if let Kind::Message | Kind::More | Kind::Ping = kind {
            if session != 0 {
                return Err(Violation::Session { kind, session });
            }
            return match kind == Kind::Ping || self.messages.begin(length) {
                true => Ok(()),
                false => Err(Violation::MessageTooLarge),
            };
        }
        let slot = self.slots.get_mut(session as usize).and_then(|slot| slot.as_mut());
        if kind == Kind::Open {
            if self.role == Role::Opener {
                return Err(Violation::Role(kind));
            }
            return match slot.is_none() && (session as usize) < SESSIONS_MAX {
                true => Ok(()),
                false => Err(Violation::Number(session)),
            };
        }
        let Some(slot) = slot.filter(|slot| !slot.peer.is_gone()) else {
            return Err(Violation::Session { kind, session });
        };
        match kind {
            Kind::Data | Kind::End if slot.peer == Peer::Ended => Err(Violation::Order { kind, session }),
            Kind::Data => {
                let credit = slot.allowance;
                slot.allowance =
                    credit.checked_sub(length as u32).ok_or(Violation::Data { session, bytes: length, credit })?;
                slot.has_received = true;
                Ok(())
            }
            Kind::Refuse if self.role == Role::Acceptor => Err(Violation::Role(kind)),
            Kind::Refuse if slot.has_received || slot.peer == Peer::Ended => Err(Violation::Order { kind, session }),
            _ => Ok(()),
        }
    }

    /// A piece of a payload has come: of DATA, MESSAGE or MORE.
    pub fn append(&mut self, header: Header, piece: &[u8], wakers: &mut Vec<Waker>) {
        if header.kind != Kind::Data {
            self.messages.append(piece);
            return;
        }
        let slot = self.slots[header.session as usize].as_mut().expect("the peer has not closed it");
        if slot.is_held && self.ended.is_none() {
            slot.append(piece, &mut self.spare);
            wakers.extend(slot.reader.take());
        }
    }

    /// A frame has come as a whole. `payload` is that of OPEN and CREDIT, and empty for the others.
    pub fn finish(&mut self, header: Header, payload: &[u8], wakers: &mut Vec<Waker>) -> Result<(), Violation> {
        let Header { kind, session, .. } = header;
        match kind {
            Kind::Data | Kind::More | Kind::Ping => {}
            Kind::Message => {
                self.messages.finish(&self.options);
                self.receivers.take(wakers);
            }
            Kind::Open => self.opened(session, payload, wakers),
            Kind::Credit => {
                let bytes = u32::from_le_bytes(payload.try_into().expect("begin() has compared the length"));
                let slot = self.slot(session);
                match slot.credit.checked_add(bytes).filter(|sum| bytes > 0 && *sum <= WINDOW_BYTES) {
                    Some(credit) => slot.credit = credit,
                    None => return Err(Violation::Credit { session, bytes }),
                }
                // A session in the queue has credit and waits for its turn.
                if !slot.is_queued {
                    wakers.extend(slot.writer.take());
                }
            }
            Kind::End => {
                let slot = self.slot(session);
                slot.peer = Peer::Ended;
                wakers.extend(slot.reader.take());
            }
            Kind::Close | Kind::Refuse => {
                self.leave_queue(session);
                let slot = self.slot(session);
                slot.peer = if kind == Kind::Refuse { Peer::Refused } else { Peer::Closed };
                wakers.extend(slot.reader.take());
                wakers.extend(slot.writer.take());
                if slot.has_closed {
                    self.free(session);
                }
            }
        }
        Ok(())
    }

    fn opened(&mut self, number: u32, target: &[u8], wakers: &mut Vec<Waker>) {
        if self.slots.len() <= number as usize {
            self.slots.resize_with(number as usize + 1, || None);
        }
        let is_full = self.live >= self.options.sessions_max;
        self.slots[number as usize] = Some(Box::new(Slot::new(self.options.first_window_bytes)));
        self.live += 1;
        if is_full || self.handles == 0 {
            self.close(number, true);
        } else {
            self.opened.push_back((target.to_vec(), number));
            self.acceptors.take(wakers);
        }
    }

    /// Whether the peer makes this end send more than the protocol needs.
    pub fn is_overrun(&self) -> bool {
        self.out.is_overrun(self.slots.len())
    }
}

fn write_error(slot: &Slot, ended: Option<&End>) -> Option<io::Error> {
    match (slot.peer, ended) {
        (Peer::Refused, _) => Some(refused()),
        (Peer::Closed, _) => Some(io::Error::new(ErrorKind::BrokenPipe, "the peer has closed the session")),
        (_, Some(end)) => Some(reset(end)),
        _ if slot.has_ended => Some(io::Error::new(ErrorKind::BrokenPipe, "the session was shut down")),
        _ => None,
    }
}

fn refused() -> io::Error {
    io::Error::new(ErrorKind::ConnectionRefused, "the peer has refused the session")
}

fn reset(end: &End) -> io::Error {
    io::Error::new(ErrorKind::ConnectionReset, end.clone())
}
