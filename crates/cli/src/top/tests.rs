//! Frames as text, keys, and a node that stops answering and comes back.

use std::path::Path;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::*;
use crate::mock::{Mock, node};
use state::{Page, Sort};

fn database(name: &str, state: &str, ops: f64, ram_part: f64) -> Value {
    let ram = (4_u64 << 30) as f64;
    json!({
        "name": name, "state": state,
        "progress": if state == "resizing" { json!({ "done_bytes": 1, "total_bytes": 4 }) } else { Value::Null },
        "definition": { "memory_limit_bytes": 20_u64 << 30, "policy": "allkeys-lru", "compression": "zstd" },
        "endpoints": [{ "kind": "tcp", "address": "127.0.0.1:7001", "command": "" }],
        "now": { "ops": ops, "ops_read": ops * 0.9, "ops_write": ops * 0.1, "ops_other": 0, "latency_us": 85.2, "latency_p99_us": 1234.0,
            "hit_ratio": 0.8512, "used_ram_bytes": ram * ram_part, "ram_limit_bytes": ram, "used_flash_bytes": 8_u64 << 30,
            "flash_limit_bytes": 16_u64 << 30, "keys": 1_200_000, "clients": 50, "flash_reads": null },
    })
}

fn seen(databases: &[Value]) -> Look {
    look(&json!({ "node": node(), "room": node()["room"], "databases": databases }))
}

fn three() -> Look {
    seen(&three_rows())
}

fn state() -> TopState {
    let mut state = TopState::new("http://127.0.0.1:8379", 1.0, three());
    for ops in [1.0, 2.0, 4.0, 8.0] {
        state.saw(seen(&[database("default", "active", ops, 0.5), three_rows()[1].clone(), three_rows()[2].clone()]));
    }
    state.saw(three());
    state
}

fn three_rows() -> [Value; 3] {
    [
        database("default", "active", 12_345.0, 0.5),
        database("a-database-with-a-name-of-forty-charactrs", "resizing", 150_000.0, 0.97),
        json!({ "name": "new", "state": "paused", "now": {} }),
    ]
}

fn frame(state: &TopState, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(state, frame.area(), frame.buffer_mut())).unwrap();
    text_lines(terminal.backend().buffer()).join("\n")
}

/// Compares the frame with the file. `FLINTKV_FRAMES=write` writes the file anew, for review.
fn expect(name: &str, frame: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/top/frames/{name}.txt"));
    if std::env::var_os("FLINTKV_FRAMES").is_some() {
        std::fs::write(&file, format!("{frame}\n")).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap();
    assert!(frame == expected.trim_end_matches('\n'), "{name} is\n{frame}\ninstead of\n{expected}");
}

fn press(state: &mut TopState, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '↓' => KeyCode::Down,
            '↑' => KeyCode::Up,
            '←' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        state.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

#[test]
fn the_list_at_the_usual_width() {
    expect("list-120", &frame(&state(), 120, 10));
}

#[test]
fn a_narrow_terminal_drops_columns_from_the_right() {
    expect("list-60", &frame(&state(), 60, 10));
}

#[test]
fn the_detail_of_a_database() {
    let mut state = state();
    press(&mut state, "n↓\n");
    assert_eq!(state.page, Page::Detail);
    expect("detail-120", &frame(&state, 120, 26));
}

#[test]
fn every_size_can_be_drawn() {
    let mut state = state();
    for page in [Page::List, Page::Detail, Page::Help] {
        state.page = page;
        for (width, height) in [(1, 1), (29, 40), (30, 6), (31, 7), (80, 24), (89, 7), (90, 6), (300, 100)] {
            frame(&state, width, height);
        }
    }
    state.page = Page::List;
    state.saw(seen(&[]));
    assert!(frame(&state, 80, 24).contains("no databases"));
}

#[test]
fn the_selected_database_stays_visible() {
    let many: Vec<Value> = (0..40).map(|number| database(&format!("db-{number:02}"), "active", 1.0, 0.1)).collect();
    let mut state = TopState::new("http://node", 1.0, seen(&many));
    press(&mut state, "n");
    state.key(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
    assert_eq!(state.selected, "db-39");
    assert!(frame(&state, 80, 12).contains("db-39"));
    press(&mut state, "↑");
    assert_eq!(state.selected, "db-38");
    state.key(KeyEvent::new(KeyCode::Home, KeyModifiers::NONE));
    assert_eq!(state.selected, "db-00");
}

#[test]
fn keys_sort_and_the_selection_follows_its_database() {
    let mut state = state();
    let names = |state: &TopState| state.rows().iter().map(|row| row.name.chars().next().unwrap()).collect::<String>();
    assert_eq!((state.sort, names(&state)), (Sort::Ops, "adn".to_owned()));
    press(&mut state, "↓");
    assert_eq!(state.selected, "default");
    press(&mut state, "r");
    assert_eq!(names(&state), "dan", "unknown figures stay last");
    press(&mut state, "n");
    assert_eq!(names(&state), "nda");
    press(&mut state, "rm");
    assert_eq!((state.sort, names(&state)), (Sort::Ram, "adn".to_owned()));
    press(&mut state, "s");
    assert_eq!(state.sort, Sort::Flash);
    assert_eq!(state.selected, "default");
    press(&mut state, "?");
    assert_eq!(state.page, Page::Help);
    assert!(frame(&state, 80, 30).contains("sort by latency"));
    press(&mut state, "←p");
    assert!(frame(&state, 80, 24).lines().next().unwrap().ends_with("paused"));
    press(&mut state, "pq");
    assert!(state.quit && !state.paused);
}

#[test]
fn a_database_that_is_deleted_leaves_the_detail() {
    let mut state = state();
    press(&mut state, "n↓\n");
    assert_eq!(state.selected, "default");
    state.saw(seen(&[database("other", "active", 1.0, 0.1)]));
    assert_eq!((state.page, state.selected.as_str()), (Page::List, "other"));
    assert_eq!(state.history.len(), 1);
}

#[test]
fn a_lost_node_is_reported_and_the_last_figures_stay() {
    let mut state = state();
    state.lost("http://127.0.0.1:8379 does not answer: Connection refused".to_owned());
    state.lost("http://127.0.0.1:8379 does not answer: Connection refused".to_owned());
    let text = frame(&state, 120, 12);
    assert!(text.contains("no answer to 2 requests, trying again: http://127.0.0.1:8379 does not answer"), "{text}");
    assert!(text.contains("default"));
    state.saw(three());
    assert!(!frame(&state, 120, 12).contains("no answer"));
}

/// The watcher's thread with a node that stops answering and comes back.
#[test]
fn the_watcher_survives_a_lost_node() {
    let mock = Mock::start();
    let client = mock.client();
    let (seen, looks) = mpsc::sync_channel(1);
    let (running, ended) = mpsc::channel::<()>();
    let watcher =
        thread::spawn(move || watch(&client, Duration::from_millis(5), &AtomicBool::new(false), &seen, &ended));
    let deadline = Instant::now() + Duration::from_secs(30);
    let until = |wanted: bool| loop {
        let seen = looks.recv_timeout(Duration::from_secs(30)).expect("the watcher goes on");
        assert!(Instant::now() < deadline, "it never was {wanted}");
        if seen.is_ok() == wanted {
            return seen;
        }
    };
    assert_eq!(until(true).unwrap().databases[0].name, "default");
    mock.inner().fail = Some((503, crate::mock::error("stopping", "the node is stopping", "")));
    assert_eq!(until(false).unwrap_err(), "the node is stopping");
    until(true).unwrap();
    drop(running);
    drop(looks);
    watcher.join().unwrap();
}

#[test]
fn one_frame_has_every_database_and_no_keys() {
    let text = once(&state(), 100);
    assert_eq!(text.lines().count(), 8, "{text}");
    assert!(text.contains("default") && text.contains("new") && !text.contains("quit"), "{text}");
}
