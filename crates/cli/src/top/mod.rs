//! Owns `flintkv top`: one thread looks at the node, this one draws and handles keys. Never gives up on a node that
//! does not answer: it says so and tries again.
//!
//! `look` is what was seen, `state` what is shown, `view` its layout.

mod look;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event};
use ratatui::layout::Rect;

use crate::args::Top;
use crate::client::Client;
use crate::database::pretty;
use crate::failure::Failure;
use look::{Look, look};
use state::TopState;

/// A look that takes longer counts as unanswered.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often new looks are drawn.
const DRAW: Duration = Duration::from_millis(100);
/// The width for `--once` if the environment gives none.
const WIDTH: u16 = 120;

pub fn run(args: &Top) -> Result<String, Failure> {
    let client = Client::new(&args.connection, TIMEOUT)?;
    // Report a wrong address or password before taking over the screen.
    let first = look::ask(&client)?;
    if args.connection.json {
        return Ok(pretty(&first));
    }
    let state = TopState::new(client.url(), args.interval, look(&first));
    if args.once {
        let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(WIDTH);
        return Ok(once(&state, width));
    }
    if !io::stdout().is_terminal() {
        return Err(Failure::refused("standard output is not a terminal")
            .hint("use --once to print one frame, or --json to print the figures"));
    }
    live(client, state).map_err(|error| Failure::failed(format!("the terminal: {error}")))?;
    Ok(String::new())
}

/// One frame with every database in it, without the line of keys.
fn once(state: &TopState, width: u16) -> String {
    let height = (state.look.databases.len() as u16).saturating_add(6);
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    view::draw(state, area, &mut buffer);
    let lines = text_lines(&buffer);
    let shown = lines.len() - 1;
    lines.into_iter().take(shown).map(|line| line + "\n").collect()
}

fn text_lines(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let line = |y| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..area.height).map(line).collect()
}

fn live(client: Client, mut state: TopState) -> io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, stop.clone())?;
    let paused = Arc::new(AtomicBool::new(false));
    let (seen, looks) = mpsc::sync_channel(1);
    // Dropping it at the end stops the thread.
    let (_running, ended) = mpsc::channel::<()>();
    let pause = Duration::from_secs_f64(state.interval_s);
    let watcher = {
        let paused = paused.clone();
        thread::spawn(move || watch(&client, pause, &paused, &seen, &ended))
    };
    let mut terminal = ratatui::try_init()?;
    let outcome = show(&mut terminal, &mut state, &looks, &paused, &stop);
    ratatui::restore();
    // A look may be in progress, and the session must be closed.
    drop(looks);
    drop(_running);
    let _ = watcher.join();
    outcome
}

type Seen = Result<Look, String>;

fn watch(client: &Client, pause: Duration, paused: &AtomicBool, seen: &SyncSender<Seen>, ended: &Receiver<()>) {
    while matches!(ended.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
        if paused.load(Ordering::Relaxed) {
            continue;
        }
        let reply = look::ask(client).map(|reply| look(&reply)).map_err(|error| Failure::from(error).message);
        if seen.send(reply).is_err() {
            return;
        }
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    state: &mut TopState,
    looks: &Receiver<Seen>,
    paused: &AtomicBool,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut changed = true;
    while !state.quit && !stop.load(Ordering::Relaxed) {
        if changed {
            terminal.draw(|frame| view::draw(state, frame.area(), frame.buffer_mut()))?;
        }
        changed = false;
        if event::poll(DRAW)? {
            match event::read()? {
                Event::Key(key) => state.key(key),
                Event::Resize(..) => {}
                _ => continue,
            }
            paused.store(state.paused, Ordering::Relaxed);
            changed = true;
        }
        for seen in looks.try_iter() {
            match seen {
                // This look was in progress when the pause began.
                _ if state.paused => continue,
                Ok(look) => state.saw(look),
                Err(why) => state.lost(why),
            }
            changed = true;
        }
    }
    Ok(())
}
