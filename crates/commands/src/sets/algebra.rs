//! Owns intersections, unions and differences of sets. Never knows where the result is stored.

use super::form::{Draft, Limits, Member, Set, of_members, set, sets};
use crate::cx::{Cx, claim_reply};
use crate::number;
use crate::stop::{Run, SYNTAX, Stop};
use store::{Class, Key, Keyspace, NOTHING};
use value::set::Table;

/// A packed list with more members than this is searched through a table. Settings may allow any number.
const LIST_SEARCHED_MAX: usize = 128;

enum Search<'a> {
    Set(Set<'a>),
    Copy(Table),
}

impl<'a> Search<'a> {
    fn of(set: Set<'a>) -> Search<'a> {
        match set {
            Set::List(_) if set.len() > LIST_SEARCHED_MAX => {
                let mut table = Table::new();
                set.iter().for_each(|member| _ = member.with(|text| table.insert(text)));
                Search::Copy(table)
            }
            set => Search::Set(set),
        }
    }

    fn has(&self, member: Member<'_>) -> bool {
        match self {
            Search::Set(set) => set.has(member),
            Search::Copy(table) => member.with(|text| table.contains(text)),
        }
    }
}

/// Calls `visit` for each member that all sets contain, until `visit` returns false. Absent sets are empty.
fn intersect(sets: &[Option<Set<'_>>], visit: &mut dyn FnMut(Member<'_>) -> bool) {
    let Some(mut sets) = sets.iter().copied().collect::<Option<Vec<Set<'_>>>>() else { return };
    sets.sort_by_key(|set| set.len());
    let others: Vec<Search<'_>> = sets[1..].iter().map(|&set| Search::of(set)).collect();
    for member in sets[0].iter() {
        if others.iter().all(|other| other.has(member)) && !visit(member) {
            return;
        }
    }
}

/// Calls `visit` once for each member of any set.
fn unite(sets: &[Option<Set<'_>>], visit: &mut dyn FnMut(Member<'_>)) {
    let mut earlier: Vec<Search<'_>> = Vec::new();
    for set in sets.iter().copied().flatten() {
        set.iter().filter(|&member| !earlier.iter().any(|set| set.has(member))).for_each(&mut *visit);
        earlier.push(Search::of(set));
    }
}

/// Calls `visit` for each member of the first set that no other set contains.
fn subtract(sets: &[Option<Set<'_>>], visit: &mut dyn FnMut(Member<'_>)) {
    let Some((&Some(first), others)) = sets.split_first() else { return };
    let mut others: Vec<Set<'_>> = others.iter().copied().flatten().collect();
    // Search the largest set first: it is the likeliest to contain a member.
    others.sort_by_key(|set| std::cmp::Reverse(set.len()));
    let others: Vec<Search<'_>> = others.into_iter().map(Search::of).collect();
    first.iter().filter(|&member| !others.iter().any(|set| set.has(member))).for_each(visit);
}

/// Copies the first set and removes the members of the others. If the others are small, this is less work than looking
/// up each member of the first.
fn subtract_from_copy(sets: &[Option<Set<'_>>], limits: Limits) -> Draft {
    let mut draft = Draft::ints();
    for (at, set) in sets.iter().enumerate() {
        for member in set.iter().flat_map(|set| set.iter()) {
            member.with(|text| if at == 0 { _ = draft.add(text, limits) } else { draft.remove(text) });
        }
    }
    draft
}

/// Which of the two ways is less work, by Redis's rule: the first way's constant is half of the second's.
fn looks_up(sets: &[Option<Set<'_>>]) -> bool {
    let len = |set: &Option<Set<'_>>| set.map_or(0, |set| set.len());
    let first = sets.first().map_or(0, len);
    first.saturating_mul(sets.len()) / 2 <= sets.iter().map(len).sum()
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Inter,
    Union,
    Diff,
}

/// SINTER, SUNION and SDIFF.
pub fn reply(cx: &mut Cx<'_>, operation: Operation) -> Run {
    let sets = sets(&mut cx.ks, cx.keys)?;
    let out = &mut cx.out;
    let bytes = sets.iter().map(|set| set.map_or(0, Set::reply_bytes));
    let bytes = match operation {
        Operation::Inter => bytes.min(),
        Operation::Union => Some(bytes.sum()),
        Operation::Diff => sets.first().map(|set| set.map_or(0, Set::reply_bytes)),
    };
    claim_reply(cx.settings, cx.session, out, bytes.unwrap_or(0))?;
    let (mark, mut count) = (out.set_deferred(), 0);
    let mut write = |member: Member<'_>| {
        member.write(out);
        count += 1;
    };
    match operation {
        Operation::Inter => intersect(&sets, &mut |member| {
            write(member);
            true
        }),
        Operation::Union => unite(&sets, &mut write),
        Operation::Diff => subtract(&sets, &mut write),
    }
    out.finish(mark, count);
    Ok(())
}

/// SINTERSTORE and the like: the first key receives the result of the others.
pub fn store(cx: &mut Cx<'_>, operation: Operation, event: &'static str) -> Run {
    let (target, sources) = cx.keys.split_first().expect("the arity asks for it");
    let draft = draft(&mut cx.ks, sources, operation, Limits::of(cx.settings))?;
    let len = draft.as_set().len();
    if len > 0 {
        draft.store(cx, target, None);
        cx.ks.event(Class::SET, event, target);
    } else if cx.ks.clear(target)? {
        cx.ks.event(Class::GENERIC, "del", target);
    }
    cx.out.int(len as i64);
    Ok(())
}

/// The result in the encoding that Redis would choose, which depends on how it was computed.
fn draft(ks: &mut Keyspace<'_>, sources: &[Key<'_>], operation: Operation, limits: Limits) -> Result<Draft, Stop> {
    let sets = sets(ks, sources)?;
    let mut draft = Draft::ints();
    match operation {
        Operation::Inter => {
            let smallest = sets.iter().flatten().min_by_key(|set| set.len());
            if !matches!(smallest, Some(Set::Ints(_))) {
                draft = Draft::list();
            }
            intersect(&sets, &mut |member| {
                member.with(|text| draft.add(text, limits));
                true
            });
            draft = draft.with_ints_if_all_are(limits);
        }
        Operation::Diff if !looks_up(&sets) => draft = subtract_from_copy(&sets, limits),
        Operation::Diff => subtract(&sets, &mut |member| _ = member.with(|text| draft.add(text, limits))),
        Operation::Union => unite(&sets, &mut |member| _ = member.with(|text| draft.add(text, limits))),
    }
    Ok(draft)
}

pub fn inter_card(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let keys = counted_keys(cx)?;
    let mut limit = usize::MAX;
    let mut at = 2 + keys;
    while let Some(word) = args.get(at) {
        match args.get(at + 1) {
            Some(number) if word.eq_ignore_ascii_case(b"limit") => limit = limit_of(number)?,
            _ => return Err(SYNTAX),
        }
        at += 2;
    }
    let sets = sets(&mut cx.ks, cx.keys)?;
    let mut count = 0;
    intersect(&sets, &mut |_| {
        count += 1;
        count < limit
    });
    cx.out.int(count as i64);
    Ok(())
}

/// The number after LIMIT. 0: no limit.
pub fn limit_of(text: &[u8]) -> Result<usize, Stop> {
    match number::int(text).and_then(|limit| usize::try_from(limit).ok()) {
        Some(0) => Ok(usize::MAX),
        Some(limit) => Ok(limit),
        None => Err(Stop::error("ERR LIMIT can't be negative")),
    }
}

/// The number of keys that argument 1 gives. All of them exist among the arguments.
fn counted_keys(cx: &Cx<'_>) -> Result<usize, Stop> {
    let Some(count) = number::int(&cx.args[1]).filter(|&count| count > 0) else {
        return Err(Stop::error("ERR numkeys should be greater than 0"));
    };
    match usize::try_from(count) {
        Ok(count) if count <= cx.args.len() - 2 => Ok(count),
        _ => Err(Stop::error("ERR Number of keys can't be greater than number of args")),
    }
}

/// SMOVE.
pub fn move_member(cx: &mut Cx<'_>) -> Run {
    let (from, to, args) = (&cx.keys[0], &cx.keys[1], cx.args);
    let member = &args[3];
    let (is_there, is_new, is_there_too) = {
        let of_member = &of_members(std::iter::once(member));
        let has = |set: Set<'_>| set.contains(member);
        let source = cx.ks.view_for(from, of_member)?.is_some();
        // Without a source, Redis does not check the target.
        let target = if source { set(cx.ks.view_for(to, of_member)?)? } else { None };
        let (is_new, is_there_too) = (target.is_none(), target.is_some_and(has));
        (set(cx.ks.view_for(from, of_member)?)?.is_some_and(has), is_new, is_there_too)
    };
    if is_there && from.name != to.name {
        let limits = Limits::of(cx.settings);
        super::remove_members(cx, from, &mut std::iter::once(member), "srem")?;
        if is_new {
            let mut draft = Draft::new(member, 1, limits);
            draft.add(member, limits);
            draft.store(cx, to, None);
        } else if !is_there_too && let Some(mut value) = cx.ks.get_mut_for(to, NOTHING)? {
            super::form::add(&mut value, member, limits);
        }
        if !is_there_too {
            cx.ks.event(Class::SET, "sadd", to);
        }
    }
    cx.out.int(is_there.into());
    Ok(())
}
