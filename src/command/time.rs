//! Moments, as people write them, and what they may stand for.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// An epoch, or a time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Epoch(u64),
    Time(SystemTime),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(epoch) = text.parse() {
            return Ok(Self::Epoch(epoch));
        }
        if let Some(seconds) = text.strip_prefix('@') {
            return seconds
                .parse::<f64>()
                .ok()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .and_then(|since| UNIX_EPOCH.checked_add(since))
                .map(Self::Time)
                .ok_or_else(|| format!("{seconds:?} are no seconds since 1970"));
        }
        let time: Timestamp = text.parse().map_err(|error| {
            format!(
                "it is neither the number of an epoch, nor @SECONDS since 1970, nor a time with its zone \
                 as 2026-11-30T17:30:00Z or 2026-11-30T18:30:00+01:00 ({error})"
            )
        })?;
        let since = u64::try_from(time.as_microsecond()).map(Duration::from_micros);
        let since = since.map_err(|_| "it is before 1970".to_owned())?;
        Ok(Self::Time(UNIX_EPOCH + since))
    }
}

/// A time as it can be given again.
pub(super) fn shown(time: SystemTime) -> String {
    let micros = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = i64::try_from(micros.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(micros)
        .map_or_else(|_| format!("@{micros}e-6"), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_seconds_and_times_of_day_are_told_apart() {
        let time = |seconds, nanos| {
            let since = Duration::new(seconds, nanos);
            Ok(Moment::Time(UNIX_EPOCH + since))
        };
        assert_eq!("17".parse(), Ok(Moment::Epoch(17)));
        assert_eq!("@17.5".parse(), time(17, 500_000_000));
        assert_eq!("1970-01-01T00:01:00Z".parse(), time(60, 0));
        assert_eq!(
            "1970-01-01 01:01:00.25+01:00".parse(),
            time(60, 250_000_000)
        );
        for odd in [
            "",
            "-1",
            "@",
            "@-1",
            "@1e400",
            "yesterday",
            "1970-01-01T00:01:00",
        ] {
            assert!(odd.parse::<Moment>().is_err(), "{odd:?}");
        }
        let again: Moment = shown(UNIX_EPOCH + Duration::from_micros(1_234_567))
            .parse()
            .unwrap();
        assert_eq!(Ok(again), time(1, 234_567_000));
    }
}
