//! Owns the searches around a position: GEOSEARCH, GEOSEARCHSTORE, and the older GEORADIUS family. Never knows how a
//! sorted set is stored.

use super::hash::{Position, Shape};
use super::{BASE, NO_UNIT, WRONG, position_at, unit_m, write_distance, write_position};
use crate::cx::{Args, BULK_FRAME_BYTES, Cx, claim_reply};
use crate::number::{self, int_or_error};
use crate::row::{Access, Effect, Flag, HowMany, KeyLocation, KeyUse, Keys, Row, is};
use crate::stop::{Run, SYNTAX, Stop};
use crate::zsets::form::{Draft, Limits, of_tree, zset};
use std::ops::Range;
use value::zset::{Edge, Side, Tree, View};
use value::{Absent, Boxed};

const COMPLEXITY: &str =
    "O(N+log(M)) where N is the number of members in the cells around the area and M that of all members.";
const WRITE: &[Flag] = &[Flag::Write, Flag::Denyoom];
const WRITE_MOVABLE: &[Flag] = &[Flag::Write, Flag::Denyoom, Flag::MovableKeys];

pub const ROWS: &[Row] = &[
    Row {
        name: "georadius",
        arity: -6,
        keys: Keys::FirstAnd(store_key, &stores_from(6)),
        access: Access::First(KeyUse::READ, KeyUse::OVERWRITE),
        flags: WRITE_MOVABLE,
        effect: Effect::Stated,
        complexity: COMPLEXITY,
        summary: "Gives the members within a distance of a position, or stores them.",
        syntax: "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] [STORE key | STOREDIST key]",
        examples: &[
            is("GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
            is("GEORADIUS g 15 37 200 km ASC", "1) \"Catania\"\n2) \"Palermo\""),
            is("GEORADIUS g 15 37 100 km WITHDIST", "1) 1) \"Catania\"\n   2) \"56.4413\""),
            is("GEORADIUS g 15 37 200 km COUNT 1 STOREDIST d", "(integer) 1"),
            is("ZRANGE d 0 -1", "1) \"Catania\""),
            is(
                "GEORADIUS g 15 37 1 km WITHDIST STORE d",
                "(error) ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
            ),
            is("GEORADIUS g 15 37 x km", "(error) ERR need numeric radius"),
        ],
        run: |cx| search(cx, Family::Radius),
        ..BASE
    },
    Row {
        name: "georadius_ro",
        arity: -6,
        since: "3.2.10",
        complexity: COMPLEXITY,
        summary: "Gives the members within a distance of a position; it never writes.",
        syntax: "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
        examples: &[
            is("GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
            is("GEORADIUS_RO g 15 37 200 km DESC", "1) \"Palermo\"\n2) \"Catania\""),
            is("GEORADIUS_RO g 15 37 200 km STORE d", "(error) ERR syntax error"),
        ],
        run: |cx| search(cx, Family::RadiusReadOnly),
        ..BASE
    },
    Row {
        name: "georadiusbymember",
        arity: -5,
        keys: Keys::FirstAnd(store_key, &stores_from(5)),
        access: Access::First(KeyUse::READ, KeyUse::OVERWRITE),
        flags: WRITE_MOVABLE,
        effect: Effect::Stated,
        complexity: COMPLEXITY,
        summary: "Gives the members within a distance of one of them, or stores them.",
        syntax: "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] [STORE key | STOREDIST key]",
        examples: &[
            is("GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
            is("GEORADIUSBYMEMBER g Palermo 100 km", "1) \"Palermo\""),
            is("GEORADIUSBYMEMBER g Palermo 200 km STORE d", "(integer) 2"),
            is("GEORADIUSBYMEMBER g nosuch 1 km", "(error) ERR could not decode requested zset member"),
            is("GEORADIUSBYMEMBER g Palermo -1 km", "(error) ERR radius cannot be negative"),
        ],
        run: |cx| search(cx, Family::ByMember),
        ..BASE
    },
    Row {
        name: "georadiusbymember_ro",
        arity: -5,
        since: "3.2.10",
        complexity: COMPLEXITY,
        summary: "Gives the members within a distance of one of them; it never writes.",
        syntax: "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
        examples: &[
            is("GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
            is("GEORADIUSBYMEMBER_RO g Palermo 200 km ASC", "1) \"Palermo\"\n2) \"Catania\""),
            is("GEORADIUSBYMEMBER_RO g Palermo 200 parsec", NO_UNIT),
        ],
        run: |cx| search(cx, Family::ByMemberReadOnly),
        ..BASE
    },
    Row {
        name: "geosearch",
        arity: -7,
        since: "6.2.0",
        complexity: COMPLEXITY,
        summary: "Gives the members in a circle or a box around a position or a member.",
        syntax: "key <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM | FT | MI> | BYBOX width height <M | KM | FT | MI>> [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
        examples: &[
            is("GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
            is("GEOADD g 12.758489 38.788135 edge1 17.241510 38.788135 edge2", "(integer) 2"),
            is("GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC", "1) \"Catania\"\n2) \"Palermo\""),
            is(
                "GEOSEARCH g FROMLONLAT 15 37 BYBOX 400 400 km ASC COUNT 3 WITHDIST",
                "1) 1) \"Catania\"\n   2) \"56.4413\"\n2) 1) \"Palermo\"\n   2) \"190.4424\"\n3) 1) \"edge2\"\n   2) \"279.7403\"",
            ),
            is(
                "GEOSEARCH g FROMMEMBER Palermo BYRADIUS 0 m WITHHASH WITHCOORD",
                "1) 1) \"Palermo\"\n   2) (integer) 3479099956230698\n   3) 1) \"13.36138933897018433\"\n      2) \"38.11555639549629859\"",
            ),
            is("GEOSEARCH nosuch FROMLONLAT 0 0 BYRADIUS 1 m", "(empty array)"),
            is(
                "GEOSEARCH g BYRADIUS 1 m ASC COUNT 1",
                "(error) ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH",
            ),
            is("GEOSEARCH g FROMLONLAT 0 0 BYRADIUS 1 m ANY", "(error) ERR the ANY argument requires COUNT argument"),
            is("SET k x", "OK"),
            is("GEOSEARCH k FROMLONLAT 0 0 BYRADIUS 1 m", WRONG),
        ],
        run: |cx| search(cx, Family::Search),
        ..BASE
    },
    Row {
        name: "geosearchstore",
        arity: -8,
        access: Access::First(KeyUse::OVERWRITE, KeyUse::READ),
        keys: Keys::Range { first: 1, last: 2, step: 1 },
        flags: WRITE,
        effect: Effect::Stated,
        since: "6.2.0",
        complexity: COMPLEXITY,
        summary: "Stores what GEOSEARCH gives in a key and tells how many members that are.",
        syntax: "destination-key source-key <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM | FT | MI> | BYBOX width height <M | KM | FT | MI>> [ASC | DESC] [COUNT count [ANY]] [STOREDIST]",
        examples: &[
            is("GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
            is("GEOSEARCHSTORE d g FROMLONLAT 15 37 BYBOX 400 400 km ASC COUNT 3", "(integer) 2"),
            is("GEODIST d Palermo Catania", "\"166274.1516\""),
            is("GEOSEARCHSTORE d g FROMLONLAT 0 0 BYRADIUS 1 m STOREDIST", "(integer) 0"),
            is("EXISTS d", "(integer) 0"),
            is("GEOSEARCHSTORE d g FROMLONLAT 0 0 BYBOX 1 -1 m", "(error) ERR height or width cannot be negative"),
        ],
        run: |cx| search(cx, Family::SearchStore),
        ..BASE
    },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Radius,
    RadiusReadOnly,
    ByMember,
    ByMemberReadOnly,
    Search,
    SearchStore,
}

/// The key that STORE or STOREDIST names; the last one if there are several.
const fn stores_from(from: i16) -> [KeyLocation; 2] {
    let how_many = HowMany::One;
    [KeyLocation::Behind { word: "STORE", from, how_many }, KeyLocation::Behind { word: "STOREDIST", from, how_many }]
}

fn store_key(args: &Args<'_>, at: &mut Vec<usize>) {
    let mut found = None;
    let mut option = 5;
    while option + 1 < args.len() {
        let stores = args[option].eq_ignore_ascii_case(b"store") || args[option].eq_ignore_ascii_case(b"storedist");
        if stores {
            option += 1;
            found = Some(option);
        }
        option += 1;
    }
    at.extend(found);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Descending,
}

/// The arguments of a search.
struct Search {
    centre: Option<Position>,
    shape: Option<Shape>,
    unit_m: f64,
    order: Option<Order>,
    /// 0 means all.
    count: usize,
    any: bool,
    with_distance: bool,
    with_hash: bool,
    with_position: bool,
    stores: bool,
    store_distance: bool,
}

/// Which of GEOSEARCH's alternatives the client gave.
#[derive(Default)]
struct Given {
    from: Option<From>,
    by: Option<By>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Member,
    Position,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Radius,
    Box,
}

impl Family {
    fn is_search(self) -> bool {
        matches!(self, Family::Search | Family::SearchStore)
    }
}

/// A member's position. If the sorted set exists, the member must exist too.
fn member_position(zset: Option<View<'_>>, member: &[u8]) -> Result<Option<Position>, Stop> {
    let Some(zset) = zset else { return Ok(None) };
    let score = zset.score(member).ok_or(Stop::error("ERR could not decode requested zset member"))?;
    Ok(Some(Position::of_score(score)))
}

/// A radius and its unit; both arguments exist.
fn circle(args: Args<'_>, at: usize) -> Result<(Shape, f64), Stop> {
    let radius = number::double(&args[at]).ok_or(Stop::error("ERR need numeric radius"))?;
    if radius < 0.0 {
        return Err(Stop::error("ERR radius cannot be negative"));
    }
    let unit_m = unit_m(&args[at + 1])?;
    Ok((Shape::Circle { radius_m: radius * unit_m }, unit_m))
}

/// A width, a height and their unit; all three arguments exist.
fn rectangle(args: Args<'_>, at: usize) -> Result<(Shape, f64), Stop> {
    let width = number::double(&args[at]).ok_or(Stop::error("ERR need numeric width"))?;
    let height = number::double(&args[at + 1]).ok_or(Stop::error("ERR need numeric height"))?;
    if width < 0.0 || height < 0.0 {
        return Err(Stop::error("ERR height or width cannot be negative"));
    }
    let unit_m = unit_m(&args[at + 2])?;
    Ok((Shape::Box { width_m: width * unit_m, height_m: height * unit_m }, unit_m))
}

impl Search {
    /// Bytes of a reply for each member besides its name.
    fn more_bytes(&self) -> usize {
        let of = |wanted: bool, bytes: usize| if wanted { BULK_FRAME_BYTES + bytes } else { 0 };
        of(self.with_distance, 16) + of(self.with_hash, 16) + of(self.with_position, 60)
    }

    /// Without a sorted set, the position of a member is not looked up.
    fn parse(args: Args<'_>, family: Family, zset: Option<View<'_>>) -> Result<Search, Stop> {
        let mut search = Search {
            centre: None,
            shape: None,
            unit_m: 1.0,
            order: None,
            count: 0,
            any: false,
            with_distance: false,
            with_hash: false,
            with_position: false,
            stores: family == Family::SearchStore,
            store_distance: false,
        };
        let options = match family {
            Family::Radius | Family::RadiusReadOnly => {
                search.centre = Some(position_at(args, 2)?);
                search.set_shape(circle(args, 4)?);
                6
            }
            Family::ByMember | Family::ByMemberReadOnly => {
                search.centre = member_position(zset, &args[2])?;
                if zset.is_some() {
                    search.set_shape(circle(args, 3)?);
                }
                5
            }
            Family::Search => 2,
            Family::SearchStore => 3,
        };
        let given = search.parse_options(args, options, family, zset)?;
        if search.stores && (search.with_distance || search.with_hash || search.with_position) {
            let command = if family.is_search() { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            let rest = "is not compatible with WITHDIST, WITHHASH and WITHCOORD options";
            return Err(Stop::Error(format!("ERR {command} {rest}").into()));
        }
        let missing = |what: &str| {
            let command = String::from_utf8_lossy(&args[0]).into_owned();
            Stop::Error(format!("ERR exactly one of {what} can be specified for {command}").into())
        };
        if family.is_search() && given.from.is_none() {
            return Err(missing("FROMMEMBER or FROMLONLAT"));
        }
        if family.is_search() && given.by.is_none() {
            return Err(missing("BYRADIUS and BYBOX"));
        }
        if search.any && search.count == 0 {
            return Err(Stop::error("ERR the ANY argument requires COUNT argument"));
        }
        Ok(search)
    }

    fn parse_options(
        &mut self,
        args: Args<'_>,
        from: usize,
        family: Family,
        zset: Option<View<'_>>,
    ) -> Result<Given, Stop> {
        let may_store = matches!(family, Family::Radius | Family::ByMember);
        let mut given = Given::default();
        let mut at = from;
        while let Some(word) = args.get(at) {
            let behind = args.len() - at - 1;
            let says = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            let takes = |name: &str, words: usize| says(name) && behind >= words;
            if says("withdist") {
                self.with_distance = true;
            } else if says("withhash") {
                self.with_hash = true;
            } else if says("withcoord") {
                self.with_position = true;
            } else if says("any") {
                self.any = true;
            } else if says("asc") {
                self.order = Some(Order::Ascending);
            } else if says("desc") {
                self.order = Some(Order::Descending);
            } else if takes("count", 1) {
                let count = int_or_error(&args[at + 1])?;
                let count = usize::try_from(count).ok().filter(|&count| count > 0);
                self.count = count.ok_or(Stop::error("ERR COUNT must be > 0"))?;
                at += 1;
            } else if may_store && (takes("store", 1) || takes("storedist", 1)) {
                (self.stores, self.store_distance) = (true, says("storedist"));
                at += 1;
            } else if family == Family::SearchStore && says("storedist") {
                self.store_distance = true;
            } else if family.is_search() && given.from != Some(From::Position) && takes("frommember", 1) {
                self.centre = member_position(zset, &args[at + 1])?;
                given.from = Some(From::Member);
                at += 1;
            } else if family.is_search() && given.from != Some(From::Member) && takes("fromlonlat", 2) {
                self.centre = Some(position_at(args, at + 1)?);
                given.from = Some(From::Position);
                at += 2;
            } else if family.is_search() && given.by != Some(By::Box) && takes("byradius", 2) {
                self.set_shape(circle(args, at + 1)?);
                given.by = Some(By::Radius);
                at += 2;
            } else if family.is_search() && given.by != Some(By::Radius) && takes("bybox", 3) {
                self.set_shape(rectangle(args, at + 1)?);
                given.by = Some(By::Box);
                at += 3;
            } else {
                return Err(SYNTAX);
            }
            at += 1;
        }
        Ok(given)
    }

    fn set_shape(&mut self, (shape, unit_m): (Shape, f64)) {
        self.shape = Some(shape);
        self.unit_m = unit_m;
    }

    /// The points found, sorted and cut as the options say.
    fn found<'z>(&self, zset: View<'z>) -> Vec<Point<'z>> {
        let (Some(centre), Some(shape)) = (self.centre, self.shape) else { return Vec::new() };
        let mut points = Vec::new();
        for cell in shape.cells(centre) {
            let ranks = cell_ranks(zset, cell.scores());
            let members = zset.range(ranks.start, ranks.len(), false).filter_map(|(score, member)| {
                let position = Position::of_score(score);
                let distance_m = shape.distance_m(centre, position)?;
                Some(Point { score, member, position, distance_m })
            });
            if self.any {
                points.extend(members.take(self.count - points.len()));
            } else {
                points.extend(members);
            }
        }
        // A count without an order means the nearest ones, unless ANY was given.
        let order = self.order.or((self.count > 0 && !self.any).then_some(Order::Ascending));
        match order {
            Some(Order::Ascending) => points.sort_by(|a, b| a.distance_m.total_cmp(&b.distance_m)),
            Some(Order::Descending) => points.sort_by(|a, b| b.distance_m.total_cmp(&a.distance_m)),
            None => {}
        }
        if self.count > 0 {
            points.truncate(self.count);
        }
        points
    }
}

/// The ranks of the entries in a cell with these scores.
fn cell_ranks(zset: View<'_>, scores: (f64, f64)) -> Range<usize> {
    let [first, end] = cell_edges(scores).map(|edge| zset.rank(&edge));
    first..end.max(first)
}

fn cell_edges((from, to): (f64, f64)) -> [Edge<'static>; 2] {
    [from, to].map(|score| Edge::Score(score, Side::Before))
}

/// The parts of a sorted set that a search reads: those of the member that it starts from, then those of the cells.
fn of_search(args: Args<'_>, family: Family) -> impl Fn(&Boxed, &mut Absent) {
    let want = move |tree: &Tree, out: &mut Absent| {
        match family {
            Family::ByMember | Family::ByMemberReadOnly => tree.want(&args[2], out),
            // One of these words may be the name of a member; then it costs one look-up too many.
            Family::Search | Family::SearchStore => {
                let froms = args.from(2).zip(args.from(3)).filter(|(word, _)| word.eq_ignore_ascii_case(b"frommember"));
                froms.for_each(|(_, member)| tree.want(member, out));
            }
            Family::Radius | Family::RadiusReadOnly => {}
        }
        let zset = View::Tree(tree);
        if !out.is_empty() {
            return;
        }
        let Ok(Search { centre: Some(centre), shape: Some(shape), .. }) = Search::parse(args, family, Some(zset))
        else {
            return;
        };
        let cells: Vec<_> = shape.cells(centre).into_iter().map(|cell| cell.scores()).collect();
        cells.iter().flat_map(|&scores| cell_edges(scores)).for_each(|edge| tree.want_rank(&edge, out));
        if out.is_empty() {
            cells.iter().for_each(|&scores| tree.want_range(cell_ranks(zset, scores), out));
        }
    };
    of_tree(want)
}

struct Point<'z> {
    score: f64,
    member: &'z [u8],
    position: Position,
    distance_m: f64,
}

fn search(cx: &mut Cx<'_>, family: Family) -> Run {
    let (args, limits) = (cx.args, Limits::of(cx.settings));
    let (source, destination) = match family {
        Family::SearchStore => (&cx.keys[1], cx.keys.first()),
        _ => (&cx.keys[0], cx.keys.get(1)),
    };
    let zset = zset(cx.ks.get_for(source, &of_search(args, family))?)?;
    let search = Search::parse(args, family, zset)?;
    let points = zset.map_or_else(Vec::new, |zset| search.found(zset));
    if let (true, Some(destination)) = (search.stores, destination) {
        let mut entries: Vec<(f64, &[u8])> = points
            .iter()
            .map(|point| {
                (if search.store_distance { point.distance_m / search.unit_m } else { point.score }, point.member)
            })
            .collect();
        entries.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(b.1)));
        let event = if family == Family::SearchStore { "geosearchstore" } else { "georadiusstore" };
        let draft = Draft::of_sorted(&entries, limits);
        // The trigonometric functions of the mathematics library differ between machines. So the effect states the
        // results, and a replica does not measure again.
        let words = cx.ks.records_effects().then(|| draft.as_zadd(destination));
        let was_there = cx.ks.is_there(destination);
        let len = draft.store(cx, destination, event)?;
        if was_there && cx.ks.wrote() {
            cx.effect(&[b"DEL", destination.name]);
        }
        if let Some(words) = words.filter(|_| len > 0) {
            cx.ks.effect(words.iter().map(Vec::as_slice));
        }
        cx.out.int(len as i64);
        return Ok(());
    }
    let members: usize = points.iter().map(|point| point.member.len() + BULK_FRAME_BYTES).sum();
    claim_reply(cx.settings, cx.session, &mut cx.out, members + points.len() * search.more_bytes())?;
    let out = &mut cx.out;
    out.array(points.len());
    let parts = 1 + [search.with_distance, search.with_hash, search.with_position].into_iter().filter(|&on| on).count();
    for point in points {
        if parts > 1 {
            out.array(parts);
        }
        out.bulk(point.member);
        if search.with_distance {
            write_distance(out, point.distance_m / search.unit_m);
        }
        if search.with_hash {
            out.int(point.score as i64);
        }
        if search.with_position {
            write_position(out, point.position);
        }
    }
    Ok(())
}
