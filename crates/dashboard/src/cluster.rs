//! What is said of the cluster in whole: its version, whether somebody works with it, its time zone.

use crate::answer::{Answer, json, unanswered};
use crate::jobs;
use crate::routes::{Request, Site};
use oxiray_wire::message::SubmissionState;
use serde::Serialize;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The version of Ray's API for jobs.
const API_VERSION: &str = "4";
/// The version of Ray whose programs ask. Its clients refuse older ones.
const RAY_VERSION: &str = "2.60.0";

#[derive(Serialize)]
struct Described {
    version: &'static str,
    ray_version: &'static str,
    ray_commit: &'static str,
    session_name: String,
    oxiray_version: &'static str,
}

pub(crate) async fn version(site: Rc<Site>, _: Request) -> Answer {
    let session = site.session.file_name().unwrap_or_default().to_string_lossy().into_owned();
    json(&Described {
        version: API_VERSION,
        ray_version: RAY_VERSION,
        ray_commit: "",
        session_name: session,
        oxiray_version: env!("CARGO_PKG_VERSION"),
    })
}

#[derive(Serialize)]
struct Activities {
    driver: Activity,
}

#[derive(Serialize)]
struct Activity {
    is_active: &'static str,
    reason: Option<String>,
    timestamp: f64,
    last_activity_at: Option<f64>,
}

/// Whether programs run: what stops idle clusters asks.
pub(crate) async fn activities(site: Rc<Site>, _: Request) -> Answer {
    let rows = match jobs::rows(&site, None).await {
        Ok(rows) => rows,
        Err(error) => return unanswered(&error),
    };
    let is_active = |state| matches!(state, SubmissionState::Pending | SubmissionState::Running);
    let drivers = rows.iter().filter(|row| is_active(row.state)).count();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let ended = rows.iter().map(|row| row.ended_ms).max().filter(|ms| *ms > 0);
    json(&Activities {
        driver: Activity {
            is_active: if drivers > 0 { "ACTIVE" } else { "INACTIVE" },
            reason: (drivers > 0).then(|| format!("Number of active drivers: {drivers}")),
            timestamp: now,
            last_activity_at: ended.map(|ms| ms as f64 / 1000.0),
        },
    })
}

#[derive(Serialize)]
struct TimeZone {
    offset: String,
    value: String,
}

/// The machine's time zone: its name by where `/etc/localtime` leads, and how far it is ahead now.
pub(crate) async fn timezone(_: Rc<Site>, _: Request) -> Answer {
    let link = std::fs::read_link("/etc/localtime").unwrap_or_default();
    let name = link.to_string_lossy().split_once("zoneinfo/").map(|(_, name)| name.to_owned());
    let name = std::env::var("TZ").ok().filter(|name| !name.is_empty()).or(name);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    json(&TimeZone { offset: offset(seconds_ahead(now as i64)), value: name.unwrap_or_else(|| "Etc/UTC".to_owned()) })
}

/// How many seconds the machine's clock is ahead of UTC at that second.
fn seconds_ahead(now: i64) -> i64 {
    // SAFETY: zeros are a value of this struct of numbers and a pointer.
    let mut fields: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to what lives during the call; this program changes no variable of its environment.
    unsafe { libc::localtime_r(&raw const now, &raw mut fields) };
    fields.tm_gmtoff
}

fn offset(seconds: i64) -> String {
    let (sign, minutes) = (if seconds < 0 { '-' } else { '+' }, seconds.abs() / 60);
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::offset;

    #[test]
    fn an_offset_has_a_sign_hours_and_minutes() {
        assert_eq!([0, 3600, -12_600, 20_700].map(offset), ["+00:00", "+01:00", "-03:30", "+05:45"]);
    }
}
