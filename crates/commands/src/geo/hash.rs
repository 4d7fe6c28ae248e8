//! Owns geohashes: positions as cells of a grid, and the cells that cover an area. Never knows sorted sets or replies.
//!
//! The cells of step s divide the map into 2^s × 2^s. A cell's number interleaves the numbers of its column and row
//! (Morton 1966; latitudes in the even bits). A member's score is its cell of step 26, 52 bits, which a double holds
//! exactly, so the cells inside a larger cell are one range of scores. Latitudes end where the Mercator projection
//! becomes a square (EPSG:3857). Distances are great circles on a sphere.

/// The finest step.
pub const STEP_MAX: u32 = 26;
const LONGITUDE_MAX: f64 = 180.0;
const LATITUDE_MAX: f64 = 85.051_128_78;
const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
/// Half the map's width.
const MERCATOR_MAX_M: f64 = 20_037_726.37;
const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    pub longitude: f64,
    pub latitude: f64,
}

impl Position {
    pub fn is_on_map(self) -> bool {
        self.longitude.abs() <= LONGITUDE_MAX && self.latitude.abs() <= LATITUDE_MAX
    }

    /// The position as a score.
    pub fn score(self) -> f64 {
        Cell::at(self, STEP_MAX).number() as f64
    }

    /// The middle of the cell with this score as its number. ZADD accepts scores that were not made from a position;
    /// they become bits in the way of the processors that Redis runs on.
    pub fn of_score(score: f64) -> Position {
        let bits = match score {
            ..0.0 => score as i64 as u64,
            18_446_744_073_709_551_616.0.. => 0,
            _ => score as u64,
        };
        let area = Cell { column: squeeze(bits >> 1), row: squeeze(bits), step: STEP_MAX }.area();
        let middle = |low: f64, high: f64, limit: f64| f64::midpoint(low, high).clamp(-limit, limit);
        Position {
            longitude: middle(area.west, area.east, LONGITUDE_MAX),
            latitude: middle(area.south, area.north, LATITUDE_MAX),
        }
    }

    /// The usual geohash of eleven letters. It covers all latitudes up to the poles. 52 bits are too few for the last
    /// letter, so that letter is always the first of the alphabet.
    pub fn text(self) -> [u8; 11] {
        let bits = interleave(share(self.latitude, 90.0, STEP_MAX), share(self.longitude, LONGITUDE_MAX, STEP_MAX));
        std::array::from_fn(|at| match at {
            10 => ALPHABET[0],
            _ => ALPHABET[(bits >> (52 - 5 * (at + 1)) & 31) as usize],
        })
    }

    /// Metres, by the haversine formula.
    pub fn distance_m(self, other: Position) -> f64 {
        let v = ((other.longitude.to_radians() - self.longitude.to_radians()) / 2.0).sin();
        if v == 0.0 {
            return self.latitude_distance_m(other);
        }
        let (from, to) = (self.latitude.to_radians(), other.latitude.to_radians());
        let u = ((to - from) / 2.0).sin();
        2.0 * EARTH_RADIUS_M * (u * u + from.cos() * to.cos() * v * v).sqrt().asin()
    }

    fn latitude_distance_m(self, other: Position) -> f64 {
        EARTH_RADIUS_M * (other.latitude.to_radians() - self.latitude.to_radians()).abs()
    }
}

/// The scale from −limit to limit has 2^step steps. Returns how many of them are below the value.
fn share(value: f64, limit: f64, step: u32) -> u32 {
    ((value + limit) / (2.0 * limit) * f64::from(1u32 << step)) as u32
}

/// Interleaves the row's bits at the even places with the column's bits at the odd places.
fn interleave(row: u32, column: u32) -> u64 {
    spread(row) | spread(column) << 1
}

fn spread(bits: u32) -> u64 {
    let mut bits = u64::from(bits);
    for (shift, mask) in HALVES.into_iter().rev() {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Collects the bits at the even places.
fn squeeze(bits: u64) -> u32 {
    let mut bits = bits & HALVES[0].1;
    for at in 1..HALVES.len() {
        bits = (bits | bits >> HALVES[at - 1].0) & HALVES[at].1;
    }
    (bits | bits >> HALVES[4].0) as u32
}

/// The steps of interleaving: how far every other group of bits moves, and which bits are there before the move.
const HALVES: [(u32, u64); 5] = [
    (1, 0x5555_5555_5555_5555),
    (2, 0x3333_3333_3333_3333),
    (4, 0x0f0f_0f0f_0f0f_0f0f),
    (8, 0x00ff_00ff_00ff_00ff),
    (16, 0x0000_ffff_0000_ffff),
];

/// A part of the map, in degrees.
#[derive(Clone, Copy, Debug)]
struct Area {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    column: u32,
    row: u32,
    step: u32,
}

impl Cell {
    fn at(position: Position, step: u32) -> Cell {
        Cell {
            column: share(position.longitude, LONGITUDE_MAX, step),
            row: share(position.latitude, LATITUDE_MAX, step),
            step,
        }
    }

    fn number(self) -> u64 {
        interleave(self.row, self.column)
    }

    /// The scores in the cell: from the first value up to, but without, the second.
    pub fn scores(self) -> (f64, f64) {
        let shift = 2 * (STEP_MAX - self.step);
        ((self.number() << shift) as f64, ((self.number() + 1) << shift) as f64)
    }

    fn area(self) -> Area {
        let edge = |share: u64, limit: f64| -limit + share as f64 / f64::from(1u32 << self.step) * (2.0 * limit);
        let (column, row) = (u64::from(self.column), u64::from(self.row));
        Area {
            west: edge(column, LONGITUDE_MAX),
            east: edge(column + 1, LONGITUDE_MAX),
            south: edge(row, LATITUDE_MAX),
            north: edge(row + 1, LATITUDE_MAX),
        }
    }

    /// The cell this many columns east and rows north. The map wraps around.
    fn beside(self, east: i32, north: i32) -> Cell {
        let all = (1 << self.step) - 1;
        let moved = |at: u32, by: i32| if by == 0 { at } else { at.wrapping_add_signed(by) & all };
        Cell { column: moved(self.column, east), row: moved(self.row, north), ..self }
    }
}

/// What GEOSEARCH looks for: everything within a distance of a position, or in a box around it.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    Circle { radius_m: f64 },
    Box { width_m: f64, height_m: f64 },
}

impl Shape {
    /// Metres from the centre, if the position is in the shape.
    pub fn distance_m(self, centre: Position, position: Position) -> Option<f64> {
        match self {
            Shape::Circle { radius_m } => Some(centre.distance_m(position)).filter(|&distance| distance <= radius_m),
            Shape::Box { width_m, height_m } => {
                let beside = Position { longitude: centre.longitude, ..position };
                let is_in = position.latitude_distance_m(centre) <= height_m / 2.0
                    && position.distance_m(beside) <= width_m / 2.0;
                is_in.then(|| centre.distance_m(position))
            }
        }
    }

    /// The largest distance from the shape's centre to its edge.
    fn reach_m(self) -> f64 {
        match self {
            Shape::Circle { radius_m } => radius_m,
            Shape::Box { width_m, height_m } => ((width_m / 2.0).powi(2) + (height_m / 2.0).powi(2)).sqrt(),
        }
    }

    /// The degrees that the shape covers around its centre.
    fn bounds(self, centre: Position) -> Area {
        let (width_m, height_m) = match self {
            Shape::Circle { radius_m } => (radius_m, radius_m),
            Shape::Box { width_m, height_m } => (width_m / 2.0, height_m / 2.0),
        };
        let latitudes = (height_m / EARTH_RADIUS_M).to_degrees();
        // Degrees of longitude are shortest where the shape is nearest to a pole.
        let outer = if centre.latitude < 0.0 { centre.latitude - latitudes } else { centre.latitude + latitudes };
        let longitudes = (width_m / EARTH_RADIUS_M / outer.to_radians().cos()).to_degrees();
        Area {
            west: centre.longitude - longitudes,
            east: centre.longitude + longitudes,
            south: centre.latitude - latitudes,
            north: centre.latitude + latitudes,
        }
    }

    /// The cells that cover the shape: the cell of its centre, and those of the eight neighbours that are needed, in
    /// the order in which members are returned.
    pub fn cells(self, centre: Position) -> Vec<Cell> {
        let bounds = self.bounds(centre);
        let mut cell = Cell::at(centre, step_for(self.reach_m(), centre.latitude));
        // Near the edge of its cell, a shape may reach beyond the neighbours.
        let [north, south, east, west] =
            [(0, 1), (0, -1), (1, 0), (-1, 0)].map(|(east, north)| cell.beside(east, north).area());
        let is_beyond = north.north < bounds.north
            || south.south > bounds.south
            || east.east < bounds.east
            || west.west > bounds.west;
        if cell.step > 1 && is_beyond {
            cell = Cell::at(centre, cell.step - 1);
        }
        let area = cell.area();
        let around = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let is_needed = |&(east, north): &(i32, i32)| {
            let useless = north < 0 && area.south < bounds.south
                || north > 0 && area.north > bounds.north
                || east < 0 && area.west < bounds.west
                || east > 0 && area.east > bounds.east;
            cell.step < 2 || !useless
        };
        let mut cells: Vec<Cell> =
            around.iter().filter(|beside| is_needed(beside)).map(|&(east, north)| cell.beside(east, north)).collect();
        // On a map of two by two cells, several neighbours are the same cell.
        cells.dedup();
        cells
    }
}

/// The finest step at which a cell and its neighbours cover this many metres around a position.
fn step_for(reach_m: f64, latitude: f64) -> u32 {
    if reach_m == 0.0 {
        return STEP_MAX;
    }
    let (mut step, mut reach_m) = (1, reach_m);
    while reach_m < MERCATOR_MAX_M {
        reach_m *= 2.0;
        step += 1;
    }
    // Cells are narrower towards the poles.
    step -= 2 + i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    step.clamp(1, STEP_MAX as i32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn position(longitude: f64, latitude: f64) -> Position {
        Position { longitude, latitude }
    }

    #[test]
    fn known_positions_have_their_known_scores_and_hashes() {
        let palermo = position(13.361389, 38.115556);
        assert_eq!(palermo.score(), 3_479_099_956_230_698.0);
        assert_eq!(Position::of_score(palermo.score()).text(), *b"sqc8b49rny0");
        let catania = position(15.087269, 37.502669);
        assert_eq!(palermo.distance_m(catania).round(), 166_274.0);
        assert_eq!(position(180.0, LATITUDE_MAX).score(), 13_510_798_882_111_488.0, "at the very edge one bit more");
    }

    #[test]
    fn any_score_is_a_position() {
        for score in [0.0, -1.0, -0.5, 1e300, f64::INFINITY, f64::NEG_INFINITY, 4_503_599_627_370_496.0] {
            let place = Position::of_score(score);
            assert!(place.is_on_map(), "{score}: {place:?}");
        }
    }

    proptest! {
        #[test]
        fn interleaved_bits_come_back(row in any::<u32>(), column in any::<u32>()) {
            let bits = interleave(row, column);
            prop_assert_eq!((squeeze(bits), squeeze(bits >> 1)), (row, column));
        }

        #[test]
        fn the_cells_of_a_circle_hold_its_positions(
            longitude in -179.0..179.0, latitude in -70.0..70.0, radius_m in 1.0..500_000.0, east in -1.0..1.0, north in -1.0..1.0,
        ) {
            let (centre, shape) = (position(longitude, latitude), Shape::Circle { radius_m });
            let bounds = shape.bounds(centre);
            let near = position(
                longitude + east * (bounds.east - longitude),
                latitude + north * (bounds.north - latitude),
            );
            if near.is_on_map() && shape.distance_m(centre, near).is_some() {
                let score = near.score();
                let holds = |cell: &Cell| (cell.scores().0..cell.scores().1).contains(&score);
                prop_assert!(shape.cells(centre).iter().any(holds));
            }
        }
    }
}
