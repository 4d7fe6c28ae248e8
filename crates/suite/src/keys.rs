//! Measures whether more keys make the server slower, with everything else equal: 500-byte values, 30 % RAM, the same
//! RAM hit ratio. Never knows the server's code.

use anyhow::Result;

use super::figure::{Figure, Target, median};
use super::lab::{Lab, populate_loads, rof_load};
use bench::report::percent;

const HIT_RATIO: f64 = 0.85;
const PIPELINE: u32 = 24;

pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    let counts = if lab.quick { [400_000, 1_000_000, 3_000_000] } else { [1_000_000, 5_000_000, 20_000_000] };
    let mut sizes = Vec::new();
    // The deviation that gives the ratio at one size gives nearly the same at the next, in proportion. A new search
    // takes minutes.
    let mut share = None;
    for count in counts {
        let mut subject = lab.start_tiered(&format!("{} keys", bench::report::grouped(count as f64)), count)?;
        lab.populate(&mut subject, &populate_loads(count))?;
        let start = share.map(|share: f64| share * count as f64);
        let stddev = lab.calibrate(&mut subject, count, PIPELINE, start, HIT_RATIO)?;
        share = Some(stddev / count as f64);
        sizes.push((subject, rof_load(count, PIPELINE, stddev)));
    }
    let mut rates = vec![Vec::new(); sizes.len()];
    let mut hits = vec![Vec::new(); sizes.len()];
    for _ in 0..lab.repetitions {
        for (index, (subject, load)) in sizes.iter_mut().enumerate() {
            let (shot, _) = lab.shoot(subject, load)?;
            rates[index].push(shot.ops_per_s);
            hits[index].push(shot.hit_ratio);
        }
    }
    let rates: Vec<f64> = rates.iter().map(|rates| median(rates)).collect();
    let worst = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let best = rates.iter().copied().fold(0.0, f64::max);
    let detail: Vec<String> = (0..sizes.len())
        .map(|i| format!("{}: {:.0} ops/s at {} RAM hits", sizes[i].0.name, rates[i], percent(median(&hits[i]))))
        .collect();
    sizes.iter().for_each(|(subject, _)| lab.note_fill_of(subject));
    let [low, middle, high] = counts.map(|count| format!("{} M", count as f64 / 1e6));
    Ok(vec![Figure::new(
        &format!("throughput at {low}, {middle} and {high} keys"),
        "worst ÷ best, same RAM hit ratio, pipeline 24",
        worst / best,
        Target::AtLeast(0.90),
        detail.join("; "),
    )])
}
