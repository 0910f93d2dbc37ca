mod capacity;
mod plan;
mod pods;
