//! Owns `flintkv database recover`. Never knows which copy goes on, or why.

use super::{pretty, text};
use crate::client::Client;
use crate::failure::Failure;
use crate::prompt;
use crate::table::{Align, table};
use serde_json::Value;

const PATH: &str = "/cluster/recover";

/// Shows the plan, asks, and has it done.
pub fn recover(
    client: &Client,
    name: &str,
    body: &Value,
    yes: Option<&str>,
    is_dry_run: bool,
    as_json: bool,
) -> Result<String, Failure> {
    let plan = client.post(&format!("{PATH}?dry_run=true"), body)?;
    if is_dry_run {
        return Ok(if as_json { pretty(&plan) } else { shown(&plan) + "nothing was changed\n" });
    }
    eprint!("{}", shown(&plan));
    prompt::confirm(&format!("These shards of {name} will go on with what the chosen copies have"), name, yes)?;
    let done = client.post(PATH, body)?;
    Ok(if as_json { pretty(&done) } else { said(&done) })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn shown(plan: &Value) -> String {
    let row = |shard: &Value, copy: &Value| {
        let number = |field: &str| copy[field].as_u64().map_or_else(|| "-".to_owned(), |number| number.to_string());
        let becomes = match (copy["is_taken"] == true, copy["received_bytes"].is_null()) {
            (true, _) => "the primary",
            (false, false) => "a replica",
            (false, true) => "a replica when it answers",
        };
        vec![
            format!("{}.{}", text(&plan["database"]), shard["number"]),
            text(&copy["node"]),
            number("stream_epoch"),
            number("received_bytes"),
            becomes.to_owned(),
        ]
    };
    let rows: Vec<_> = list(&plan["shards"])
        .iter()
        .flat_map(|shard| list(&shard["copies"]).iter().map(|copy| row(shard, copy)))
        .collect();
    let left = |title| (title, Align::Left);
    let right = |title| (title, Align::Right);
    let head = [left("SHARD"), left("COPY ON"), right("EPOCH"), right("BYTES OF ITS STREAM"), left("BECOMES")];
    let sentences = list(&plan["left_out"]).iter().chain(list(&plan["lost"]));
    sentences.fold(table(&head, &rows), |shown, sentence| shown + &text(sentence) + "\n")
}

fn said(done: &Value) -> String {
    let line = |shard: &Value| {
        let (database, to) = (text(&done["database"]), text(&shard["to"]));
        format!("{database}.{} goes on with the copy on {to}, in epoch {}\n", shard["number"], shard["epoch"])
    };
    list(&done["shards"]).iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plan_shows_each_copy_and_what_may_be_lost() {
        let copy = |node: &str, is_taken: bool, received: Option<u64>| json!({ "node": node, "is_taken": is_taken, "stream_epoch": received.map(|_| 4), "received_bytes": received });
        let plan = json!({
            "database": "orders", "lost": ["The last second may be lost."], "left_out": ["shard orders.1 is served"],
            "shards": [{ "number": 0, "to": "n1", "epoch": 5, "copies": [copy("n1", true, Some(900)), copy("n2", false, None)] }],
        });
        let wanted = "\
SHARD     COPY ON  EPOCH  BYTES OF ITS STREAM  BECOMES
orders.0  n1           4                  900  the primary
orders.0  n2           -                    -  a replica when it answers
shard orders.1 is served
The last second may be lost.
";
        let lines = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
        assert_eq!(lines(&shown(&plan)), lines(wanted));
        assert_eq!(said(&plan), "orders.0 goes on with the copy on n1, in epoch 5\n");
    }
}
