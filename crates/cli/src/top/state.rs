//! Owns what `flintkv top` shows and how keys change it. Never draws and never asks the node.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::look::{DatabaseLook, Look};

/// The number of looks that graphs show.
const HISTORY_MAX: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Name,
    Ops,
    Latency,
    Hits,
    Ram,
    Flash,
    Keys,
    Clients,
}

impl Sort {
    /// In the order of the columns, each with its key.
    pub const ALL: [(Sort, char, &'static str); 8] = [
        (Sort::Name, 'n', "name"),
        (Sort::Ops, 'o', "operations"),
        (Sort::Latency, 'l', "latency"),
        (Sort::Hits, 'h', "RAM hits"),
        (Sort::Ram, 'm', "RAM"),
        (Sort::Flash, 'f', "flash"),
        (Sort::Keys, 'k', "keys"),
        (Sort::Clients, 'c', "clients"),
    ];

    fn metric(self) -> &'static str {
        match self {
            Sort::Name => "",
            Sort::Ops => "ops",
            Sort::Latency => "latency_us",
            Sort::Hits => "hit_ratio",
            Sort::Ram => "used_ram_bytes",
            Sort::Flash => "used_flash_bytes",
            Sort::Keys => "keys",
            Sort::Clients => "clients",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    List,
    Detail,
    Help,
}

/// One point of the graphs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub ops: f64,
    pub latency_us: f64,
    pub hit_ratio: f64,
}

pub struct TopState {
    pub url: String,
    pub interval_s: f64,
    pub look: Look,
    /// Why the last look failed, and how many looks have failed since the last success.
    pub gone: Option<(String, u32)>,
    pub history: BTreeMap<String, VecDeque<Point>>,
    pub sort: Sort,
    pub reversed: bool,
    /// A name, so that sorting does not change the selection.
    pub selected: String,
    pub page: Page,
    pub paused: bool,
    pub quit: bool,
}

impl TopState {
    pub fn new(url: &str, interval_s: f64, look: Look) -> TopState {
        let mut state = TopState {
            url: url.to_owned(),
            interval_s,
            look: Look::default(),
            gone: None,
            history: BTreeMap::new(),
            sort: Sort::Ops,
            reversed: false,
            selected: String::new(),
            page: Page::List,
            paused: false,
            quit: false,
        };
        state.saw(look);
        state.selected = state.rows().first().map(|row| row.name.clone()).unwrap_or_default();
        state
    }

    pub fn saw(&mut self, look: Look) {
        self.history.retain(|name, _| look.databases.iter().any(|database| &database.name == name));
        for database in &look.databases {
            let figure = |name: &str| database.now.get(name).unwrap_or(0.0);
            let point = Point { ops: figure("ops"), latency_us: figure("latency_us"), hit_ratio: figure("hit_ratio") };
            let points = self.history.entry(database.name.clone()).or_default();
            points.push_back(point);
            if points.len() > HISTORY_MAX {
                points.pop_front();
            }
        }
        self.look = look;
        self.gone = None;
        if self.selected_row().is_none() {
            self.page = if self.page == Page::Detail { Page::List } else { self.page };
            self.selected = self.rows().first().map(|row| row.name.clone()).unwrap_or_default();
        }
    }

    /// The last figures stay visible.
    pub fn lost(&mut self, why: String) {
        let tries = self.gone.as_ref().map_or(0, |(_, tries)| *tries);
        self.gone = Some((why, tries + 1));
    }

    /// Names from A, figures from the largest, unless reversed. Unknown figures always come last, and equal figures are
    /// sorted by name.
    pub fn rows(&self) -> Vec<&DatabaseLook> {
        let mut rows: Vec<&DatabaseLook> = self.look.databases.iter().collect();
        rows.sort_by(|one, other| {
            let by_name = one.name.cmp(&other.name);
            if self.sort == Sort::Name {
                return if self.reversed { by_name.reverse() } else { by_name };
            }
            let figure = |row: &DatabaseLook| row.now.get(self.sort.metric());
            let order = match (figure(one), figure(other)) {
                (Some(one), Some(other)) if self.reversed => one.total_cmp(&other),
                (Some(one), Some(other)) => other.total_cmp(&one),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => Ordering::Equal,
            };
            order.then(by_name)
        });
        rows
    }

    pub fn selected_row(&self) -> Option<&DatabaseLook> {
        self.look.databases.iter().find(|row| row.name == self.selected)
    }

    pub fn key(&mut self, key: KeyEvent) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            self.quit |= key.code == KeyCode::Char('c');
            return;
        }
        match key.code {
            KeyCode::Char('q') => self.quit = true,
            KeyCode::Char('?') | KeyCode::F(1) => {
                self.page = if self.page == Page::Help { Page::List } else { Page::Help };
            }
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('s') => self.sort_next(),
            KeyCode::Char(letter) => self.sort_by(letter),
            KeyCode::Up => self.select(-1),
            KeyCode::Down => self.select(1),
            KeyCode::PageUp => self.select(-10),
            KeyCode::PageDown => self.select(10),
            KeyCode::Home => self.select(isize::MIN),
            KeyCode::End => self.select(isize::MAX),
            KeyCode::Enter | KeyCode::Right if self.page == Page::List && self.selected_row().is_some() => {
                self.page = Page::Detail;
            }
            KeyCode::Enter | KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => self.page = Page::List,
            _ => {}
        }
    }

    fn sort_by(&mut self, letter: char) {
        if let Some((sort, ..)) = Sort::ALL.iter().find(|(_, key, _)| *key == letter) {
            self.sort = *sort;
        }
    }

    fn sort_next(&mut self) {
        let at = Sort::ALL.iter().position(|(sort, ..)| *sort == self.sort).unwrap_or(0);
        self.sort = Sort::ALL[(at + 1) % Sort::ALL.len()].0;
    }

    fn select(&mut self, by: isize) {
        let rows = self.rows();
        let at = rows.iter().position(|row| row.name == self.selected).unwrap_or(0);
        let to = at.saturating_add_signed(by).min(rows.len().saturating_sub(1));
        self.selected = rows.get(to).map(|row| row.name.clone()).unwrap_or_default();
    }
}
