//! Owns the subcommands of CLIENT about client-side caching: a connection's options, and whether they fit together.
//! Never knows which clients have read which key: the server does.

use crate::connection::{BASE, CLIENT, on_off};
use crate::cx::Cx;
use crate::number;
use crate::row::{Row, is};
use crate::session::Tracking;
use crate::stop::{NOT_INTEGER, Run, SYNTAX, Stop};

pub(crate) const CACHING: Row = Row {
    name: "caching",
    arity: 3,
    flags: CLIENT,
    since: "6.0.0",
    summary: "Sets whether the keys of the next command are remembered for client-side caching.",
    syntax: "<YES | NO>",
    examples: &[
        is(
            "CLIENT CACHING YES",
            "(error) ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT \
             mode enabled",
        ),
        is("CLIENT TRACKING ON OPTIN", "OK"),
        is("CLIENT CACHING YES", "OK"),
        is("CLIENT CACHING NO", "(error) ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."),
        is("CLIENT TRACKING OFF", "OK"),
    ],
    run: caching,
    ..BASE
};

pub(crate) const GETREDIR: Row = Row {
    name: "getredir",
    arity: 2,
    flags: CLIENT,
    since: "6.0.0",
    summary: "Returns the id of the connection that receives the invalidations of this one; -1 without tracking.",
    examples: &[is("CLIENT GETREDIR", "(integer) -1")],
    run: |cx| {
        let redirect = cx.session.tracking.as_ref().map_or(-1, |tracking| tracking.redirect as i64);
        cx.out.int(redirect);
        Ok(())
    },
    ..BASE
};

pub(crate) const TRACKING: Row = Row {
    name: "tracking",
    arity: -3,
    flags: CLIENT,
    since: "6.0.0",
    complexity: "O(1). Some options may introduce additional complexity.",
    summary: "Controls whether the connection is notified when keys that it has read, or keys with a prefix, change.",
    syntax: "<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
    examples: &[
        is("CLIENT TRACKING ON", "OK"),
        is("CLIENT GETREDIR", "(integer) 0"),
        is("CLIENT TRACKING OFF", "OK"),
        is("CLIENT TRACKING ON PREFIX a", "(error) ERR PREFIX option requires BCAST mode to be enabled"),
        is("CLIENT TRACKING ON BCAST OPTIN", "(error) ERR OPTIN and OPTOUT are not compatible with BCAST"),
        is("CLIENT TRACKING maybe", "(error) ERR syntax error"),
    ],
    run: tracking,
    ..BASE
};

pub(crate) const TRACKINGINFO: Row = Row {
    name: "trackinginfo",
    arity: 2,
    flags: CLIENT,
    since: "6.2.0",
    summary: "Returns the connection's options of CLIENT TRACKING.",
    examples: &[is(
        "CLIENT TRACKINGINFO",
        "1) \"flags\"\n2) 1) \"off\"\n3) \"redirect\"\n4) (integer) -1\n5) \"prefixes\"\n6) (empty array)",
    )],
    run: info,
    ..BASE
};

fn caching(cx: &mut Cx<'_>) -> Run {
    let Some(tracking) = cx.session.tracking.as_mut() else {
        return Err(Stop::error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode \
             enabled",
        ));
    };
    let word = &cx.args[2];
    if word.eq_ignore_ascii_case(b"yes") {
        if !tracking.optin {
            return Err(Stop::error("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."));
        }
    } else if word.eq_ignore_ascii_case(b"no") {
        if !tracking.optout {
            return Err(Stop::error("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."));
        }
    } else {
        return Err(SYNTAX);
    }
    tracking.caching = true;
    cx.out.ok();
    Ok(())
}

/// Ends tracking if it is on.
pub(crate) fn stop(cx: &mut Cx<'_>) {
    if cx.session.tracking.take().is_some() {
        cx.server.tracking_changed(cx.session);
    }
}

fn tracking(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let mut wanted = Tracking::default();
    let mut prefixes: Vec<&[u8]> = Vec::new();
    let mut at = 3;
    while let Some(word) = args.get(at) {
        let value = args.get(at + 1);
        match (word.to_ascii_lowercase().as_slice(), value) {
            (b"redirect", Some(id)) => {
                at += 1;
                if wanted.redirect != 0 {
                    return Err(Stop::error("ERR A client can only redirect to a single other client"));
                }
                let id = number::int(id).ok_or(NOT_INTEGER)?;
                let known = u64::try_from(id).ok().filter(|&id| cx.server.client_exists(id));
                wanted.redirect = known.ok_or(Stop::error("ERR The client ID you want redirect to does not exist"))?;
            }
            (b"bcast", _) => wanted.bcast = true,
            (b"optin", _) => wanted.optin = true,
            (b"optout", _) => wanted.optout = true,
            (b"noloop", _) => wanted.noloop = true,
            (b"prefix", Some(prefix)) => {
                at += 1;
                prefixes.push(prefix);
            }
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    if !on_off(&args[2])? {
        stop(cx);
        cx.out.ok();
        return Ok(());
    }
    if !prefixes.is_empty() && !wanted.bcast {
        return Err(Stop::error("ERR PREFIX option requires BCAST mode to be enabled"));
    }
    if let Some(before) = &cx.session.tracking {
        if before.bcast != wanted.bcast {
            return Err(Stop::error(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            ));
        }
        wanted.prefixes.clone_from(&before.prefixes);
    }
    if wanted.bcast && (wanted.optin || wanted.optout) {
        return Err(Stop::error("ERR OPTIN and OPTOUT are not compatible with BCAST"));
    }
    if wanted.optin && wanted.optout {
        return Err(Stop::error("ERR You can't specify both OPTIN mode and OPTOUT mode"));
    }
    let crosses = |before: &Tracking| before.optout && wanted.optin || before.optin && wanted.optout;
    if cx.session.tracking.as_deref().is_some_and(crosses) {
        return Err(Stop::error(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling \
             it with a different mode.",
        ));
    }
    if wanted.bcast {
        add_prefixes(&mut wanted.prefixes, &prefixes)?;
    }
    cx.session.tracking = Some(Box::new(wanted));
    cx.server.tracking_changed(cx.session);
    cx.out.ok();
    Ok(())
}

/// No prefix of a connection may be the beginning of another one: the client would get two notifications of one change.
fn add_prefixes(known: &mut Vec<Box<[u8]>>, new: &[&[u8]]) -> Run {
    let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
    for (at, prefix) in new.iter().enumerate() {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if let Some(other) = known.iter().find(|other| overlap(prefix, other)) {
            let (prefix, other) = (shown(prefix), shown(other));
            return Err(Stop::Error(
                format!(
                    "ERR Prefix '{prefix}' overlaps with an existing prefix '{other}'. Prefixes for a single client \
                     must not overlap."
                )
                .into(),
            ));
        }
        if let Some(other) = new[at + 1..].iter().find(|other| overlap(prefix, other)) {
            let (prefix, other) = (shown(prefix), shown(other));
            return Err(Stop::Error(
                format!(
                    "ERR Prefix '{prefix}' overlaps with another provided prefix '{other}'. Prefixes for a single \
                     client must not overlap."
                )
                .into(),
            ));
        }
    }
    known.extend(new.iter().map(|&prefix| prefix.into()));
    if known.is_empty() {
        // Without prefixes, all keys are tracked.
        known.push(Box::default());
    }
    Ok(())
}

fn info(cx: &mut Cx<'_>) -> Run {
    let tracking = cx.session.tracking.as_deref();
    let broken = tracking.is_some() && cx.server.redirect_broken(cx.session);
    let out = &mut cx.out;
    out.map(3);
    out.bulk(b"flags");
    let mut flags = Vec::new();
    match tracking {
        None => flags.push("off"),
        Some(tracking) => {
            flags.push("on");
            for (on, name) in [
                (tracking.bcast, "bcast"),
                (tracking.optin, "optin"),
                (tracking.optin && tracking.caching, "caching-yes"),
                (tracking.optout, "optout"),
                (tracking.optout && tracking.caching, "caching-no"),
                (tracking.noloop, "noloop"),
                (broken, "broken_redirect"),
            ] {
                if on {
                    flags.push(name);
                }
            }
        }
    }
    out.set(flags.len());
    flags.iter().for_each(|flag| out.bulk(flag.as_bytes()));
    out.bulk(b"redirect");
    out.int(tracking.map_or(-1, |tracking| tracking.redirect as i64));
    out.bulk(b"prefixes");
    let prefixes = tracking.map_or(&[][..], |tracking| &tracking.prefixes);
    out.array(prefixes.len());
    prefixes.iter().for_each(|prefix| out.bulk(prefix));
    Ok(())
}
