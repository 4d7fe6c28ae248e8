//! Owns how the API describes the charts of the table of figures (`node::metrics`). Never knows how they are measured.

use crate::words::UnitWord;
use node::metrics::{Charted, Scope};
use serde::Serialize;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub struct MetricInfo {
    pub name: &'static str,
    #[schema(value_type = UnitWord)]
    pub unit: &'static str,
    pub group: &'static str,
    pub label: &'static str,
    pub description: &'static str,
    /// database or node
    pub scope: &'static str,
}

pub fn cards() -> Vec<MetricInfo> {
    let card = |scope: Scope| {
        move |(row, chart): &Charted| MetricInfo {
            name: chart.name,
            unit: row.chart_unit().name(),
            group: chart.group,
            label: chart.label,
            description: row.description(),
            scope: scope.name(),
        }
    };
    Scope::ALL.into_iter().flat_map(|scope| scope.charts().iter().map(card(scope))).collect()
}
