//! Owns the layout of `flintkv top` at any size of the terminal. Never changes the state that it draws.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, RenderDirection, Sparkline, Widget};

use super::look::DatabaseLook;
use super::state::{Page, Point, Sort, TopState};
use crate::size::{count, micros};
use crate::timestamp;
use base::size::human;

const WIDTH_MIN: u16 = 30;
const HEIGHT_MIN: u16 = 6;
const NAME_WIDTH_MIN: usize = 8;
const GRAPH_WIDTH_MIN: usize = 10;
const BAR_WIDTH: usize = 10;
/// The width of a column with a limit: the bar, a space, `100%`.
const LIMIT_WIDTH: usize = BAR_WIDTH + 5;
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

pub fn draw(state: &TopState, area: Rect, buffer: &mut Buffer) {
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        Paragraph::new("too small").render(area, buffer);
        return;
    }
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(4), Constraint::Min(1), Constraint::Length(1)]).areas(area);
    Paragraph::new(head_lines(state, area.width)).render(head, buffer);
    match (state.page, state.selected_row()) {
        (Page::Help, _) => Paragraph::new(help()).render(body, buffer),
        (Page::Detail, Some(row)) => detail(state, row, body, buffer),
        _ => list(state, body, buffer),
    }
    let keys = match state.page {
        Page::List => "q quit  ↑↓ select  Enter detail  s sort  r reverse  p pause  ? help",
        Page::Detail => "q quit  ↑↓ another  Esc back  p pause  ? help",
        Page::Help => "q quit  Esc back",
    };
    Paragraph::new(Line::styled(keys, DIM)).render(foot, buffer);
}

fn head_lines(state: &TopState, width: u16) -> Vec<Line<'static>> {
    let look = &state.look;
    let pace = if state.paused { "paused".to_owned() } else { format!("every {} s", state.interval_s) };
    let title = format!("FlintKV {}  {}  up {}", look.version, state.url, timestamp::span(look.uptime_s));
    let room = (width as usize).saturating_sub(title.chars().count() + pace.chars().count());
    let first = if room == 0 {
        Line::styled(title, BOLD)
    } else {
        Line::from(vec![Span::styled(title, BOLD), Span::raw(" ".repeat(room)), Span::styled(pace, BOLD)])
    };
    let cores = look.cores.max(1) as f64;
    let cpu = look.now.get("cpu_percent");
    let mut node = vec![Span::raw("cpu ")];
    node.push(bar_span(cpu.map(|percent| percent / 100.0 / cores), BAR_WIDTH));
    node.push(Span::raw(format!(
        " {} of {} cores   memory {} resident of {}",
        cpu.map_or("-".to_owned(), |percent| format!("{percent:.0}%")),
        look.cores,
        human(look.resident_bytes),
        human(look.system_ram_bytes)
    )));
    let share = |(taken, all): (u64, u64)| (all > 0).then(|| taken as f64 / all as f64);
    let promised = vec![
        Span::raw("ram "),
        bar_span(share(look.ram_bytes), BAR_WIDTH),
        Span::raw(format!(" {} of {} promised   flash ", human(look.ram_bytes.0), human(look.ram_bytes.1))),
        bar_span(share(look.flash_bytes), BAR_WIDTH),
        Span::raw(format!(" {} of {} promised", human(look.flash_bytes.0), human(look.flash_bytes.1))),
    ];
    let last = match &state.gone {
        Some((why, tries)) => Line::styled(
            format!("no answer to {tries} requests, trying again: {}", why.lines().next().unwrap_or_default()),
            Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        ),
        None => Line::raw(""),
    };
    vec![first, Line::from(node), Line::from(promised), last]
}

/// A column of the list.
struct Column {
    title: &'static str,
    sort: Option<Sort>,
    width: usize,
    cell: fn(&DatabaseLook) -> Cell,
}

enum Cell {
    Text(String),
    /// A used amount and its limit.
    Limit(Option<f64>, Option<f64>),
}

/// Columns before the graph, which are more important than it. The others come after it.
const COLUMNS_BEFORE_GRAPH: usize = 5;

/// When there is no room, columns are dropped from the end.
fn columns() -> [Column; 9] {
    let column = |title, sort, width, cell| Column { title, sort, width, cell };
    [
        column("OPS/S", Some(Sort::Ops), 6, |row| figure(row, "ops", count)),
        column("RAM HITS", Some(Sort::Hits), 8, |row| {
            figure(row, "hit_ratio", |ratio| format!("{:.1}%", ratio * 100.0))
        }),
        column("LATENCY", Some(Sort::Latency), 8, |row| figure(row, "latency_us", micros)),
        column("RAM", Some(Sort::Ram), LIMIT_WIDTH, |row| {
            Cell::Limit(row.now.get("used_ram_bytes"), row.now.get("ram_limit_bytes"))
        }),
        column("FLASH", Some(Sort::Flash), LIMIT_WIDTH, |row| {
            Cell::Limit(row.now.get("used_flash_bytes"), row.now.get("flash_limit_bytes"))
        }),
        column("STATE", None, 12, |row| Cell::Text(state_text(row))),
        column("KEYS", Some(Sort::Keys), 6, |row| figure(row, "keys", count)),
        column("P99", None, 8, |row| figure(row, "latency_p99_us", micros)),
        column("CLIENTS", Some(Sort::Clients), 7, |row| figure(row, "clients", count)),
    ]
}

fn figure(row: &DatabaseLook, name: &str, show: impl Fn(f64) -> String) -> Cell {
    Cell::Text(row.now.get(name).map_or("-".to_owned(), show))
}

fn state_text(row: &DatabaseLook) -> String {
    match row.progress {
        Some(part) => format!("{} {:.0}%", row.state, part * 100.0),
        None => row.state.clone(),
    }
}

fn list(state: &TopState, area: Rect, buffer: &mut Buffer) {
    let rows = state.rows();
    if rows.is_empty() {
        Paragraph::new("no databases").render(area, buffer);
        return;
    }
    let width = area.width as usize;
    let names = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(NAME_WIDTH_MIN);
    let mut left = width.saturating_sub(NAME_WIDTH_MIN);
    let mut shown = Vec::new();
    let mut graph_width = 0;
    for (at, column) in columns().into_iter().enumerate() {
        if at == COLUMNS_BEFORE_GRAPH && left >= GRAPH_WIDTH_MIN + 2 {
            left -= GRAPH_WIDTH_MIN + 2;
            graph_width = GRAPH_WIDTH_MIN;
        }
        if left < column.width + 2 {
            break;
        }
        left -= column.width + 2;
        shown.push(column);
    }
    // The remaining width goes to the names first, then to the graph.
    let name_width = names.min(NAME_WIDTH_MIN + left);
    if graph_width > 0 {
        graph_width += left - (name_width - NAME_WIDTH_MIN);
    }

    let mut head = vec![title("NAME", Some(Sort::Name), state, name_width, false)];
    for column in &shown {
        head.push(Span::raw("  "));
        head.push(title(column.title, column.sort, state, column.width, !is_wide(column)));
    }
    if graph_width > 0 {
        head.push(Span::styled("  OVER TIME", BOLD));
    }
    let mut lines = vec![Line::from(head)];
    // Keep the selected row visible.
    let height = (area.height as usize).saturating_sub(1).max(1);
    let at = rows.iter().position(|row| row.name == state.selected).unwrap_or(0);
    let first = (at + 1).saturating_sub(height);
    for row in rows.iter().skip(first).take(height) {
        let mut spans = vec![Span::raw(fit(&row.name, name_width, false))];
        for column in &shown {
            spans.push(Span::raw("  "));
            match (column.cell)(row) {
                Cell::Text(text) => spans.push(Span::raw(fit(&text, column.width, !is_wide(column)))),
                Cell::Limit(used, limit) => spans.extend(limit_spans(used, limit)),
            }
        }
        if graph_width > 0 {
            let points = state.history.get(&row.name).into_iter().flatten().map(|point| point.ops);
            spans.push(Span::raw("  "));
            spans.push(Span::styled(graph(&points.collect::<Vec<_>>(), graph_width), Style::new().fg(Color::Cyan)));
        }
        let style = match (row.name == state.selected, row.state.as_str()) {
            (true, _) => Style::new().add_modifier(Modifier::REVERSED),
            (false, "active") => Style::new(),
            (false, _) => Style::new().fg(Color::Yellow),
        };
        lines.push(Line::from(spans).style(style));
    }
    Paragraph::new(lines).render(area, buffer);
}

/// Bars and words are left-aligned, figures are right-aligned.
fn is_wide(column: &Column) -> bool {
    column.width >= 12
}

fn title(text: &str, sort: Option<Sort>, state: &TopState, width: usize, right: bool) -> Span<'static> {
    let sorted = sort == Some(state.sort);
    let style = if sorted { BOLD.add_modifier(Modifier::UNDERLINED) } else { BOLD };
    Span::styled(fit(text, width, right), style)
}

/// Exactly `width` characters. A longer text ends with an ellipsis.
fn fit(text: &str, width: usize, right: bool) -> String {
    if text.chars().count() > width {
        let kept: String = text.chars().take(width.saturating_sub(1)).collect();
        return kept + "…";
    }
    if right { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

/// A bar and a percentage, [`LIMIT_WIDTH`] wide, or the bytes if there is no limit.
fn limit_spans(used: Option<f64>, limit: Option<f64>) -> Vec<Span<'static>> {
    match (used, limit.filter(|&limit| limit > 0.0)) {
        (Some(used), Some(limit)) => {
            let part = used / limit;
            vec![bar_span(Some(part), BAR_WIDTH), Span::raw(format!(" {:>3.0}%", (part * 100.0).min(999.0)))]
        }
        (Some(used), None) => vec![Span::raw(fit(&human(used as u64), LIMIT_WIDTH, false))],
        (None, _) => vec![Span::raw(fit("-", LIMIT_WIDTH, false))],
    }
}

fn bar_span(part: Option<f64>, width: usize) -> Span<'static> {
    let part = part.unwrap_or(0.0).clamp(0.0, 1.0);
    let eighths = (part * width as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    }
    let color = match part {
        part if part > 0.95 => Color::Red,
        part if part > 0.8 => Color::Yellow,
        _ => Color::Green,
    };
    Span::styled(fit(&bar, width, false), Style::new().fg(color).bg(Color::DarkGray))
}

/// The last `width` values, the newest at the right. The largest value has the full height.
fn graph(values: &[f64], width: usize) -> String {
    let values = &values[values.len().saturating_sub(width)..];
    let most = values.iter().copied().fold(0.0, f64::max);
    let block = |&value: &f64| {
        let step = if most > 0.0 { (value / most * 8.0).ceil() as usize } else { 0 };
        BLOCKS[step.min(8)]
    };
    format!("{:>width$}", values.iter().map(block).collect::<String>())
}

fn detail(state: &TopState, row: &DatabaseLook, area: Rect, buffer: &mut Buffer) {
    let wide = area.width >= 90;
    let text = Paragraph::new(detail_lines(row));
    if !wide {
        text.render(area, buffer);
        return;
    }
    let [left, right] = Layout::horizontal([Constraint::Length(50), Constraint::Min(20)]).areas(area);
    text.render(left, buffer);
    let points: Vec<Point> = state.history.get(&row.name).into_iter().flatten().copied().collect();
    let of = |pick: fn(&Point) -> f64| points.iter().map(pick).collect::<Vec<f64>>();
    let graphs = [
        ("operations", of(|point| point.ops), (|value| format!("{}/s", count(value))) as fn(f64) -> String),
        ("latency", of(|point| point.latency_us), micros),
        ("RAM hit ratio", of(|point| point.hit_ratio), |ratio| format!("{:.1}%", ratio * 100.0)),
    ];
    let areas: [Rect; 3] = Layout::vertical([Constraint::Fill(1); 3]).areas(right);
    for ((name, values, show), area) in graphs.into_iter().zip(areas) {
        let [title, graph] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
        let most = values.iter().copied().fold(0.0, f64::max);
        let now = values.last().copied().unwrap_or(0.0);
        Paragraph::new(Line::styled(format!("{name}: {}, at most {}", show(now), show(most)), BOLD))
            .render(title, buffer);
        let shown = &values[values.len().saturating_sub(graph.width as usize)..];
        // The widget accepts only whole numbers.
        let scale = if most > 0.0 { 1e6 / most } else { 0.0 };
        let data: Vec<u64> = shown.iter().rev().map(|value| (value * scale) as u64).collect();
        Sparkline::default()
            .direction(RenderDirection::RightToLeft)
            .data(&data)
            .max(1_000_000)
            .style(Style::new().fg(Color::Cyan))
            .render(graph, buffer);
    }
}

fn detail_lines(row: &DatabaseLook) -> Vec<Line<'static>> {
    let now = |name: &str, show: &dyn Fn(f64) -> String| row.now.get(name).map_or("-".to_owned(), show);
    let rate = |name: &str| now(name, &|value| format!("{}/s", count(value)));
    let bytes = |name: &str| now(name, &|value| human(value as u64));
    let byte_rate = |name: &str| now(name, &|value| format!("{}/s", human(value as u64)));
    let time = |name: &str| now(name, &micros);
    let number = |name: &str| now(name, &count);
    let ratio = |name: &str| now(name, &|value| format!("{value:.2}"));
    let limits = |used: &str, limit: &str| format!("{} of {}", bytes(used), bytes(limit));
    let mut rows = vec![
        ("memory limit", human(row.memory_limit_bytes)),
        ("policy", format!("{}, compression {}", row.policy, row.compression)),
        (
            "operations",
            format!(
                "{} ({} r, {} w, {} other)",
                rate("ops"),
                number("ops_read"),
                number("ops_write"),
                number("ops_other")
            ),
        ),
        (
            "latency",
            format!("{}, p99 {}, p99.99 {}", time("latency_us"), time("latency_p99_us"), time("latency_p9999_us")),
        ),
        ("RAM hits", format!("{}, {} each", rate("ram_hits"), time("ram_latency_us"))),
        ("flash hits", format!("{}, {} each", rate("flash_hits"), time("flash_latency_us"))),
        ("misses", rate("misses")),
        (
            "keys",
            format!("{} ({} in RAM, {} in flash)", number("keys"), number("values_in_ram"), number("values_in_flash")),
        ),
        ("RAM", limits("used_ram_bytes", "ram_limit_bytes")),
        ("flash", limits("used_flash_bytes", "flash_limit_bytes")),
        ("flash reads", format!("{}, {}", rate("flash_reads"), byte_rate("flash_read_bytes"))),
        ("flash writes", format!("{}, {}", rate("flash_writes"), byte_rate("flash_write_bytes"))),
        ("moved", format!("{} to flash, {} back", rate("demotions"), rate("promotions"))),
        ("stored", format!("{} of raw, written {} times", ratio("compression_ratio"), ratio("write_amplification"))),
        ("gone", format!("{} expired, {} evicted", rate("expired"), rate("evicted"))),
        ("clients", format!("{}, {} blocked", number("clients"), number("blocked_clients"))),
        ("network", format!("{} in, {} out", byte_rate("net_in_bytes"), byte_rate("net_out_bytes"))),
        ("errors", rate("errors")),
    ];
    rows.splice(0..0, row.endpoints.iter().map(|endpoint| ("endpoint", endpoint.clone())));
    let heading = Line::from(vec![Span::styled(row.name.clone(), BOLD), Span::raw(format!("  {}", state_text(row)))]);
    let line =
        |(name, value): (&str, String)| Line::from(vec![Span::styled(format!("{name:<13}"), DIM), Span::raw(value)]);
    std::iter::once(heading).chain(rows.into_iter().map(line)).collect()
}

fn help() -> Vec<Line<'static>> {
    let sorts = Sort::ALL.iter().map(|(_, key, name)| (key.to_string(), format!("sort by {name}")));
    let keys = [
        ("↑ ↓ PgUp PgDn Home End", "select a database"),
        ("Enter, Esc", "details of the database, and back"),
        ("s", "sort by the next column"),
        ("r", "reverse the order"),
        ("p, space", "pause, and resume"),
        ("q, Ctrl-C", "quit"),
    ];
    let keys = keys.map(|(key, what)| (key.to_owned(), what.to_owned()));
    let line =
        |(key, what): (String, String)| Line::from(vec![Span::styled(format!("{key:<24}"), BOLD), Span::raw(what)]);
    keys.into_iter().chain(sorts).map(line).collect()
}
