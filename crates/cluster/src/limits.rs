//! Owns how a database's limits are divided among its copies, what a copy takes of a node, and the RAM of proxies. Never knows which node a
//! copy is on.

use base::ram::{JOURNAL_BYTES, least_limit};
use base::size;
use base::sizing::{DATABASE_FLASH_BYTES_MAX, KEPT_BYTES_MIN, files_bytes};
use config::FLASH_BYTES_MIN;
use config::definition::Definition;
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// A write in `sync` waits for every copy: more of them make it slower, not safer in any way that is asked for.
pub const REPLICAS_MAX: u32 = 7;
/// Limits of copies are whole megabytes, rounded down, so that the sum never is above the database's limit.
const ROUNDING_BYTES: u64 = 1 << 20;
/// Without flash: below it the process's own memory leaves room for no value.
const RAM_BYTES_MIN: u64 = 1 << 20;

/// A proxy gets at least this much RAM for its clients' buffers.
pub const PROXY_RAM_BYTES_MIN: u64 = 64 << 20;
/// Or this share of the RAM of its database's copies on the node.
pub const PROXY_RAM_PERCENT: u64 = 5;

/// RAM and flash of a node, or what is taken of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub ram_bytes: u64,
    pub flash_bytes: u64,
}

impl Resources {
    pub fn fits_in(self, room: Resources) -> bool {
        self.ram_bytes <= room.ram_bytes && self.flash_bytes <= room.flash_bytes
    }

    #[must_use]
    pub fn saturating_sub(self, other: Resources) -> Resources {
        Resources {
            ram_bytes: self.ram_bytes.saturating_sub(other.ram_bytes),
            flash_bytes: self.flash_bytes.saturating_sub(other.flash_bytes),
        }
    }
}

impl Add for Resources {
    type Output = Resources;

    /// Limits come from operators, so a sum may be beyond any machine. Then it stays there.
    fn add(self, other: Resources) -> Resources {
        Resources {
            ram_bytes: self.ram_bytes.saturating_add(other.ram_bytes),
            flash_bytes: self.flash_bytes.saturating_add(other.flash_bytes),
        }
    }
}

impl AddAssign for Resources {
    fn add_assign(&mut self, other: Resources) {
        *self = *self + other;
    }
}

impl Sub for Resources {
    type Output = Resources;

    fn sub(self, other: Resources) -> Resources {
        Resources { ram_bytes: self.ram_bytes - other.ram_bytes, flash_bytes: self.flash_bytes - other.flash_bytes }
    }
}

impl SubAssign for Resources {
    fn sub_assign(&mut self, other: Resources) {
        *self = *self - other;
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RAM {}", size::human(self.ram_bytes))?;
        if self.flash_bytes > 0 { write!(f, ", flash {}", size::human(self.flash_bytes)) } else { Ok(()) }
    }
}

/// A limit that is too small, or too large, for its copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitError {
    /// Of the definition.
    pub field: &'static str,
    /// Contains the calculation.
    pub why: String,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

impl std::error::Error for LimitError {}

/// How many copies of shards a database consists of.
pub fn copies(database: &Definition) -> u64 {
    u64::from(database.shards) * (u64::from(database.replicas) + 1)
}

/// The definition with which each copy is opened: the database's, with one shard and the copy's part of the limits. `workers`: how many a
/// node has, because each takes RAM. What one copy must have is what a node demands of any database.
pub fn of_copy(database: &Definition, workers: u64) -> Result<Definition, LimitError> {
    let wrong = |field, why| Err(LimitError { field, why });
    let copies = copies(database);
    if database.shards == 0 {
        return wrong("shards", "a database has a shard at least".to_owned());
    }
    if database.replicas > REPLICAS_MAX {
        return wrong("replicas", format!("{} is more than {REPLICAS_MAX}", database.replicas));
    }
    let Some(flash) = database.memory_limit_bytes.checked_sub(database.ram_limit_bytes) else {
        return wrong(
            "ram_limit_bytes",
            "the RAM limit is more than the memory limit, which is RAM and flash together".to_owned(),
        );
    };
    let part = |bytes: u64| bytes / copies / ROUNDING_BYTES * ROUNDING_BYTES;
    let copy = Definition {
        shards: 1,
        replicas: 0,
        // A copy alone waits for nobody: what it has to wait for, it is told with its role.
        replication: Definition::default().replication,
        min_in_sync: 1,
        zones: Vec::new(),
        ram_limit_bytes: part(database.ram_limit_bytes),
        // The parts of RAM and flash are rounded each, so the flash limit stays above the flash for values if it was.
        memory_limit_bytes: part(database.ram_limit_bytes) + part(flash),
        flash_limit_bytes: part(database.flash_limit_bytes),
        ..database.clone()
    };
    let is_kept = is_kept(database);
    let divided = |bytes: u64, of_copy: u64| {
        format!(
            "{} ÷ ({} shards × {} copies) is {} for a copy",
            size::human(bytes),
            database.shards,
            database.replicas + 1,
            size::human(of_copy)
        )
    };
    let ram_min = match (flash > 0, is_kept) {
        (false, _) => RAM_BYTES_MIN,
        (true, false) => least_limit(workers),
        (true, true) => least_limit(workers) + JOURNAL_BYTES,
    };
    if copy.ram_limit_bytes < ram_min {
        let divided = divided(database.ram_limit_bytes, copy.ram_limit_bytes);
        let why = format!("{divided}, less than the {} that a copy needs with {workers} workers", size::human(ram_min));
        return wrong("ram_limit_bytes", why);
    }
    if flash == 0 {
        return Ok(copy);
    }
    let flash_of_copy = part(flash);
    if flash_of_copy < FLASH_BYTES_MIN {
        let why = format!(
            "without the RAM limit, {}, less than the {} of flash that a copy needs",
            divided(flash, flash_of_copy),
            size::human(FLASH_BYTES_MIN)
        );
        return wrong("memory_limit_bytes", why);
    }
    if flash_of_copy > DATABASE_FLASH_BYTES_MAX {
        let why = format!(
            "without the RAM limit, {}, more than the {} of flash that a copy can address: take more shards",
            divided(flash, flash_of_copy),
            size::human(DATABASE_FLASH_BYTES_MAX)
        );
        return wrong("shards", why);
    }
    let files_min = flash_of_copy + if is_kept { KEPT_BYTES_MIN } else { 0 };
    if database.flash_limit_bytes > 0 && copy.flash_limit_bytes < files_min {
        let divided = divided(database.flash_limit_bytes, copy.flash_limit_bytes);
        let why = format!("{divided}, less than the {} that a copy's files need", size::human(files_min));
        return wrong("flash_limit_bytes", why);
    }
    Ok(copy)
}

/// What a copy takes of a node, by its own definition.
pub fn needs(copy: &Definition) -> Resources {
    let (memory, ram) = (copy.memory_limit_bytes, copy.ram_limit_bytes);
    let flash_bytes = match copy.flash_limit_bytes {
        0 => files_bytes(memory, ram, is_kept(copy)),
        limit => limit,
    };
    Resources { ram_bytes: ram, flash_bytes }
}

fn is_kept(definition: &Definition) -> bool {
    definition.persistence != "none"
}

/// The RAM of a database's proxy on a node. `copies_bytes`: the RAM limits of the database's copies there. `left_bytes`: what the node
/// has beside all copies and the other proxies.
pub fn proxy_ram_bytes(copies_bytes: u64, left_bytes: u64) -> u64 {
    percent(copies_bytes, PROXY_RAM_PERCENT).max(PROXY_RAM_BYTES_MIN).min(left_bytes)
}

/// What copies may take of a node's RAM if the proxies of so many databases shall have their whole share, however the copies are divided
/// among the databases.
pub fn ram_for_copies(capacity_bytes: u64, databases: u64) -> u64 {
    let left = capacity_bytes.saturating_sub(databases.saturating_mul(PROXY_RAM_BYTES_MIN));
    (u128::from(left) * 100 / u128::from(100 + PROXY_RAM_PERCENT)) as u64
}

fn percent(bytes: u64, percent: u64) -> u64 {
    (u128::from(bytes) * u128::from(percent) / 100) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MB: u64 = 1 << 20;
    const GB: u64 = 1 << 30;

    fn database(shards: u32, replicas: u32, memory: u64, ram: u64) -> Definition {
        Definition { shards, replicas, memory_limit_bytes: memory, ram_limit_bytes: ram, ..Definition::default() }
    }

    fn why(definition: &Definition) -> String {
        of_copy(definition, 2).unwrap_err().to_string()
    }

    #[test]
    fn limits_are_divided_in_whole_megabytes() {
        let copy = of_copy(&database(3, 1, 10 * GB, GB), 2).unwrap();
        assert_eq!((copy.shards, copy.replicas), (1, 0));
        // 170.67 and 1,536.
        assert_eq!((copy.ram_limit_bytes, copy.memory_limit_bytes), (170 * MB, 1706 * MB));
        assert_eq!(needs(&copy), Resources { ram_bytes: 170 * MB, flash_bytes: 1536 * MB });
        // A journal and checkpoints take more flash than the values.
        let kept = Definition { persistence: "always".to_owned(), ..database(3, 1, 10 * GB, GB) };
        let copy = of_copy(&kept, 2).unwrap();
        assert_eq!(needs(&copy).flash_bytes, files_bytes(1706 * MB, 170 * MB, true));
        let limited = Definition { flash_limit_bytes: 20 * GB, ..kept };
        assert_eq!(needs(&of_copy(&limited, 2).unwrap()).flash_bytes, 3413 * MB);
        // Without flash.
        let copy = of_copy(&database(2, 1, GB, GB), 2).unwrap();
        assert_eq!(needs(&copy), Resources { ram_bytes: 256 * MB, flash_bytes: 0 });
    }

    #[test]
    fn a_copy_has_at_least_what_a_node_demands() {
        // 16 MB and 2 MB for each worker; 8 MB for a journal.
        assert!(of_copy(&database(2, 1, GB, 80 * MB), 2).is_ok());
        assert_eq!(
            why(&database(2, 1, GB, 80 * MB - 1)),
            "ram_limit_bytes: 80 MB ÷ (2 shards × 2 copies) is 19 MB for a copy, less than the 20 MB that a copy needs with 2 workers"
        );
        let kept = Definition { persistence: "no".to_owned(), ..database(2, 1, GB, 80 * MB) };
        assert!(why(&kept).contains("less than the 28 MB"));
        assert!(why(&database(2, 1, 8 * MB, 3 * MB)).contains("is 0 B for a copy"));
        assert!(why(&database(2, 1, 3 * MB, 3 * MB)).contains("less than the 1 MB"));
        assert!(why(&database(2, 1, 95 * MB, 80 * MB)).starts_with("memory_limit_bytes: without the RAM limit, 15 MB"));
        assert!(why(&database(2, 1, 20 << 40, GB)).contains("more than the 2 TB of flash"));
        assert!(of_copy(&database(3, 1, 12 << 40, GB), 2).is_ok());
        let limited =
            Definition { flash_limit_bytes: GB, persistence: "no".to_owned(), ..database(2, 1, GB, 200 * MB) };
        assert!(why(&limited).contains("is 256 MB for a copy, less than the 462 MB"), "{}", why(&limited));
        assert!(why(&database(0, 0, GB, GB)).starts_with("shards"));
        assert!(why(&database(1, 8, GB, GB)).starts_with("replicas"));
        assert!(why(&database(1, 0, GB, 2 * GB)).starts_with("ram_limit_bytes"));
    }

    #[test]
    fn a_proxy_has_its_share() {
        assert_eq!(proxy_ram_bytes(0, GB), 64 * MB);
        assert_eq!(proxy_ram_bytes(2000 * MB, GB), 100 * MB);
        assert_eq!(proxy_ram_bytes(2000 * MB, 70 * MB), 70 * MB);
        assert_eq!(ram_for_copies(1050 * MB + 64 * MB, 1), 1000 * MB);
        assert_eq!(ram_for_copies(64 * MB, 2), 0);
    }

    proptest! {
        #[test]
        fn copies_together_stay_within_the_limits(
            shards in 1..2000_u32, replicas in 0..10_u32, memory: u64, ram: u64, flash: u64, kept: bool, shift in 0..50,
        ) {
            let persistence = if kept { "always" } else { "none" }.to_owned();
            let (memory, ram, flash) = (memory >> shift, ram >> shift, flash >> shift);
            let whole = Definition { flash_limit_bytes: flash, persistence, ..database(shards, replicas, memory, ram) };
            if let Ok(copy) = of_copy(&whole, 4) {
                let count = u128::from(copies(&whole));
                let sum = |bytes: u64| u128::from(bytes) * count;
                prop_assert!(sum(copy.memory_limit_bytes) <= memory.into());
                prop_assert!(sum(copy.ram_limit_bytes) <= ram.into());
                prop_assert!(sum(copy.flash_limit_bytes) <= flash.into());
                prop_assert!(sum(copy.ram_limit_bytes + MB) > ram.into());
                prop_assert!(copy.ram_limit_bytes <= copy.memory_limit_bytes);
                prop_assert!((copy.memory_limit_bytes > copy.ram_limit_bytes) == (memory > ram));
            }
        }

        #[test]
        fn proxies_fit_beside_the_copies(capacity in 0..1_u64 << 50, parts in proptest::collection::vec(0..100_u64, 1..20)) {
            let room = ram_for_copies(capacity, parts.len() as u64);
            let whole: u64 = parts.iter().sum::<u64>().max(1);
            let copies: Vec<u64> = parts.iter().map(|part| (u128::from(room) * u128::from(*part) / u128::from(whole)) as u64).collect();
            let mut left = capacity - copies.iter().sum::<u64>();
            for bytes in copies {
                let proxy = proxy_ram_bytes(bytes, left);
                prop_assert!(room == 0 || proxy >= PROXY_RAM_BYTES_MIN.max(percent(bytes, PROXY_RAM_PERCENT)));
                left -= proxy;
            }
        }
    }
}
