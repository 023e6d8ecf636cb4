//! Words: sizes, times and names as people read them.

use std::time::SystemTime;

use jiff::Timestamp;

/// `1.5 MB`, in powers of 1024.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KB", "MB", "GB", "TB", "PB"];
    if bytes == 1 {
        return "1 byte".to_owned();
    }
    if bytes < 1000 {
        return format!("{bytes} bytes");
    }
    let (mut tenths, mut unit) = (u128::from(bytes) * 10 / 1024, 0);
    while tenths >= 10_000 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    let unit = UNITS[unit];
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {unit}"),
        (whole, _) if whole >= 100 => format!("{whole} {unit}"),
        (whole, tenth) => format!("{whole}.{tenth} {unit}"),
    }
}

/// `5 minutes ago`; the date of what is not of the last month, or claims to be of the future.
pub(super) fn age(time: SystemTime, now: SystemTime) -> String {
    let Ok(age) = now.duration_since(time) else {
        return date(time);
    };
    let minutes = age.as_secs() / 60;
    let (count, unit) = match minutes {
        0 => return "just now".to_owned(),
        1..60 => (minutes, "minute"),
        60..1440 => (minutes / 60, "hour"),
        1440..43_200 => (minutes / 1440, "day"),
        _ => return date(time),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural} ago")
}

/// `28 November 2026`
pub(super) fn date(time: SystemTime) -> String {
    formatted(time, "%-d %B %Y")
}

/// `14:35 UTC`
pub(super) fn time_of_day(time: SystemTime) -> String {
    formatted(time, "%H:%M UTC")
}

fn formatted(time: SystemTime, format: &str) -> String {
    Timestamp::try_from(time)
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .strftime(format)
        .to_string()
}

/// A name that reads as it is: what would be invisible, or turn the rest around, shows as U+FFFD.
pub(super) fn name(name: &str) -> String {
    let deceives = |character: char| {
        character.is_control()
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    name.chars()
        .map(|character| {
            if deceives(character) {
                char::REPLACEMENT_CHARACTER
            } else {
                character
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sizes_have_three_digits_at_the_most() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (1024, "1 KB"),
            (1536, "1.5 KB"),
            (1_023_999, "999 KB"),
            (1 << 20, "1 MB"),
            (52_428_800, "50 MB"),
            (5_905_580_032, "5.5 GB"),
            (1 << 40, "1 TB"),
            (u64::MAX, "16383 PB"),
        ] {
            assert_eq!(size(bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn ages_are_rough_and_dates_are_for_what_is_old_or_forged() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for (seconds, expected) in [
            (0, "just now"),
            (59, "just now"),
            (60, "1 minute ago"),
            (7199, "1 hour ago"),
            (7200, "2 hours ago"),
            (86_400 * 3, "3 days ago"),
            (86_400 * 40, "6 December 2026"),
        ] {
            assert_eq!(age(now - Duration::from_secs(seconds), now), expected);
        }
        assert_eq!(
            age(now + Duration::from_secs(86_400), now),
            "16 January 2027"
        );
        assert_eq!(
            age(SystemTime::UNIX_EPOCH - Duration::from_secs(1 << 40), now),
            "1 January 1970"
        );
    }

    #[test]
    fn a_name_cannot_be_read_backwards() {
        assert_eq!(name("\u{202e}gnp.exe"), "\u{fffd}gnp.exe");
        assert_eq!(name("line\nbreak"), "line\u{fffd}break");
        assert_eq!(name("Ünï 🙂 שלום.csv"), "Ünï 🙂 שלום.csv");
    }
}
