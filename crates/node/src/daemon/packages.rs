//! Packages on their way: who is asked for what another node has, and what this one is asked for.

use super::Daemon;
use crate::children::packages::{Packages, Taken, Wanted};
use oxiray_machine::Key;
use oxiray_wire::message::{PackagePiece, PackageWanted};

impl Daemon {
    /// Has the packages of a preparation brought here first; gives it back where nothing is missing, or nobody could have it.
    pub(super) fn await_packages(&mut self, number: u64, wanted: Wanted) -> Option<Wanted> {
        let missing = Packages::missing(&wanted.specification, &self.session);
        let sources = self.package_sources();
        let Some((first, others)) = sources.split_first().filter(|_| !missing.is_empty()) else { return Some(wanted) };
        let packages = &mut self.children.environments.packages;
        for name in packages.await_all(number, wanted, missing, (*first, others)) {
            self.log.line(&format!("package {name} is not on this machine, and is asked for"));
            self.ask_for_package(&name);
        }
        None
    }

    /// The nodes of other machines that may have a package.
    fn package_sources(&self) -> Vec<Key> {
        let Some(network) = &self.network else { return Vec::new() };
        match self.core.head_key() {
            Some(head) => vec![head],
            None => network.members().collect(),
        }
    }

    fn ask_for_package(&mut self, name: &str) {
        if let Some((from, asked)) = self.children.environments.packages.question(name) {
            self.queue(from, &asked.into(), Vec::new());
        }
    }

    /// Another node wants a piece of a package.
    pub(super) fn give_package(&mut self, to: Key, asked: PackageWanted) {
        let piece = Packages::piece(asked, &self.session);
        self.queue(to, &piece.into(), Vec::new());
    }

    /// A piece of a package that was asked for.
    pub(super) fn take_package(&mut self, from: Key, piece: &PackagePiece) {
        match self.children.environments.packages.take(from, piece, &self.session) {
            Taken::Unasked => {}
            Taken::More => self.ask_for_package(&piece.name),
            Taken::Missing => self.ask_next_for_package(&piece.name),
            Taken::Settled(result) => {
                if let Err(error) = result {
                    self.log.line(&format!("package {} cannot be written: {error}", piece.name));
                }
                self.package_settled(&piece.name);
            }
        }
    }

    fn ask_next_for_package(&mut self, name: &str) {
        if self.children.environments.packages.next_source(name) {
            return self.ask_for_package(name);
        }
        self.log.line(&format!("package {name} is on no node that was asked"));
        self.package_settled(name);
    }

    /// PACKAGE-2: it is there, or will not be.
    fn package_settled(&mut self, name: &str) {
        for (number, wanted) in self.children.environments.packages.settled(name) {
            self.begin_preparation(number, &wanted);
        }
    }

    /// Another head is there: it is asked for what the last one did not give.
    pub(super) fn ask_next_head(&mut self, head: Key) {
        for name in self.children.environments.packages.ask_head(head) {
            self.ask_for_package(&name);
        }
    }

    /// A node is gone: somebody else may have what it was asked for.
    pub(super) fn packages_without(&mut self, node: Key) {
        for name in self.children.environments.packages.without(node) {
            self.ask_next_for_package(&name);
        }
    }
}
