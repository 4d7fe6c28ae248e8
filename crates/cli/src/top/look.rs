//! Owns one look at a node: the API's figures at a moment, as plain data. Never draws.

use std::collections::BTreeMap;

use base::clock::wall_ms;
use serde_json::{Value, json};

use crate::client::{Client, Unanswered};

/// Figures by the API's metric names, without those that are unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures(BTreeMap<String, f64>);

impl Figures {
    fn of(value: &Value) -> Figures {
        let figures = value.as_object().into_iter().flatten();
        Figures(figures.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect())
    }

    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct DatabaseLook {
    pub name: String,
    pub state: String,
    /// The progress of a resize, 0 to 1.
    pub progress: Option<f64>,
    pub memory_limit_bytes: u64,
    pub policy: String,
    pub compression: String,
    pub endpoints: Vec<String>,
    pub now: Figures,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    pub version: String,
    pub uptime_s: u64,
    pub cores: u64,
    pub resident_bytes: u64,
    pub system_ram_bytes: u64,
    /// Reserved for databases, and in total.
    pub ram_bytes: (u64, u64),
    pub flash_bytes: (u64, u64),
    pub now: Figures,
    pub databases: Vec<DatabaseLook>,
}

/// Both replies, unchanged.
pub fn ask(client: &Client) -> Result<Value, Unanswered> {
    let node = client.get("/node")?;
    let databases = client.get("/databases")?;
    Ok(json!({ "at_ms": wall_ms(), "node": node, "databases": databases["databases"], "room": databases["room"] }))
}

pub fn look(reply: &Value) -> Look {
    let (node, room) = (&reply["node"], &reply["room"]);
    let figures = &node["figures"];
    Look {
        version: text(&node["version"]),
        uptime_s: integer(&figures["uptime_s"]),
        cores: integer(&node["cores"]),
        resident_bytes: integer(&figures["resident_bytes"]),
        system_ram_bytes: integer(&figures["system_ram_bytes"]),
        ram_bytes: (integer(&room["ram_taken_bytes"]), integer(&room["ram_bytes"])),
        flash_bytes: (integer(&room["flash_taken_bytes"]), integer(&room["flash_bytes"])),
        now: Figures::of(&node["now"]),
        databases: reply["databases"].as_array().into_iter().flatten().map(database).collect(),
    }
}

fn database(value: &Value) -> DatabaseLook {
    let definition = &value["definition"];
    let progress = &value["progress"];
    let endpoint = |endpoint: &Value| format!("{} {}", text(&endpoint["kind"]), text(&endpoint["address"]));
    DatabaseLook {
        name: text(&value["name"]),
        // A node of an earlier release has no conditions.
        state: value["conditions"][0]["name"].as_str().map_or_else(|| text(&value["state"]), str::to_owned),
        progress: progress["total_bytes"]
            .as_f64()
            .filter(|&total| total > 0.0)
            .map(|total| integer(&progress["done_bytes"]) as f64 / total),
        memory_limit_bytes: integer(&definition["memory_limit_bytes"]),
        policy: text(&definition["policy"]),
        compression: text(&definition["compression"]),
        endpoints: value["endpoints"].as_array().into_iter().flatten().map(endpoint).collect(),
        now: Figures::of(&value["now"]),
    }
}

fn integer(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
