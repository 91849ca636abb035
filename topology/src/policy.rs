//! What a program or a user wants of a plan.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::PlanError;
use crate::set::NumberSet;

/// The environment variable that stands in for the discovered number of shards.
pub const SHARDS_VARIABLE: &str = "ANCILE_SHARDS";

/// How many shards, on which processors, in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// How many shards, or which PUs.
    pub shards: Shards,
    /// PUs to leave to the rest of the system; those that would be filled last. At least one seat
    /// is always left. Has no effect on a list of PUs.
    pub reserve: usize,
    /// How shards are numbered over the nodes.
    pub order: Order,
    /// Which kind of core, on a machine that mixes them.
    pub cpu_kind: KindChoice,
    /// Bytes of each arena; by default what the node and the cgroup have is shared out.
    pub arena_bytes: Option<u64>,
}

/// How many shards, or which PUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shards {
    /// One a PU, no more than the CPU quota.
    #[default]
    All,
    /// One a physical core, no more than the CPU quota.
    PhysicalCores,
    /// This many; beyond the number of PUs seats start over.
    Count(usize),
    /// One on each of these PUs, in this order.
    Pus(Vec<u32>),
}

/// How shards are numbered over the nodes. The seats are the same ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Neighbours by number share a node.
    #[default]
    Compact,
    /// Neighbours by number sit on different nodes.
    Scatter,
}

/// Which kind of core, on a machine that mixes them. Elsewhere every choice means all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KindChoice {
    /// All kinds; abler cores are filled first.
    #[default]
    Any,
    /// The ablest kind only.
    Ablest,
    /// The least able kind only.
    LeastAble,
    /// The kind with this index in `Machine::cpu_kinds`.
    Index(usize),
}

impl Policy {
    /// The default policy, with the count of [`SHARDS_VARIABLE`] if that is set.
    ///
    /// The variable is for users of programs that leave the count to discovery: containers with
    /// CPU requests but no limits, sweeps, support cases. A program that starts from here and then
    /// sets `shards` itself overrides it.
    ///
    /// # Errors
    /// If the variable holds no positive number.
    pub fn from_env() -> Result<Self, PlanError> {
        let mut policy = Self::default();
        if let Some(value) = std::env::var_os(SHARDS_VARIABLE) {
            let value = value.to_string_lossy().into_owned();
            match value.trim().parse() {
                Ok(count) if count > 0 => policy.shards = Shards::Count(count),
                _ => {
                    return Err(PlanError::BadValue {
                        name: SHARDS_VARIABLE,
                        value,
                        expected: "must be a number of shards from 1 up",
                    });
                }
            }
        }
        Ok(policy)
    }

    /// This many shards.
    #[must_use]
    pub fn count(shards: usize) -> Self {
        Self {
            shards: Shards::Count(shards),
            ..Self::default()
        }
    }

    /// The same policy with another order.
    #[must_use]
    pub fn with_order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// The same policy with a reserve.
    #[must_use]
    pub fn with_reserve(self, reserve: usize) -> Self {
        Self { reserve, ..self }
    }
}

impl FromStr for Order {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        match text {
            "compact" => Ok(Self::Compact),
            "scatter" => Ok(Self::Scatter),
            _ => Err(PlanError::BadValue {
                name: "order",
                value: text.to_string(),
                expected: "must be compact or scatter",
            }),
        }
    }
}

impl FromStr for KindChoice {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        match (text, text.parse()) {
            ("any", _) => Ok(Self::Any),
            ("ablest", _) => Ok(Self::Ablest),
            ("least-able", _) => Ok(Self::LeastAble),
            (_, Ok(index)) => Ok(Self::Index(index)),
            _ => Err(PlanError::BadValue {
                name: "cpu-kind",
                value: text.to_string(),
                expected: "must be any, ablest, least-able or the number of a kind",
            }),
        }
    }
}

impl Shards {
    /// Reads a list of PUs in the kernel's form (`0-3,8`); ranges count upwards, parts keep their
    /// order.
    ///
    /// # Errors
    /// If a part is no number and no range.
    pub fn pus_from_list(text: &str) -> Result<Self, PlanError> {
        let mut pus = Vec::new();
        for part in text.split(',') {
            match NumberSet::from_list(part) {
                Ok(set) if !set.is_empty() => pus.extend(set.iter()),
                _ => {
                    return Err(PlanError::BadValue {
                        name: "pus",
                        value: text.to_string(),
                        expected: "must be a list such as 0-3,8",
                    });
                }
            }
        }
        Ok(Self::Pus(pus))
    }
}

impl fmt::Display for Shards {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => formatter.write_str("all allowed PUs"),
            Self::PhysicalCores => formatter.write_str("physical cores"),
            Self::Count(count) => write!(formatter, "{count} asked for"),
            Self::Pus(_) => formatter.write_str("a list of PUs"),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Compact => "compact",
            Self::Scatter => "scatter",
        })
    }
}

impl fmt::Display for KindChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => formatter.write_str("any"),
            Self::Ablest => formatter.write_str("ablest"),
            Self::LeastAble => formatter.write_str("least-able"),
            Self::Index(index) => write!(formatter, "{index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KindChoice, Order, Shards};

    #[test]
    fn a_list_of_pus_keeps_the_order_of_its_parts() {
        let list = Shards::pus_from_list("8,0-2").unwrap();
        assert_eq!(list, Shards::Pus(vec![8, 0, 1, 2]));
        for text in ["", "1,,2", "a", "3-1"] {
            let error = Shards::pus_from_list(text).unwrap_err().to_string();
            assert!(error.contains("0-3,8"), "{text}: {error}");
        }
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for order in [Order::Compact, Order::Scatter] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for kind in [
            KindChoice::Any,
            KindChoice::Ablest,
            KindChoice::LeastAble,
            KindChoice::Index(2),
        ] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("sideways".parse::<Order>().is_err());
        assert!("sideways".parse::<KindChoice>().is_err());
    }
}
