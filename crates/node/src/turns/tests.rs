use super::{CREDIT, DEBT_MAX, Turns};
use std::collections::BTreeMap;
use std::time::Duration;

const MOMENT: Duration = Duration::from_micros(500);
/// Those from here on always have more to say.
const FLOODERS: u32 = 1000;

/// Hears whoever is next for so long; who it was.
fn hear(turns: &mut Turns<u32>, took: Duration) -> u32 {
    let who = turns.next().expect("somebody waits");
    turns.heard(took, who >= FLOODERS);
    who
}

fn hear_times(turns: &mut Turns<u32>, times: u32) {
    for _ in 0..times {
        hear(turns, MOMENT);
    }
}

/// How many others are heard before this one.
fn before(turns: &mut Turns<u32>, who: u32) -> usize {
    (0..100_000).find(|_| hear(turns, MOMENT) == who).expect("it is heard")
}

/// So many that always have more to say, heard for a while.
fn flooded(count: u32) -> Turns<u32> {
    let mut turns = Turns::new();
    (0..count).for_each(|number| turns.add(FLOODERS + number));
    hear_times(&mut turns, 10 * count);
    turns
}

/// TURNS-1.
#[test]
fn whoever_comes_anew_is_heard_first() {
    for count in [1, 6, 300] {
        for into in 0..count {
            let mut turns = flooded(count);
            hear_times(&mut turns, into);
            turns.add(1);
            assert_eq!(before(&mut turns, 1), 0, "with {count} flooders, {into} of them heard");
        }
    }
}

#[test]
fn those_that_wait_are_known_wherever_they_stand() {
    let mut turns = flooded(2);
    turns.add(1);
    assert_eq!(turns.waiting().collect::<Vec<_>>(), [1, FLOODERS, FLOODERS + 1]);
    assert_eq!(hear(&mut turns, MOMENT), 1);
    assert_eq!(turns.waiting().collect::<Vec<_>>(), [FLOODERS, FLOODERS + 1], "one that was heard waits no more");
    turns.forget(FLOODERS);
    assert_eq!(turns.waiting().collect::<Vec<_>>(), [FLOODERS + 1]);
}

/// TURNS-1: the line of those that are behind is as one, however long it is.
#[test]
fn whoever_asks_again_and_again_waits_for_a_moment_or_two() {
    for count in [1, 6, 300] {
        let mut turns = flooded(count);
        for _ in 0..1000 {
            turns.add(1);
            let waited = before(&mut turns, 1);
            assert!(waited <= 2, "{waited} moments of {count} flooders came first");
        }
    }
}

/// TURNS-1: many that say little, each as soon as it was heard, are never behind.
#[test]
fn one_that_pauses_is_heard_before_many_that_do_not() {
    let mut turns = Turns::new();
    (0..300).for_each(|number| turns.add(number));
    for _ in 0..100 {
        for _ in 0..3000 {
            let who = hear(&mut turns, MOMENT);
            turns.add(who);
        }
        turns.add(999);
        assert_eq!(before(&mut turns, 999), 0);
    }
}

/// TURNS-1.
#[test]
fn what_is_done_later_is_paid_for_too() {
    let mut turns = Turns::new();
    turns.add(3);
    turns.add(4);
    turns.charge(3, MOMENT);
    assert_eq!([hear(&mut turns, MOMENT), hear(&mut turns, MOMENT)], [4, 3]);
}

/// TURNS-2.
#[test]
fn those_that_are_behind_are_heard_one_after_the_other() {
    let mut turns = flooded(5);
    let (mut heard, mut newcomer) = (BTreeMap::<u32, u32>::new(), 0);
    turns.add(newcomer);
    for _ in 0..1000 {
        let who = hear(&mut turns, MOMENT);
        *heard.entry(who).or_default() += 1;
        if who == newcomer {
            newcomer += 1;
            turns.add(newcomer);
        }
    }
    let flooders: Vec<u32> = heard.range(FLOODERS..).map(|(_, times)| *times).collect();
    let (least, most) = (flooders.iter().min().expect("five"), flooders.iter().max().expect("five"));
    assert!(flooders.len() == 5 && most - least <= 1, "{flooders:?}");
    assert!(flooders.iter().sum::<u32>() >= 150, "newcomers without end kept them out: {flooders:?}");
}

/// TURNS-2: time is shared, however long each message takes.
#[test]
fn those_that_say_little_at_once_get_the_same_time() {
    let mut turns = Turns::new();
    (1..=4).for_each(|number| turns.add(number));
    let (mut had, step) = (BTreeMap::<u32, Duration>::new(), Duration::from_micros(100));
    for _ in 0..10_000 {
        let who = turns.next().expect("they have more");
        *had.entry(who).or_default() += step * who;
        turns.heard(step * who, false);
        turns.add(who);
    }
    let (least, most) = (had.values().min().expect("four"), had.values().max().expect("four"));
    assert!(most.saturating_sub(*least) <= CREDIT + DEBT_MAX, "{had:?}");
}

/// TURNS-3.
#[test]
fn one_long_message_is_not_paid_for_ever() {
    let mut turns = flooded(2);
    turns.add(3);
    assert_eq!(hear(&mut turns, Duration::from_secs(60)), 3);
    turns.add(3);
    let most = DEBT_MAX.as_micros() / MOMENT.as_micros() + 2;
    let waited = before(&mut turns, 3);
    assert!(waited as u128 <= most, "{waited} moments of others came first");
}

/// TURNS-4.
#[test]
fn nothing_is_kept_of_who_is_gone() {
    let mut turns = Turns::new();
    (0..100).for_each(|number| turns.add(number));
    (0..50).for_each(|number| turns.forget(number));
    assert!((50..100).all(|number| hear(&mut turns, MOMENT) == number));
    (0..10).for_each(|number| turns.add(FLOODERS + number));
    hear_times(&mut turns, 15);
    // Gone while it is heard, whatever it has to say.
    let who = turns.next().expect("they have more");
    turns.forget(who);
    turns.heard(MOMENT, true);
    (0..10).for_each(|number| turns.forget(FLOODERS + number));
    assert!(turns.is_empty() && turns.next().is_none() && turns.behind.is_empty());
    (0..100).for_each(|number| turns.forget(number));
    assert!(turns.accounts.is_empty(), "{turns:?}");
}

/// TURNS-4.
#[test]
fn nothing_is_kept_of_who_says_little() {
    let mut turns = Turns::new();
    for number in 0..FLOODERS {
        turns.add(number);
        hear(&mut turns, MOMENT);
    }
    assert!(turns.accounts.len() < 10, "{} accounts", turns.accounts.len());
}

#[test]
fn a_sign_that_comes_while_one_is_heard_is_not_lost() {
    let mut turns = Turns::new();
    turns.add(1);
    assert_eq!(turns.next(), Some(1));
    turns.add(1);
    turns.heard(MOMENT, false);
    assert_eq!(turns.next(), Some(1));
    turns.heard(MOMENT, false);
    assert!(turns.is_empty());
}
