//! Owns the HTML page: a template, its style and its script, with the report's data as JSON inside. Needs no network,
//! and runs only that script.

use super::Report;

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// One file for any browser.
pub fn html(report: &Report) -> String {
    let data = serde_json::to_string(report).expect("plain data has a JSON form");
    // JSON inside a script element must not end that element.
    let data = data.replace('<', "\\u003c");
    let parts = [
        ("{{title}}", escaped(&report.title)),
        ("{{style}}", STYLE.into()),
        ("{{script}}", SCRIPT.into()),
        ("{{data}}", data),
    ];
    let mut page = String::with_capacity(TEMPLATE.len() + parts.iter().map(|(_, text)| text.len()).sum::<usize>());
    let mut rest = TEMPLATE;
    // All marks are replaced in one pass, so that inserted text is never searched for marks.
    while let Some((at, (mark, text))) =
        parts.iter().filter_map(|part| Some((rest.find(part.0)?, part))).min_by_key(|(at, _)| *at)
    {
        page.push_str(&rest[..at]);
        page.push_str(text);
        rest = &rest[at + mark.len()..];
    }
    page.push_str(rest);
    page
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::{Table, Tile};
    use super::*;

    #[test]
    fn the_page_is_whole_and_needs_no_network() {
        let report = Report {
            title: String::from("A & B"),
            tiles: vec![Tile { label: "ops/s".into(), value: "1".into(), beside: "{{data}}".into() }],
            tables: vec![Table { title: "t".into(), head: vec!["a".into()], rows: vec![vec!["b".into()]] }],
            ..Report::default()
        };
        let page = html(&report);
        assert!(page.contains("<title>A &amp; B"), "{page}");
        assert!(page.contains(r#""beside":"{{data}}""#), "text that looks like a mark stays as it is");
        for foreign in ["src=\"http", "href=\"http", "url(http", "@import", "fetch("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn data_cannot_end_the_script() {
        let report = Report { notes: vec![String::from("</script><b>&")], ..Report::default() };
        let page = html(&report);
        assert!(page.contains(r"\u003c/script>\u003cb>&"), "{page}");
        assert_eq!(page.matches("</script>").count(), TEMPLATE.matches("</script>").count());
    }
}
