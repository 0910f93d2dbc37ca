//! What a task or an actor asks for, made definite: what holds where its program does not say, in every language.

use oxiray_families::device_resource;
use oxiray_resources::ResourceName;
use std::collections::BTreeMap;

/// How often a task is run again after its process died, where its program does not say.
pub const DEFAULT_MAX_RETRIES: i32 = 3;
/// The share of `accelerator_type:<T>` that asks for the type without using it up.
const TYPE_SHARE: f64 = 0.001;
const CPU: &str = "CPU";

/// Quantities by the name of their resource.
pub type Quantities = BTreeMap<String, f64>;

/// What a task takes from its machine.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskDemand {
    /// What it takes; nothing of it is zero.
    pub resources: Quantities,
    /// After how many calls its process ends; 0 for never.
    pub max_calls: u32,
    /// Whether a process of its own runs it, so that the next holder of its devices meets clean ones.
    pub fresh: bool,
}

/// What an actor takes from its machine.
#[derive(Debug, Clone, PartialEq)]
pub struct ActorDemand {
    /// What a machine must have free to take the actor.
    pub placement: Quantities,
    /// What the actor then holds for life.
    pub running: Quantities,
}

/// The resource that machines with this type of accelerator have, and how much asks for it.
pub fn accelerator_type(name: &str) -> (String, f64) {
    (format!("accelerator_type:{name}"), TYPE_SHARE)
}

/// The demand of a task: one CPU where nothing is said. A task with devices ends its process after one call, where nothing
/// is said of that.
pub fn of_task(asked: Quantities, cpus: Option<f64>, max_calls: Option<u32>) -> TaskDemand {
    let resources = with_cpus(asked, cpus.unwrap_or(1.0));
    let holds_devices = holds_devices(&resources);
    let max_calls = max_calls.unwrap_or(u32::from(holds_devices));
    TaskDemand { resources, max_calls, fresh: holds_devices && max_calls == 1 }
}

/// The demand of an actor. One that asks for nothing but memory is placed where a CPU is free, and holds none; a quantity of
/// zero counts as asked for.
pub fn of_actor(asked: Quantities, cpus: Option<f64>) -> ActorDemand {
    let asks = asked.keys().any(|name| name != "memory");
    let (placement, running) = match cpus {
        Some(cpus) => (cpus, cpus),
        None if asks => (1.0, 1.0),
        None => (1.0, 0.0),
    };
    ActorDemand { placement: with_cpus(asked.clone(), placement), running: with_cpus(asked, running) }
}

/// Only what is zero goes: what is no quantity at all is refused by whoever counts it.
fn with_cpus(mut asked: Quantities, cpus: f64) -> Quantities {
    asked.insert(CPU.to_owned(), cpus);
    asked.retain(|_, quantity| *quantity != 0.0);
    asked
}

fn holds_devices(demand: &Quantities) -> bool {
    demand.keys().any(|name| device_resource(name).is_some() || name == ResourceName::GPU_MEMORY.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantities(pairs: &[(&str, f64)]) -> Quantities {
        pairs.iter().map(|(name, quantity)| ((*name).to_owned(), *quantity)).collect()
    }

    #[test]
    fn a_task_takes_a_cpu_where_nothing_is_said() {
        assert_eq!(of_task(quantities(&[]), None, None).resources, quantities(&[("CPU", 1.0)]));
        assert_eq!(of_task(quantities(&[("a", 0.0)]), Some(0.0), None).resources, quantities(&[]));
        assert_eq!(
            of_task(quantities(&[("a", 0.5)]), Some(2.0), None).resources,
            quantities(&[("CPU", 2.0), ("a", 0.5)])
        );
    }

    #[test]
    fn a_task_with_devices_has_a_process_of_its_own() {
        for asked in [("GPU", 0.25), ("GPU:memory", 1e9), ("TPU", 4.0)] {
            let demand = of_task(quantities(&[asked]), None, None);
            assert_eq!((demand.max_calls, demand.fresh), (1, true), "{asked:?}");
        }
        let kept = of_task(quantities(&[("GPU", 1.0)]), None, Some(0));
        assert_eq!((kept.max_calls, kept.fresh), (0, false));
        let without = of_task(quantities(&[("memory", 1e9), ("GPU", 0.0)]), None, Some(1));
        assert_eq!((without.max_calls, without.fresh), (1, false));
    }

    #[test]
    fn an_actor_holds_a_cpu_where_it_asks_for_anything_but_memory() {
        let idle = of_actor(quantities(&[("memory", 5.0)]), None);
        assert_eq!(idle.placement, quantities(&[("CPU", 1.0), ("memory", 5.0)]));
        assert_eq!(idle.running, quantities(&[("memory", 5.0)]));
        let asking = of_actor(quantities(&[("GPU", 0.0)]), None);
        assert_eq!((asking.placement, asking.running), (quantities(&[("CPU", 1.0)]), quantities(&[("CPU", 1.0)])));
        let said = of_actor(quantities(&[("GPU", 1.0)]), Some(0.0));
        assert_eq!((said.placement, said.running), (quantities(&[("GPU", 1.0)]), quantities(&[("GPU", 1.0)])));
    }

    #[test]
    fn what_is_no_quantity_is_left_for_the_check() {
        let demand = of_task(quantities(&[("a", -1.0)]), Some(f64::NAN), None).resources;
        assert!(demand["a"] < 0.0);
        assert!(demand["CPU"].is_nan());
    }
}
