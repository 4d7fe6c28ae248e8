//! The planner: what it answers, and what it refuses.

use crate::common::*;

#[test]
fn a_plan_says_what_data_take() {
    let node = Node::start(&[]);
    let viewer = node.token("viewer");
    let base = "/api/v1/plan?keys=75000000&value_bytes=500&skew=0&workers=2";
    let plan = viewer.get(&format!("{base}&ram_share=0.5&reads_per_second=1000&ram_price=8&flash_price=1")).ok();
    let chosen = &plan["chosen"];
    assert_eq!(
        (chosen["index_bytes"].as_u64(), chosen["hot_values"].as_u64()),
        (Some(1_875_000_000), Some(37_500_000))
    );
    // All keys alike: half of the values answer half of the reads.
    assert!((chosen["hit_ratio"].as_f64().unwrap() - 0.5).abs() < 1e-6, "{chosen}");
    assert!((chosen["flash_reads_per_second"].as_f64().unwrap() - 500.0).abs() < 1e-3, "{chosen}");
    let gigabytes = |name: &str| chosen[name].as_u64().unwrap() as f64 / (1u64 << 30) as f64;
    let price = 8.0 * gigabytes("ram_limit_bytes") + gigabytes("flash_bytes");
    assert!((chosen["price"].as_f64().unwrap() - price).abs() < 1e-6, "{chosen}");
    assert!(plan["all_in_ram_price"].as_f64().unwrap() > price);
    assert!(chosen["directives"][0].as_str().unwrap().starts_with("memory-limit "), "{chosen}");
    let shares: Vec<f64> =
        plan["choices"].as_array().unwrap().iter().map(|one| one["ram_share"].as_f64().unwrap()).collect();
    assert!(shares.is_sorted() && shares.last() == Some(&1.0), "{shares:?}");
    // Without a share, the usual hit ratio is aimed at.
    let aimed = viewer.get(base).ok();
    assert!((aimed["chosen"]["ram_share"].as_f64().unwrap() - 0.85).abs() < 1e-6, "{}", aimed["chosen"]);

    for (query, field) in [
        ("value_bytes=500", "keys"),
        ("keys=5", "value_bytes"),
        ("keys=0&value_bytes=500", "keys"),
        ("keys=x&value_bytes=500", "keys"),
        ("keys=5&value_bytes=500&skew=NaN", "skew"),
        ("keys=5&value_bytes=500&compression=2", "compression"),
        ("keys=5&value_bytes=500&hit_ratio=85", "hit_ratio"),
        ("keys=5&value_bytes=500&ram_share=-1", "ram_share"),
        ("keys=5&value_bytes=500&ram_price=-1", "ram_price"),
        ("keys=5&value_bytes=500&no_journal=perhaps", "no_journal"),
    ] {
        assert_eq!(viewer.get(&format!("/api/v1/plan?{query}")).error(), error(400, "invalid", field), "{query}");
    }
}
