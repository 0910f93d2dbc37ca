//! Why devices were taken, or would be, of those that are free: in words.

use oxiray_families::nearness_in_words;
use oxiray_resources::{ChoiceRule, DeviceChoice};

/// Of devices of a bundle.
pub(crate) const OF_BUNDLE: &str = "of those of its bundle";

/// By which rule they are taken; `is_held` where they were.
pub fn choice_in_words(choice: &DeviceChoice, is_held: bool) -> String {
    let count = choice.devices.len();
    let verb = match (is_held, count) {
        (true, 1) => "was",
        (true, _) => "were",
        (false, 1) => "is",
        (false, _) => "are",
    };
    match choice.rule {
        ChoiceRule::Only => format!("no other {} free", if is_held { "was" } else { "is" }),
        ChoiceRule::Fullest => format!("the fullest that {} room for it", if is_held { "had" } else { "has" }),
        ChoiceRule::Lowest => format!("the lowest that {verb} free"),
        ChoiceRule::Apart => {
            let (those, its) = if is_held { ("were", "was") } else { ("are", "is") };
            format!("the lowest of those that {those} free whose nearest neighbour {its} the farthest off")
        }
        ChoiceRule::Nearest { numa_nodes, farthest, nearest } => {
            let nodes = if numa_nodes == 1 { "one NUMA node".to_owned() } else { format!("{numa_nodes} NUMA nodes") };
            let pairs = if farthest == nearest {
                format!("{} between each two", nearness_in_words(nearest))
            } else {
                format!("{} to {} between two", nearness_in_words(farthest), nearness_in_words(nearest))
            };
            format!("the nearest to each other that {verb} free ({nodes}, {pairs})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_resources::ResourceName;

    #[test]
    fn a_rule_is_said_of_what_is_held_and_of_what_would_be() {
        let said = |rule, devices: &[u32], is_held| {
            choice_in_words(&DeviceChoice { resource: ResourceName::GPU, devices: devices.to_vec(), rule }, is_held)
        };
        let near = ChoiceRule::Nearest { numa_nodes: 1, farthest: 420, nearest: 420 };
        assert_eq!(
            said(near, &[2, 3], true),
            "the nearest to each other that were free (one NUMA node, 4 direct links between each two)"
        );
        let far = ChoiceRule::Nearest { numa_nodes: 2, farthest: 10, nearest: 420 };
        assert_eq!(
            said(far, &[1, 2, 3], false),
            "the nearest to each other that are free (2 NUMA nodes, SYS to 4 direct links between two)"
        );
        assert_eq!(said(ChoiceRule::Lowest, &[0], true), "the lowest that was free");
        assert_eq!(said(ChoiceRule::Lowest, &[0, 1], false), "the lowest that are free");
        assert_eq!(said(ChoiceRule::Fullest, &[0], true), "the fullest that had room for it");
        assert_eq!(
            said(ChoiceRule::Apart, &[0], true),
            "the lowest of those that were free whose nearest neighbour was the farthest off"
        );
        assert_eq!(said(ChoiceRule::Only, &[0], false), "no other is free");
    }
}
