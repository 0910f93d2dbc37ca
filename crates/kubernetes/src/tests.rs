mod capacity;
mod plan;
mod pods;
mod scaling;
