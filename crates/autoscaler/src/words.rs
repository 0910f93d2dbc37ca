//! A plan in words.

use oxiray_scheduler::Plan;
use std::fmt::Write as _;

const EXPECT: &str = "writing to a string does not fail";

/// What would be done and why, a line each.
pub fn in_words(plan: &Plan) -> String {
    let mut text = String::new();
    for launch in &plan.launches {
        let why = launch.why.join(", ");
        writeln!(text, "launch {} of `{}`: {why}", launch.replicas, launch.group).expect(EXPECT);
    }
    for removal in &plan.removals {
        let order = if removal.is_in_use { "empty and remove" } else { "remove" };
        writeln!(text, "{order} `{}` of `{}`: {}", removal.replica, removal.group, removal.why).expect(EXPECT);
    }
    for unmet in &plan.unmet {
        let never = if unmet.is_hopeless { "can never serve" } else { "leave waiting" };
        writeln!(text, "{never} {} x {}: {}", unmet.count, unmet.who, unmet.why).expect(EXPECT);
    }
    if text.is_empty() {
        text.push_str("nothing to do\n");
    }
    text
}
