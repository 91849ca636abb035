//! Chooses the PUs of a plan, in the order of the shards. The rules are in [`crate::plan`].

use crate::error::PlanError;
use crate::machine::{Machine, Pu};
use crate::memory;
use crate::policy::{KindChoice, Order, Policy, Shards};
use crate::set::NumberSet;

/// Below this an arena is not worth a shard, so default plans on tiny machines have fewer shards.
const ARENA_BYTES_MIN: u64 = 16 << 20;

/// Candidates that share a NUMA node, or a package where they have no node.
struct Group {
    /// The node, or the package, or neither.
    place: (Option<u32>, Option<usize>),
    /// Its cores in tree order, abler ones first.
    cores: Vec<Seats>,
}

/// The seats that a core offers.
struct Seats {
    /// Its PUs, first thread first.
    pus: Vec<u32>,
    /// Its package and its largest cache: within a group, seats are spread evenly over those.
    within: [Option<usize>; 2],
}

/// PUs that the policy spells out, if the kernel permits each.
pub(crate) fn listed(machine: &Machine, list: &[u32]) -> Result<Vec<u32>, PlanError> {
    let mut seen = NumberSet::new();
    for &pu in list {
        if !machine.permitted_pus.contains(pu) {
            return Err(PlanError::PuNotPermitted {
                pu,
                permitted: machine.permitted_pus.clone(),
            });
        }
        if seen.contains(pu) {
            return Err(PlanError::PuTwice { pu });
        }
        seen.insert(pu);
    }
    if list.is_empty() {
        return Err(PlanError::NoShards);
    }
    Ok(list.to_vec())
}

/// PUs that the rules choose, each once, with remarks on what cut their number.
pub(crate) fn chosen(
    machine: &Machine,
    policy: &Policy,
) -> Result<(Vec<u32>, Vec<String>), PlanError> {
    if policy.shards == Shards::Count(0) {
        return Err(PlanError::NoShards);
    }
    let mut notes = Vec::new();
    let candidates = candidates(machine, policy, &mut notes)?;
    let groups = groups(machine, &candidates);
    let usable = candidates.len().saturating_sub(policy.reserve).max(1);
    if policy.reserve >= candidates.len() {
        notes.push(format!(
            "a reserve of {} leaves nothing of {} PUs: one shard all the same",
            policy.reserve,
            candidates.len()
        ));
    }
    let count = match policy.shards {
        Shards::Count(count) => {
            if let Some(quota) = machine
                .cpu_quota
                .filter(|quota| quota.ceil() < count as f64)
            {
                notes.push(format!("{count} shards share a CPU quota of {quota:.2}"));
            }
            count.min(usable)
        }
        Shards::PhysicalCores => {
            let cores = groups.iter().map(|group| group.cores.len()).sum();
            by_default(machine, usable.min(cores), &mut notes)
        }
        Shards::All | Shards::Pus(_) => by_default(machine, usable, &mut notes),
    };
    let seats = deal(&groups, count);
    Ok((number(seats, policy.order), notes))
}

/// Allowed PUs of the chosen kind of core, in tree order.
fn candidates<'a>(
    machine: &'a Machine,
    policy: &Policy,
    notes: &mut Vec<String>,
) -> Result<Vec<&'a Pu>, PlanError> {
    let allowed = |pu: &&Pu| machine.allowed_pus.contains(pu.os_index);
    let all: Vec<&Pu> = machine.pus.iter().filter(allowed).collect();
    if all.is_empty() {
        return Err(PlanError::NoAllowedPu {
            permitted: machine.permitted_pus.clone(),
        });
    }
    let kinds = &machine.cpu_kinds;
    let wanted = match policy.cpu_kind {
        KindChoice::Index(index) => index,
        _ if kinds.len() < 2 => return Ok(all),
        KindChoice::Any => {
            notes.push(format!(
                "{} kinds of core: all are used, abler ones first",
                kinds.len()
            ));
            return Ok(all);
        }
        KindChoice::Ablest => (0..kinds.len())
            .max_by_key(|it| kinds[*it].rank)
            .unwrap_or(0),
        KindChoice::LeastAble => (0..kinds.len())
            .min_by_key(|it| kinds[*it].rank)
            .unwrap_or(0),
    };
    let of_kind: Vec<&Pu> = all
        .into_iter()
        .filter(|pu| pu.kind == Some(wanted))
        .collect();
    if of_kind.is_empty() {
        return Err(PlanError::NoSuchKind {
            kind: policy.cpu_kind.to_string(),
            kinds: match kinds.len() {
                0 => "only one kind".to_string(),
                count => format!("kinds 0 to {}", count - 1),
            },
        });
    }
    Ok(of_kind)
}

/// What limits a number that nobody asked for: the CPU quota and the memory.
fn by_default(machine: &Machine, usable: usize, notes: &mut Vec<String>) -> usize {
    let mut count = usable;
    if let Some(quota) = machine.cpu_quota {
        let ceiling = (quota.ceil() as usize).max(1);
        if ceiling < count {
            notes.push(format!(
                "a CPU quota of {quota:.2} makes the default {ceiling} instead of {count} shards"
            ));
            count = ceiling;
        }
    }
    if let Some(bytes) = memory::budget(machine) {
        let ceiling = ((bytes / ARENA_BYTES_MIN) as usize).max(1);
        if ceiling < count {
            notes.push(format!(
                "little memory makes the default {ceiling} instead of {count} shards"
            ));
            count = ceiling;
        }
    }
    count
}

fn groups(machine: &Machine, candidates: &[&Pu]) -> Vec<Group> {
    let homes = memory::Homes::new(machine);
    let mut groups: Vec<Group> = Vec::new();
    // Candidates are in tree order, so the PUs of a core mostly follow each other.
    let mut cores: Vec<(Option<u32>, usize, Option<usize>, Seats)> = Vec::new();
    for pu in candidates {
        let node = homes.of(pu.os_index);
        let package = if node.is_none() { pu.package } else { None };
        let place = (node, package);
        let group = match groups.iter().position(|group| group.place == place) {
            Some(group) => group,
            None => {
                let cores = Vec::new();
                groups.push(Group { place, cores });
                groups.len() - 1
            }
        };
        let sibling = |(_, at, core, _): &&mut (_, usize, Option<usize>, _)| {
            *at == group && pu.core.is_some() && *core == pu.core
        };
        match cores.iter_mut().rev().find(sibling) {
            Some((.., seats)) => seats.pus.push(pu.os_index),
            None => {
                let rank = pu.kind.and_then(|kind| machine.cpu_kinds[kind].rank);
                let cache = machine
                    .caches
                    .iter()
                    .position(|it| it.pus.contains(pu.os_index));
                let seats = Seats {
                    pus: vec![pu.os_index],
                    within: [pu.package, cache],
                };
                cores.push((rank, group, pu.core, seats));
            }
        }
    }
    cores.sort_by_key(|(rank, ..)| std::cmp::Reverse(*rank));
    for (_, group, _, seats) in cores {
        groups[group].cores.push(seats);
    }
    groups
}

/// Deals seats in rounds; returns the PUs of each group in the order they were dealt.
fn deal(groups: &[Group], count: usize) -> Vec<Vec<u32>> {
    let mut seats = vec![Vec::new(); groups.len()];
    let mut left = count;
    for round in 0.. {
        let offers: Vec<Vec<(usize, &Seats)>> =
            groups.iter().map(|group| offer(group, round)).collect();
        let shares = apportion(left, &offers.iter().map(Vec::len).collect::<Vec<_>>());
        if shares.iter().all(|share| *share == 0) {
            break;
        }
        for (index, share) in shares.into_iter().enumerate() {
            let mut taken = spread(&offers[index], share, 0);
            taken.sort_by_key(|(place, _)| *place);
            seats[index].extend(taken.iter().map(|(_, core)| core.pus[round]));
            left -= share;
        }
    }
    seats
}

/// Cores that still have a PU to give in a round, with their places in the group.
fn offer(group: &Group, round: usize) -> Vec<(usize, &Seats)> {
    let cores = group.cores.iter().enumerate();
    cores.filter(|(_, core)| core.pus.len() > round).collect()
}

/// Takes cores so that packages, then their caches, get even shares.
fn spread<'a>(cores: &[(usize, &'a Seats)], share: usize, level: usize) -> Vec<(usize, &'a Seats)> {
    let ranked = cores.len() > share && level < 2;
    if !ranked {
        return cores[..share.min(cores.len())].to_vec();
    }
    let mut parts: Vec<Vec<(usize, &Seats)>> = Vec::new();
    for core in cores {
        let same =
            |part: &&mut Vec<(usize, &Seats)>| part[0].1.within[level] == core.1.within[level];
        match parts.iter_mut().find(same) {
            Some(part) => part.push(*core),
            None => parts.push(vec![*core]),
        }
    }
    let shares = apportion(share, &parts.iter().map(Vec::len).collect::<Vec<_>>());
    let taken = parts.iter().zip(shares);
    taken
        .flat_map(|(part, share)| spread(part, share, level + 1))
        .collect()
}

/// Shares out `count`, or all there is, in proportion to what each offers: by largest remainder,
/// first come first.
fn apportion(count: usize, offers: &[usize]) -> Vec<usize> {
    let total: usize = offers.iter().sum::<usize>().max(1);
    let count = count.min(offers.iter().sum());
    let mut shares: Vec<usize> = offers.iter().map(|offer| count * offer / total).collect();
    let mut by_remainder: Vec<usize> = (0..offers.len()).collect();
    by_remainder.sort_by_key(|index| std::cmp::Reverse(count * offers[*index] % total));
    let rest = count - shares.iter().sum::<usize>();
    for index in by_remainder.into_iter().take(rest) {
        shares[index] += 1;
    }
    shares
}

/// Brings the PUs of all groups into the order of the shards.
fn number(seats: Vec<Vec<u32>>, order: Order) -> Vec<u32> {
    match order {
        Order::Compact => seats.into_iter().flatten().collect(),
        Order::Scatter => {
            let longest = seats.iter().map(Vec::len).max().unwrap_or(0);
            let turns =
                (0..longest).flat_map(|turn| seats.iter().filter_map(move |it| it.get(turn)));
            turns.copied().collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::apportion;

    #[test]
    fn shares_are_proportional_and_lose_nothing() {
        assert_eq!(apportion(7, &[8, 8]), [4, 3]);
        assert_eq!(apportion(5, &[8, 2]), [4, 1]);
        assert_eq!(apportion(3, &[1; 8]), [1, 1, 1, 0, 0, 0, 0, 0]);
        assert_eq!(apportion(0, &[3, 3]), [0, 0]);
        for count in 0..=24 {
            let shares = apportion(count, &[16, 4, 4]);
            assert_eq!(shares.iter().sum::<usize>(), count);
            assert!(
                shares
                    .iter()
                    .zip([16, 4, 4])
                    .all(|(share, offer)| *share <= offer)
            );
        }
    }
}
