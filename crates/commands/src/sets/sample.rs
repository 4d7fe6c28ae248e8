//! Owns random members of sets: SPOP and SRANDMEMBER. Never knows other changes of a set.

use super::form::{self, Draft, Limits, Member, Set, is_sample, of_sample, set};
use crate::cx::{Cx, REPLY_BYTES_MAX, claim_reply, drawn_bytes, share_of};
use crate::number::int_or_error;
use crate::random::{self, Draws, Selection};
use crate::stop::{OUT_OF_RANGE, Run, SYNTAX, Stop};
use resp::reply::Out;
use std::collections::HashSet;
use store::{Class, NOTHING};
use value::Boxed;

pub fn srandmember(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let mut draws = Draws::of(&mut cx.ks);
    let Some(count) = args.get(2) else {
        match set(cx.ks.get_for(&cx.keys[0], &of_sample(1, false, draws))?)? {
            Some(set) => set.random(|n| draws.below(n)).write(&mut cx.out),
            None => cx.out.null(),
        }
        return Ok(());
    };
    if args.len() > 3 {
        return Err(SYNTAX);
    }
    let count = count_of(count)?;
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let is_distinct = count > 0;
    let Some(set) = set(cx.ks.get_for(&cx.keys[0], &of_sample(wanted, is_distinct, draws))?)? else {
        cx.out.array(0);
        return Ok(());
    };
    let bytes = match is_distinct {
        true => share_of(set.reply_bytes(), wanted, set.len()),
        false => drawn_bytes(set.element_bytes(), wanted, set.len()),
    };
    claim_reply(cx.settings, cx.session, &mut cx.out, bytes)?;
    match set {
        Set::Table(table) if is_sample(table, wanted, is_distinct) => {
            let sample = table.sample(wanted, is_distinct, |n| draws.below(n));
            cx.out.array(sample.len());
            sample.into_iter().for_each(|drawn| cx.out.bulk(table.drawn(drawn)));
        }
        _ if count < 0 => return with_repetition(&mut cx.out, set, wanted),
        _ => distinct(&mut cx.out, set, wanted),
    }
    Ok(())
}

/// A count that may be negative, with Redis's limits.
pub(crate) fn count_of(text: &[u8]) -> Result<i64, Stop> {
    match int_or_error(text)? {
        i64::MIN => Err(Stop::error(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        )),
        count => Ok(count),
    }
}

fn with_repetition(out: &mut Out<'_>, set: Set<'_>, draws: usize) -> Run {
    // An element takes at least 6 bytes of reply. This check refuses early what the loop below would refuse late.
    if draws > REPLY_BYTES_MAX / 6 {
        return Err(OUT_OF_RANGE);
    }
    let before = out.len();
    // Walk a packed list once, not once per draw.
    let members: Vec<Member<'_>> = if let Set::List(_) = set { set.iter().collect() } else { Vec::new() };
    out.array(draws);
    for _ in 0..draws {
        let member = if members.is_empty() { set.random(random::below) } else { members[random::below(members.len())] };
        member.write(out);
        if out.len() - before > REPLY_BYTES_MAX {
            return Err(OUT_OF_RANGE);
        }
    }
    Ok(())
}

fn distinct(out: &mut Out<'_>, set: Set<'_>, draws: usize) {
    let len = set.len();
    let draws = draws.min(len);
    out.array(draws);
    match set {
        // Few of many: draw until there are enough, with less than 1.5 draws for each.
        Set::Table(table) if draws < len / 3 => {
            let mut drawn = HashSet::with_capacity(draws);
            while drawn.len() < draws {
                let Some(member) = table.random(random::below) else { break };
                // The address of a member identifies it. An empty member has the address of its neighbour, so the
                // length is compared too.
                if drawn.insert((member.as_ptr(), member.len())) {
                    out.bulk(member);
                }
            }
        }
        _ => {
            let mut selection = Selection::new(draws, len);
            set.iter().filter(|_| selection.takes()).for_each(|member| member.write(out));
        }
    }
}

pub fn spop(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    match args.get(2) {
        None => pop_one(cx),
        Some(_) if args.len() > 3 => Err(SYNTAX),
        Some(count) => pop_many(cx, super::positive(count)?),
    }
}

fn pop_one(cx: &mut Cx<'_>) -> Run {
    let key = &cx.keys[0];
    let mut draws = Draws::of(&mut cx.ks);
    let Some(set) = set(cx.ks.view_for(key, &of_sample(1, false, draws))?)? else {
        cx.out.null();
        return Ok(());
    };
    let is_last = set.len() == 1;
    let member = set.random(|n| draws.below(n)).with(<[u8]>::to_vec);
    super::remove_members(cx, key, &mut std::iter::once(&member[..]), "spop")?;
    match is_last {
        true => cx.effect(&[b"DEL", key.name]),
        false => cx.effect(&[b"SREM", key.name, &member]),
    }
    cx.out.bulk(&member);
    Ok(())
}

/// If less than one in this many is left, the members that are left become a new set.
const LEFT_SHARE: usize = 5;

fn pop_many(cx: &mut Cx<'_>, count: usize) -> Run {
    let (key, limits) = (&cx.keys[0], Limits::of(cx.settings));
    let expiry = cx.ks.expiry(key)?.flatten();
    let mut draws = Draws::of(&mut cx.ks);
    let Some(set) = set(cx.ks.view_for(key, &of_sample(count, true, draws))?)?.filter(|_| count > 0) else {
        cx.out.set(0);
        return Ok(());
    };
    let len = set.len();
    claim_reply(cx.settings, cx.session, &mut cx.out, share_of(set.reply_bytes(), count, len))?;
    if count >= len {
        cx.out.set(len);
        set.iter().for_each(|member| member.write(&mut cx.out));
        cx.ks.event(Class::SET, "spop", key);
        cx.ks.remove(key)?;
        cx.ks.event(Class::GENERIC, "del", key);
        cx.effect(&[b"DEL", key.name]);
        return Ok(());
    }
    cx.out.set(count);
    let left = len - count;
    if let Set::Table(table) = set
        && is_sample(table, count, true)
    {
        let sample = table.sample(count, true, |n| draws.below(n));
        let taken: Vec<Vec<u8>> = sample.into_iter().map(|drawn| table.drawn(drawn).to_vec()).collect();
        let mut value = cx.ks.get_mut_for(key, NOTHING)?.expect("it was just there");
        for member in &taken {
            form::remove(&mut value, member);
            cx.out.bulk(member);
        }
        cx.ks.event(Class::SET, "spop", key);
        state(cx, &taken);
        return Ok(());
    }
    if let Set::Table(_) = set
        && left.saturating_mul(LEFT_SHARE) > count
    {
        let mut value = cx.ks.get_mut(key)?.expect("it was just there");
        let Some(Boxed::Set(table)) = value.boxed() else { unreachable!("it was a table") };
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            let member = table.random(random::below).expect("there are more than are taken").to_vec();
            table.remove(&member);
            cx.out.bulk(&member);
            taken.push(member);
        }
        cx.ks.event(Class::SET, "spop", key);
        state(cx, &taken);
        return Ok(());
    }
    let mut selection = Selection::new(count, len);
    let (taken, kept): (Vec<Member<'_>>, Vec<Member<'_>>) = set.iter().partition(|_| selection.takes());
    taken.iter().for_each(|member| member.write(&mut cx.out));
    let taken: Vec<Vec<u8>> = taken.into_iter().map(|member| member.with(<[u8]>::to_vec)).collect();
    if left.saturating_mul(LEFT_SHARE) > count {
        let mut value = cx.ks.get_mut(key)?.expect("it was just there");
        for member in &taken {
            form::remove(&mut value, member);
        }
        cx.ks.event(Class::SET, "spop", key);
        state(cx, &taken);
        return Ok(());
    }
    let mut draft = match (set, kept.first()) {
        (Set::Ints(_), _) => Draft::ints(),
        (Set::List(_), Some(first)) if first.with(crate::number::int).is_some() => Draft::ints(),
        _ => Draft::list(),
    };
    for member in kept {
        member.with(|text| draft.add(text, limits));
    }
    draft.store(cx, key, expiry);
    cx.ks.event(Class::SET, "spop", key);
    state(cx, &taken);
    Ok(())
}

/// States which members left a set that is not empty now.
fn state(cx: &mut Cx<'_>, taken: &[Vec<u8>]) {
    let key = &cx.keys[0];
    cx.ks.effect([b"SREM", key.name].into_iter().chain(taken.iter().map(Vec::as_slice)));
}
